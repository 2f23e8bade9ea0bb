"""A network of words in NumPy gives what the same folder gives in PyTorch."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from small_model import OPTIONS, small_model

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.nets.blocks import POINT_BLOCKS
from gandalf.slim import NEEDS_PYTORCH, SlimPredictor
from gandalf.wide.plain import BLOCKS
from gandalf.wide.plain_network import can_be_plain, read_plain_network

LABELS = ["gzip", "bzip2 files", "disk usage", "Ärger über Zeilen", "compress"]
TEXTS = ["gzip a file", "disk usage of bzip2", "", "Ärger", "compress " * 20, "bzip2 files", "🦄"]


@pytest.fixture(params=[(block, centred) for block in POINT_BLOCKS for centred in (False, True)])
def folder(request, tmp_path, monkeypatch):
    block, centred = request.param
    options = {"kind": "bag-of-words", "dim": 12, "block": block, "centred": centred}
    monkeypatch.setitem(OPTIONS, "centred", options)
    save_model(small_model("centred", labels=LABELS), tmp_path / "model")
    return tmp_path / "model"


def options_of(folder):
    return json.loads((folder / "config.json").read_text("utf-8"))["encoder"]


def test_it_gives_what_the_network_gives(folder):
    model = load_model(folder)
    plain = read_plain_network(folder, "model.safetensors", options_of(folder), len(LABELS))
    for k in (1, 3, 5):
        ids, scores = plain.best(TEXTS, k)
        expected_ids, expected = model.best(TEXTS, k)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
    labels = np.array([[4, 1], [0, 0], [2, 3], [1, 2], [3, 3], [4, 0], [2, 1]])
    np.testing.assert_allclose(plain.score(TEXTS, labels), model.score(TEXTS, labels), atol=1e-5)
    np.testing.assert_array_equal(plain.knows(TEXTS), model.knows(TEXTS))
    np.testing.assert_allclose(plain.unit_vectors(TEXTS), model.unit_vectors(TEXTS).numpy(), atol=1e-6)
    assert plain.best([], 2)[0].shape == (0, 2) and plain.unit_vectors([]).shape == (0, 12)


def test_only_bags_of_words_are_plain(tmp_path):
    assert all(can_be_plain({"kind": "bag-of-words", "block": block}) for block in BLOCKS)
    for kind in ("inception", "transformer"):
        assert not can_be_plain(OPTIONS[kind])
        save_model(small_model(kind), tmp_path / kind)
        with pytest.raises(DataError, match="needs PyTorch") as told:
            SlimPredictor(tmp_path / kind)
        assert told.value.problem.kind == NEEDS_PYTORCH


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("head.bias"),
        lambda tensors: tensors.update({"head.bias": np.zeros(4, dtype=np.float32)}),
        lambda tensors: tensors.update({"head.rows": np.zeros((5, 11), dtype=np.float32)}),
        lambda tensors: tensors.update({"encoder.idf": np.zeros(2, dtype=np.float32)}),
        lambda tensors: tensors.update({"encoder.words.weight": np.zeros((3, 12), dtype=np.float32)}),
        lambda tensors: tensors.update({"head.rows": np.full((5, 12), np.nan, dtype=np.float32)}),
        lambda tensors: tensors.update({"head.rows": tensors["head.rows"].astype(np.float16)}),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, tmp_path):
    save_model(small_model(), tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(DataError):
        SlimPredictor(tmp_path / "model", verify=False)
    with pytest.raises(DataError, match="is not what was written"):
        SlimPredictor(tmp_path / "model")
