"""`gandalf predict` on files of texts: every kind in and out gives the predictor's own answer."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest
from predict_command import done, fails
from pyarrow import parquet
from scipy.sparse import load_npz
from small_model import LABELS, small_model
from text_files import FILES, TEXTS, write_csv

from gandalf.errors import DataError
from gandalf.predict import inputs
from gandalf.predict.files import predict_chunks, write_predictions
from gandalf.predict.inputs import InputChunk, texts_of_file
from gandalf.predict.predictor import Predictor


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file(name, small_folder, small_predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 2)
    FILES[name](tmp_path / name)
    done(small_folder, tmp_path / name, "-o", tmp_path / "o.npz", "--top", 3)
    ids, scores = small_predictor.predict(TEXTS, 3)
    found = load_npz(tmp_path / "o.npz")
    assert found.shape == (len(TEXTS), len(LABELS)) and found.dtype == np.float32
    expected = np.zeros(found.shape, dtype=np.float32)
    rows = [[label for label in row if label >= 0] for row in ids.tolist()]  # "" has none
    assert [len(row) for row in rows] == [3 if text else 0 for text in TEXTS]
    np.put_along_axis(expected, np.maximum(ids, 0), np.where(ids < 0, expected[:, :3], scores), axis=1)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)
    done(small_folder, tmp_path / name, "-o", tmp_path / "o.jsonl", "--top", 3)
    records = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert [record["text"] for record in records] == TEXTS
    assert [record["labels"] for record in records] == rows
    assert [record["row"] for record in records] == list(range(len(TEXTS)))
    named = [[LABELS[label] for label in row] for row in rows]
    assert [record["label_texts"] for record in records] == named
    assert [record["label_ids"] for record in records] == [[f"L{label}" for label in row] for row in rows]
    names = None if name == "t.txt" else [f"u{n}" for n in range(len(TEXTS))]
    assert [record.get("uid") for record in records] == (names or [None] * len(TEXTS))


COLUMNS = ["row", "uid", "text", "rank", "label", "label_id", "label_text", "score"]


def test_csv_out(small_folder, small_predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 2)
    write_csv(tmp_path / "t.csv")
    done(small_folder, tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--top", 2, "--threshold", 0.3)
    with open(tmp_path / "o.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ids, scores = small_predictor.predict(TEXTS, 2, threshold=0.3)
    expected = [
        (
            *(str(n), f"u{n}", TEXTS[n], str(rank + 1)),
            *(str(ids[n, rank]), f"L{ids[n, rank]}", LABELS[ids[n, rank]]),
        )
        for n in range(len(TEXTS))
        for rank in range(2)
        if ids[n, rank] >= 0
    ]
    assert 0 < len(expected) < 2 * len(TEXTS)
    assert list(rows[0]) == COLUMNS
    assert [tuple(row.values())[:-1] for row in rows] == expected
    found = np.float32([row["score"] for row in rows])
    np.testing.assert_allclose(found, scores[ids >= 0], rtol=1e-6)  # chunks are rounded otherwise


def test_parquet_has_the_rows_of_the_csv_file(small_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 2)
    write_csv(tmp_path / "t.csv")
    for suffix in ("csv", "parquet"):
        done(small_folder, tmp_path / "t.csv", "-o", tmp_path / f"o.{suffix}", "--top", 3)
    table = parquet.read_table(tmp_path / "o.parquet")
    with open(tmp_path / "o.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert table.column_names == COLUMNS and len(rows) == 3 * (len(TEXTS) - 1)
    for name in COLUMNS[:-1]:
        assert [str(value) for value in table[name].to_pylist()] == [row[name] for row in rows]
    np.testing.assert_array_equal(np.float32([row["score"] for row in rows]), table["score"].to_numpy())


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables_of_other_libraries_have_the_same_rows(kind, small_predictor):
    pytest.importorskip("pyarrow" if kind == "arrow" else kind)
    ids, scores = small_predictor.predict(TEXTS, 2)
    found = small_predictor.table(tuple(TEXTS), 2, kind=kind)
    columns = {name: list(found[name].to_numpy()) for name in ("row", "rank", "label", "score")}
    rows, places = np.nonzero(ids >= 0)
    assert columns["row"] == rows.tolist() and columns["rank"] == (places + 1).tolist()
    assert columns["label"] == ids[rows, places].tolist()
    assert columns["score"] == scores[rows, places].tolist()
    names = list(getattr(found, "column_names", None) or found.columns)
    assert names == [name for name in COLUMNS if name != "uid"]
    alone = small_predictor.table("gzip", 10**6, threshold=0.0, kind=kind)
    assert len(alone) == len(LABELS)


def test_a_table_of_a_library_that_is_not_there(small_predictor, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(DataError, match="pip install polars"):
        small_predictor.table("gzip", kind="polars")
    with pytest.raises(DataError, match="say one of pandas, polars, arrow"):
        small_predictor.table("gzip", kind="excel")


def test_labels_without_ids_and_compressed_output(tmp_path):
    model = small_model(ids=False)
    predicted = list(predict_chunks(Predictor(model), [InputChunk(["gzip"])], 2))
    assert write_predictions(tmp_path / "o.csv.gz", predicted, model) == 1
    assert (tmp_path / "o.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    write_predictions(tmp_path / "o.csv", predicted, model)
    _, first, second = (tmp_path / "o.csv").read_text("utf-8").splitlines()
    assert first.startswith("0,,gzip,1,0,0,gzip,") and second.startswith("0,,gzip,2,4,4,gzip,")
    write_predictions(tmp_path / "o.jsonl", predicted, model)
    assert "label_ids" not in json.loads((tmp_path / "o.jsonl").read_text("utf-8"))


def test_no_texts_at_all(small_folder, tmp_path):
    (tmp_path / "t.txt").write_text("")
    for suffix in (".npz", ".jsonl", ".csv", ".parquet"):
        found = json.loads(done(small_folder, tmp_path / "t.txt", "-o", tmp_path / f"o{suffix}", "--json"))
        assert found["texts"] == 0
    assert load_npz(tmp_path / "o.npz").shape == (0, len(LABELS))


def test_files_are_read_as_they_are_written(tmp_path):
    """Ten million lines must fit: a chunk is predicted and written before the next is read."""
    events = []

    def chunks():
        for number in range(3):
            events.append(f"read {number}")
            yield InputChunk([f"text {number}"])

    model = small_model()
    predicted = predict_chunks(Predictor(model), chunks(), 2)

    def watched():
        for number, each in enumerate(predicted):
            events.append(f"predicted {number}")
            yield each

    write_predictions(tmp_path / "o.jsonl", watched(), model)
    assert events == [f"{what} {n}" for n in range(3) for what in ("read", "predicted")]
    path = tmp_path / "t.txt"
    path.write_text("a\n" * 20_000)
    first = next(texts_of_file(path))
    assert len(first.texts) == inputs.CHUNK


def test_a_failure_half_way_leaves_the_old_file(small_folder, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n' * 3 + "broken\n")
    for suffix in (".npz", ".jsonl", ".csv", ".parquet"):
        (tmp_path / f"o{suffix}").write_text("old")
        words = (small_folder, tmp_path / "t.jsonl", "-o", tmp_path / f"o{suffix}", "--overwrite")
        assert "t.jsonl:4:" in fails(*words)
        assert (tmp_path / f"o{suffix}").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 5
