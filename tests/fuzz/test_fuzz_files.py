"""Files of every kind, changed at random: they are read, or refused with one sentence.

Bounded and seeded in `make test`; `make fuzz` goes on for longer, and FUZZ_SEED=7 draws other changes.
"""

from __future__ import annotations

import json
import random
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from mutate import SEED, TRIES, changed, files_of
from scipy.sparse import csr_array
from small_model import LABELS, OPTIONS, small_model
from small_parts import needs_omikuji, small_part
from small_runs import small_splits
from small_transformer import word_pieces

import gandalf
from gandalf.data.export import FORMATS, export
from gandalf.data.load import load
from gandalf.data.origin import ONE_WAY
from gandalf.errors import DataError, Findings
from gandalf.model import Calibration, Model, load_model, save_model
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.predict.hnsw_files import INDEX, INDEX_FACTS, stored_or_built
from gandalf.predict.predictor import Predictor
from gandalf.predict.slim_export import export_model
from gandalf.slim import SlimPredictor
from gandalf.text.subwords import Subwords
from gandalf.train.checkpoint import Checkpoints

TEXTS = ["disk usage", "", "nothing known 漢字"]
HISTORY = ("README.md", "metrics.json", "log.jsonl")
PARTS = ["network", "transformer", pytest.param("mix with memory", marks=needs_omikuji)]
needs_onnx = pytest.mark.skipif(
    find_spec("onnxscript") is None, reason="onnxscript is optional: extra [onnx]"
)
LAYOUTS = [name for name in FORMATS if name not in (*ONE_WAY, "libsvm")]


def survives(folder, use, *, salt, spared=(), tries=TRIES):
    """Change one file after another: what is read is usable, what is refused told in one sentence."""
    refused = 0
    for number in range(tries):
        dice = random.Random(f"{SEED} {salt} {number}")
        with changed(dice.choice(files_of(folder, spared)), dice) as what:
            try:
                use(folder)
            except DataError as error:
                assert "\n" not in str(error), what
                refused += 1
            except Exception as error:
                pytest.fail(f"try {number} of seed {SEED}: {what}: {type(error).__name__}: {error}")
    assert refused, "no change was noticed: the changes change nothing"


@pytest.fixture(scope="module", params=PARTS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "model"
    part = transformer() if request.param == "transformer" else small_part(request.param)
    save_model(part, folder, metrics={"P@1": 50.0})
    return folder


def transformer():
    """A network that reads texts by somebody else's tokenizer."""
    tokens, options = Subwords(word_pieces(), 8, special_tokens=True), OPTIONS["transformer"]
    encoder = build_encoder(options, tokens.size)
    head = Table(len(LABELS), encoder.dim)
    return Model(tokens, encoder, head, list(LABELS), None, {"encoder": options}, Calibration(2.0, -0.5))


def used(folder):
    ids, scores = Predictor(load_model(folder, verify=False)).predict(TEXTS, 3)
    assert not np.isnan(scores).any() and ids.max() < load_model(folder, verify=False).num_labels


@pytest.mark.parametrize("layout", LAYOUTS)
def test_data_of_every_layout(layout, tmp_path):
    splits = small_splits()
    made = {"data": "x", "points": 5, "format": layout}
    export(splits, tmp_path / "d", layout, origin=(made, splits.train.label_frequencies))

    def use(folder):
        for strict in (True, False):
            found = load(folder, findings=Findings(strict=strict)).train
            found.targets.check_format()
            assert ((found.targets.data > 0) & (found.targets.data <= 1)).all()

    survives(tmp_path / "d", use, salt=layout)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is optional: extra [parquet]")
def test_parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"text": ["a", "b", "c"] * 9, "labels": [["x"], ["y", "x"], []] * 9})
    (tmp_path / "d").mkdir()
    parquet.write_table(table, tmp_path / "d" / "train.parquet")
    survives(tmp_path / "d", load, salt="parquet")


def test_models(model):
    survives(model, used, salt="model", spared=HISTORY)


def test_a_change_of_a_model_is_never_read(model):
    """What predicts has a hash: whatever is read is what was written, up to spaces of its config."""
    expected = Predictor(load_model(model)).predict(TEXTS, 3)

    def use(folder):
        found = Predictor(load_model(folder)).predict(TEXTS, 3)
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))

    survives(model, use, salt="hashed", spared=HISTORY)


@needs_onnx
def test_exports(model, tmp_path):
    def use(folder):
        SlimPredictor(folder, verify=False).predict(TEXTS, 3)

    export_model(load_model(model), model, tmp_path / "slim")
    survives(tmp_path / "slim", use, salt="slim")


@pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is optional: extra [train]")
def test_indexes_are_built_again(tmp_path):
    folder, network = tmp_path / "m", small_model()
    save_model(network, folder)
    queries = network.vectors(TEXTS).numpy()
    stored_or_built(network, folder, "float32")
    for number in range(TRIES):
        dice = random.Random(f"{SEED} index {number}")
        with changed(folder / dice.choice([INDEX, INDEX_FACTS]), dice) as what:
            try:
                found, _ = stored_or_built(network, folder, "float32")
            except DataError as error:
                assert "\n" not in str(error)
            else:
                ids = found.candidates(queries, 3)[1]
                assert ids.max() < network.num_labels, what


def test_checkpoints(tmp_path):
    Checkpoints(tmp_path / "c").save({"t": torch.arange(8.0), "u": torch.ones(3)}, {"step": 3})

    def use(folder):
        tensors, state = Checkpoints(folder).latest()
        assert state == {"step": 3} and torch.equal(tensors["t"], torch.arange(8.0))

    survives(tmp_path / "c", use, salt="checkpoints")


@pytest.mark.parametrize("name", ["p.npz", "p.jsonl"])
def test_predictions(name, tmp_path):
    splits = small_splits()
    rng = np.random.default_rng(0)
    found = csr_array(rng.random(splits.test.targets.shape).astype(np.float32))
    folder = tmp_path / "p"
    folder.mkdir()
    if name.endswith("npz"):
        from scipy.sparse import save_npz

        save_npz(folder / name, found)
    else:
        every = list(range(found.shape[1]))
        lines = [json.dumps({"labels": every, "scores": row}) + "\n" for row in found.toarray().tolist()]
        (folder / name).write_text("".join(lines))
    survives(folder, lambda folder: gandalf.evaluate(folder / name, splits), salt=name)
