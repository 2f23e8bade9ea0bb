"""Odd values in the files of a model end in one sentence, whatever command meets them."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec

import pytest
from command_line import done, fails
from small_model import small_model

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.predict.hnsw_files import INDEX_FACTS, stored_or_built
from gandalf.slim import SlimPredictor


@pytest.fixture
def model(small_folder, tmp_path):
    return shutil.copytree(small_folder, tmp_path / "m")


@pytest.fixture
def labels(tmp_path):
    (tmp_path / "new.txt").write_text("zstd files\n")
    return tmp_path / "new.txt"


def edit(path, **changes):
    found = json.loads(path.read_text("utf-8")) | changes
    found.pop("sha256", None)
    path.write_text(json.dumps(found), "utf-8")


@pytest.mark.parametrize("files", [None, 5, "labels.jsonl", [None], [5], [["a"]], {"a": 1}])
def test_a_list_of_files_that_is_none(files, model, labels, tmp_path):
    edit(model / "config.json", files=files)
    assert "config.json" in fails("add-labels", model, labels, "-o", tmp_path / "out")
    assert "is not part of a model, and is not replaced" in fails("add-labels", model, labels, "--in-place")
    with pytest.raises(DataError, match="which is not part of a model, and is not replaced"):
        save_model(small_model(), model, overwrite=True)


@pytest.mark.parametrize("number", ["NaN", "Infinity"])
def test_figures_that_are_no_json(number, model, labels, tmp_path):
    edit(model / "config.json")
    (model / "metrics.json").write_text(f'{{"P@1": {number}}}')
    config = json.loads((model / "config.json").read_text("utf-8"))
    edit(model / "config.json", files=[*config["files"], "metrics.json"])
    assert "metrics.json: is not JSON" in fails("add-labels", model, labels, "-o", tmp_path / "out")


@pytest.mark.parametrize("dropout", [1e30, -1, "x"])
@pytest.mark.parametrize("where", ["encoder", "config", "both"])
def test_a_dropout_that_is_none(dropout, where, model, labels, tmp_path):
    config = json.loads((model / "config.json").read_text("utf-8"))
    if where != "config":
        config["encoder"]["dropout"] = dropout
    if where != "encoder":
        config["config"]["encoder"]["dropout"] = dropout
    edit(model / "config.json", **config)
    assert "config.json" in fails("add-labels", model, labels, "-o", tmp_path / "out")


@pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is optional: extra [train]")
@pytest.mark.parametrize("width", [2**31, -1, 0, 1e300, None, "x"])
def test_an_index_of_an_odd_width_is_built_again(width, model):
    loaded = load_model(model)
    stored_or_built(loaded, model, "float32")
    edit(model / INDEX_FACTS, search_width=width)
    index, new = stored_or_built(loaded, model, "float32")
    assert new and index.width >= 1


@pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is optional: extra [train]")
@pytest.mark.parametrize("name", ["entry", "height"])
@pytest.mark.parametrize("value", [0.5, 1e300, -1, True, None, "x", 2**31])
def test_an_index_that_begins_nowhere_is_built_again(name, value, model):
    loaded = load_model(model)
    stored_or_built(loaded, model, "float32")
    edit(model / INDEX_FACTS, **{name: value})
    assert stored_or_built(loaded, model, "float32")[1]


@pytest.mark.skipif(find_spec("onnxscript") is None, reason="onnxscript is optional: extra [onnx]")
def test_an_export_whose_graph_wants_other_tokens_is_refused(model, tmp_path):
    done("export", model, tmp_path / "slim")
    path = tmp_path / "slim" / "words.json"
    facts = json.loads(path.read_text("utf-8"))
    facts["options"]["max_length"] = 5
    path.write_text(json.dumps(facts), "utf-8")
    with pytest.raises(DataError, match=r"model\.onnx: cannot be run"):
        SlimPredictor(tmp_path / "slim", verify=False).predict(["gzip"], 2)


@pytest.mark.skipif(find_spec("onnxscript") is None, reason="onnxscript is optional: extra [onnx]")
def test_an_export_to_a_full_disk_does_not_blame_the_encoder(model, tmp_path, monkeypatch):
    import torch

    def full(*_, **__):
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise RuntimeError("it failed") from error

    monkeypatch.setattr(torch.onnx, "export", full)
    said = fails("export", model, tmp_path / "out")
    assert "model.onnx: cannot be written (No space left on device)" in said
    assert not (tmp_path / "out").exists()


def test_cells_that_a_spreadsheet_would_compute_are_escaped(model, tmp_path):
    (tmp_path / "texts.txt").write_text("=1+1 gzip\n@SUM(A1) gzip\n-2 gzip\ngzip files\n")
    out = tmp_path / "out.csv"
    done("predict", model, tmp_path / "texts.txt", "-o", out, "--top", 1, "--escape-formulas")
    texts = [line.split(",")[2] for line in out.read_text("utf-8").splitlines()[1:]]
    assert texts == ["'=1+1 gzip", "'@SUM(A1) gzip", "'-2 gzip", "gzip files"]
    done("predict", model, tmp_path / "texts.txt", "-o", out, "--top", 1, "--overwrite")
    assert out.read_text("utf-8").splitlines()[1].split(",")[2] == "=1+1 gzip"
    said = fails("predict", model, "gzip", "-o", tmp_path / "out.jsonl", "--escape-formulas")
    assert "leave --escape-formulas out" in said


def test_the_licence_names_the_bundled_texts():
    import tomllib
    from pathlib import Path

    about = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert "LicenseRef-" in about["license"]
    assert "gandalf/data/bundled/*/LICENSE.md" in about["license-files"]


@pytest.mark.parametrize("length", [True, 0, -1, 1e30, None, "x", 2**31])
def test_a_length_of_texts_that_is_none(length, model):
    path = model / "words.json"
    facts = json.loads(path.read_text("utf-8"))
    facts["options"]["max_length"] = length
    path.write_text(json.dumps(facts), "utf-8")
    with pytest.raises(DataError, match=r"max_length|words\.json"):
        load_model(model, verify=False)
