"""Vectors of texts: from the library, the command and the server, by networks and by linear models."""

from __future__ import annotations

import json

import command_line
import numpy as np
import pytest
from http_server import refused
from scipy.sparse import csr_array, load_npz
from small_parts import needs_omikuji, small_trees
from text_files import TEXTS, write_csv

from gandalf.model import save_model
from gandalf.predict import embedding
from gandalf.predict.embedding import embed


def test_vectors_are_those_of_the_model_in_any_chunks(small_predictor, monkeypatch):
    model = small_predictor.model
    expected = model.unit_vectors(TEXTS).numpy()
    found = embed(model, TEXTS)
    assert found.dtype == np.float32 and np.allclose(found, expected)
    monkeypatch.setattr(embedding, "CHUNK", 2)
    np.testing.assert_allclose(embed(model, TEXTS), expected, rtol=1e-5, atol=1e-6)
    assert embed(model, "gzip").shape == (1, expected.shape[1]) and embed(model, []).shape[0] == 0


def test_the_command_writes_what_the_library_gives(small_folder, small_predictor, tmp_path):
    write_csv(tmp_path / "t.csv")
    expected = embed(small_predictor.model, TEXTS)
    told = command_line.done_json("embed", small_folder, tmp_path / "t.csv", "-o", tmp_path / "v.npy")
    assert told == {"out": str(tmp_path / "v.npy"), "texts": len(TEXTS)}
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, rtol=1e-6)
    command_line.done("embed", small_folder, tmp_path / "t.csv", "-o", tmp_path / "v.jsonl")
    records = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert [(each["row"], each["uid"], each["text"]) for each in records] == [
        (row, f"u{row}", text) for row, text in enumerate(TEXTS)
    ]
    np.testing.assert_allclose([each["vector"] for each in records], expected, rtol=1e-6)
    command_line.done("embed", small_folder, "gzip", "-o", tmp_path / "one.npz")
    np.testing.assert_allclose(load_npz(tmp_path / "one.npz").toarray(), embed(small_predictor.model, "gzip"))


@needs_omikuji
def test_a_linear_model_has_sparse_vectors(tmp_path):
    model = small_trees()
    found = embed(model, ["gzip", "disk usage"])
    assert isinstance(found, csr_array) and found.shape[0] == 2
    save_model(model, tmp_path / "model")
    said = command_line.fails("embed", tmp_path / "model", "gzip", "-o", tmp_path / "v.npy")
    assert "sparse" in said and ".npz" in said and not (tmp_path / "v.npy").exists()
    command_line.done("embed", tmp_path / "model", "gzip", "-o", tmp_path / "v.npz")
    assert (load_npz(tmp_path / "v.npz") != found[[0]]).nnz == 0


def test_what_the_command_refuses(small_folder, tmp_path):
    assert "no format" in command_line.fails("embed", small_folder, "gzip", "-o", tmp_path / "v.txt")
    (tmp_path / "v.npy").write_text("mine")
    assert "exists already" in command_line.fails("embed", small_folder, "gzip", "-o", tmp_path / "v.npy")
    inside = small_folder / "v.npy"
    assert "is in the model's folder" in command_line.fails("embed", small_folder, "gzip", "-o", inside)
    assert (tmp_path / "v.npy").read_text() == "mine" and not inside.exists()


def test_over_http(client, predictor):
    found = client.post("/embed", json={"texts": [" gzip\n", "disk usage"]})
    assert found.status_code == 200
    np.testing.assert_allclose(
        found.json()["vectors"], embed(predictor.model, ["gzip", "disk usage"]), rtol=1e-5
    )
    other = client.post("/embed", json={"texts": ["gzip"], "baseline": True}).json()["vectors"]
    assert not np.allclose(other[0], found.json()["vectors"][0])


@pytest.mark.parametrize("body", [{}, {"texts": []}, {"texts": "gzip"}, {"text": "gzip"}])
def test_what_the_server_refuses(client, body):
    refused(client.post("/embed", json=body), 422)
