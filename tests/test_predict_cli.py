"""`gandalf predict`: every kind of input gives the predictor's own answer, in every kind of output."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array, load_npz
from small_model import LABELS, small_model
from typer.testing import CliRunner

import gandalf
from gandalf.cli.main import app
from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.predict import inputs
from gandalf.predict.files import predict_chunks, write_predictions
from gandalf.predict.inputs import Chunk, is_text, texts_of_file
from gandalf.predict.predictor import Predictor

TEXTS = ["compress a file", "disk usage", "", 'gzip, bzip2 "and" more', "Ärger über Zeilen"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "small"
    save_model(small_model(), path)
    return path


@pytest.fixture(scope="module")
def predictor(folder):
    return Predictor(load_model(folder))


@pytest.fixture(scope="module")
def man():
    return gandalf.load("man")


@pytest.fixture(scope="module")
def man_folder(man, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "man"
    save_model(small_model(labels=man.train.label_texts), path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def fails(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == "", result.output
    return result.stderr


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


# ---- one text


def test_a_text_on_screen(folder, predictor):
    shown = done(folder, "bzip2 files")
    rows = [line for line in shown.splitlines() if "0." in line or "1.0" in line]
    expected = predictor.named("bzip2 files", 5)
    assert len(rows) == 5 and "bzip2 files" in rows[0] and "█" in rows[0]
    assert all(f"{score:.3f}" in row for (_, score), row in zip(expected, rows, strict=True))
    assert "\u2028" not in shown and "probability" in shown
    assert done(folder, "bzip2 files", "--top", 10**12).count("\n") == shown.count("\n")


def test_a_text_as_json(folder, predictor):
    found = json.loads(done(folder, "bzip2 files", "--top", 2, "--json"))
    expected = [{"text": text, "score": score} for text, score in predictor.named("bzip2 files", 2)]
    assert found == {"text": "bzip2 files", "labels": expected}


def test_a_threshold_that_nothing_reaches(folder):
    assert done(folder, "bzip2", "--threshold", 1.5).strip() == "no label reaches 1.5"
    assert json.loads(done(folder, "bzip2", "--threshold", 1.5, "--json"))["labels"] == []


def test_markup_and_control_characters_are_letters(folder):
    shown = done(folder, "[red]x[/] \x1b[2J y")
    assert "[red]x[/]" in shown and "\x1b" not in shown


def test_a_text_into_a_file(folder, predictor, tmp_path):
    done(folder, "bzip2 files", "-o", tmp_path / "o.jsonl")
    record = json.loads((tmp_path / "o.jsonl").read_text("utf-8"))
    assert record["labels"] == predictor.predict("bzip2 files", 5)[0].tolist()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("compress a file", True),
        ("gzip", True),
        ("a read/write lock", True),
        ("what is Node.js", True),
        ("", True),
        ("x" * 5000, True),
        ("null\0byte", True),
        ("man", False),
        ("data/none", None),
        ("./none", None),
        ("/no where/at all", None),
        ("queries.txt", None),
        ("queries.csv.gz", None),
    ],
)
def test_a_text_or_a_name(given, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is None:
        with pytest.raises(DataError, match="there is no file or folder"):
            is_text(given)
    else:
        assert is_text(given) == text


def test_what_exists_is_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_text("gzip")
    (tmp_path / "gzip").write_text("")
    assert not is_text("gzip")


# ---- files of texts


def write_txt(path):
    path.write_text("\n".join(TEXTS) + "\n", "utf-8")


def write_csv(path, delimiter=","):
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow(["uid", "title", "labels"])
        rows.writerows([f"u{n}", text, "x"] for n, text in enumerate(TEXTS))


def write_jsonl(path):
    path.write_text("".join(json.dumps({"uid": f"u{n}", "title": t}) + "\n" for n, t in enumerate(TEXTS)))


def write_parquet(path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"uid": [f"u{n}" for n in range(len(TEXTS))], "title": TEXTS})
    pyarrow.parquet.write_table(table, path)


FILES = {
    "t.txt": write_txt,
    "t.csv": write_csv,
    "t.tsv": lambda path: write_csv(path, "\t"),
    "t.jsonl": write_jsonl,
    "t.parquet": write_parquet,
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file(name, folder, predictor, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 2)
    FILES[name](tmp_path / name)
    done(folder, tmp_path / name, "-o", tmp_path / "o.npz", "--top", 3)
    ids, scores = predictor.predict(TEXTS, 3)
    found = load_npz(tmp_path / "o.npz")
    assert found.shape == (len(TEXTS), len(LABELS)) and found.dtype == np.float32
    expected = np.zeros(found.shape, dtype=np.float32)
    np.put_along_axis(expected, ids, scores, axis=1)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5)
    done(folder, tmp_path / name, "-o", tmp_path / "o.jsonl", "--top", 3)
    records = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text("utf-8").split("\n")[:-1]]
    assert [record["text"] for record in records] == TEXTS
    assert [record["labels"] for record in records] == ids.tolist()
    named = [[LABELS[label] for label in row] for row in ids.tolist()]
    assert [record["label_texts"] for record in records] == named
    assert [record["label_ids"] for record in records] == [[f"L{label}" for label in row] for row in ids]
    names = None if name == "t.txt" else [f"u{n}" for n in range(len(TEXTS))]
    assert [record.get("uid") for record in records] == (names or [None] * len(TEXTS))


def test_csv_out(folder, predictor, tmp_path):
    write_csv(tmp_path / "t.csv")
    done(folder, tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--top", 2, "--threshold", 0.3)
    with open(tmp_path / "o.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ids, scores = predictor.predict(TEXTS, 2, threshold=0.3)
    expected = [
        (f"u{n}", TEXTS[n], str(rank + 1), f"L{ids[n, rank]}", LABELS[ids[n, rank]])
        for n in range(len(TEXTS))
        for rank in range(2)
        if ids[n, rank] >= 0
    ]
    assert 0 < len(expected) < 2 * len(TEXTS)
    assert [tuple(row.values())[:-1] for row in rows] == expected
    np.testing.assert_array_equal(np.float32([row["score"] for row in rows]), scores[ids >= 0])


def test_labels_without_ids_and_compressed_output(tmp_path):
    model = small_model(ids=False)
    predicted = list(predict_chunks(Predictor(model), [Chunk(["gzip"])], 2))
    assert write_predictions(tmp_path / "o.csv.gz", predicted, model) == 1
    assert (tmp_path / "o.csv.gz").read_bytes().startswith(b"\x1f\x8b")
    write_predictions(tmp_path / "o.csv", predicted, model)
    _, first, second = (tmp_path / "o.csv").read_text("utf-8").splitlines()
    assert first.startswith(",gzip,1,0,gzip,") and second.startswith(",gzip,2,4,gzip,")
    write_predictions(tmp_path / "o.jsonl", predicted, model)
    assert "label_ids" not in json.loads((tmp_path / "o.jsonl").read_text("utf-8"))


def test_no_texts_at_all(folder, tmp_path):
    (tmp_path / "t.txt").write_text("")
    for suffix in (".npz", ".jsonl", ".csv"):
        found = json.loads(done(folder, tmp_path / "t.txt", "-o", tmp_path / f"o{suffix}", "--json"))
        assert found["texts"] == 0
    assert load_npz(tmp_path / "o.npz").shape == (0, len(LABELS))


def test_files_are_read_as_they_are_written(tmp_path):
    """Ten million lines must fit: a chunk is predicted and written before the next is read."""
    events = []

    def chunks():
        for number in range(3):
            events.append(f"read {number}")
            yield Chunk([f"text {number}"])

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


def test_a_failure_half_way_leaves_the_old_file(folder, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n' * 3 + "broken\n")
    for suffix in (".npz", ".jsonl", ".csv"):
        (tmp_path / f"o{suffix}").write_text("old")
        assert "t.jsonl:4:" in fails(folder, tmp_path / "t.jsonl", "-o", tmp_path / f"o{suffix}")
        assert (tmp_path / f"o{suffix}").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 4


# ---- data sets


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_a_test_split_as_evaluate_reads_it(suffix, man, man_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 1000)
    out = tmp_path / f"o{suffix}"
    summary = json.loads(done(man_folder, "man", "-o", out, "--top", 10, "--json"))
    assert summary == {"out": str(out), "texts": len(man.test), "labels": man.train.num_labels, "top": 10}
    ids, scores = Predictor(load_model(man_folder)).predict(man.test.texts, 10, man.test.exclude)
    expected = gandalf.evaluate((ids, scores), man).as_dict()
    result = CliRunner().invoke(app, ["evaluate", str(out), "man", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found == json.loads(json.dumps(expected)) and found["P@5"] > 0
    assert found["unfiltered"]["P@5"] == found["P@5"]  # the filter was applied before the top were taken


def test_excluded_pairs_are_not_in_the_file(man, man_folder, tmp_path):
    done(man_folder, "man", "-o", tmp_path / "o.npz", "--top", 10)
    found = csr_array(load_npz(tmp_path / "o.npz"))
    assert man.test.exclude.nnz > 0 and found.multiply(man.test.exclude).nnz == 0
    assert (np.diff(found.indptr) == 10).all() and (found.data > 0).all()


def test_a_table_with_a_test_file(folder, tmp_path):
    write_csv(tmp_path / "train.csv")
    labelled = "uid,title,labels\nq,gzip please,gzip\n"
    (tmp_path / "other.csv").write_text(labelled)
    (tmp_path / "labels.txt").write_text("\n".join([*LABELS[:3], "Zeilen", "x"]))
    arguments = ("--test", tmp_path / "other.csv", "--labels", tmp_path / "labels.txt")
    done(folder, tmp_path / "train.csv", *arguments, "-o", tmp_path / "o.jsonl")
    assert json.loads((tmp_path / "o.jsonl").read_text("utf-8"))["text"] == "gzip please"


# ---- sentences


def test_data_that_the_model_was_not_made_for(folder, man_folder, man, tmp_path):
    sentence = fails(folder, "man", "-o", tmp_path / "o.npz")
    assert f"has {man.train.num_labels:,} labels, and the model 5" in sentence
    (tmp_path / "train.csv").write_text("text,labels\na,v\nb,w\nc,x\nd,y\ne,z\n")
    (tmp_path / "test.csv").write_text("text,labels\na,v\n")
    sentence = fails(folder, tmp_path, "-o", tmp_path.parent / "o.npz")
    assert "has other labels than the model: 0 of 5 texts are the same" in sentence
    (tmp_path / "test.csv").unlink()
    assert "has no test split to predict" in fails(folder, tmp_path, "-o", tmp_path.parent / "o.npz")


def test_where_predictions_may_not_go(folder, tmp_path):
    write_txt(tmp_path / "t.txt")
    write_jsonl(tmp_path / "t.jsonl")
    texts = tmp_path / "t.txt"
    assert "need a file to go to; name it: -o" in fails(folder, texts)
    assert "in no format that predictions can be written in" in fails(folder, texts, "-o", tmp_path / "o.pkl")
    assert "in no format" in fails(folder, texts, "-o", tmp_path / "o.npz.gz")
    assert "is in the model's folder" in fails(folder, texts, "-o", folder / "labels.jsonl")
    before = (tmp_path / "t.jsonl").read_bytes()
    assert "is part of the data that is read" in fails(
        folder, tmp_path / "t.jsonl", "-o", tmp_path / "t.jsonl"
    )
    assert (tmp_path / "t.jsonl").read_bytes() == before
    assert "cannot be written" in fails(folder, texts, "-o", tmp_path / "none" / "o.csv")


def test_columns_that_are_not_there(folder, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    out = ("-o", tmp_path / "o.csv")
    assert "name it with --text-column" in fails(folder, tmp_path / "t.csv", *out)
    assert "there is no column 'c'; the columns are: a, b" in fails(
        folder, tmp_path / "t.csv", *out, "--text-column", "c"
    )
    done(folder, tmp_path / "t.csv", *out, "--text-column", "b")
    write_txt(tmp_path / "t.txt")
    assert "one text a line" in fails(folder, tmp_path / "t.txt", *out, "--text-column", "b")


def test_no_model_and_no_cuda(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "no such model folder" in fails(tmp_path / "none", "gzip")
    assert "no CUDA device" in fails(folder, "gzip", "--device", "cuda")
    done(folder, "gzip", "--device", "cpu")


def test_without_the_training_half_it_says_what_to_install(folder):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gandalf.cli.main import app\n"
        f"app(['predict', {str(folder)!r}, 'gzip'])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.strip() == "error: predicting needs torch; pip install 'gandalf-xmc[train]'"
