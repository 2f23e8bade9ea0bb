"""`gandalf predict`: one text, a test split, and what it refuses in a sentence."""

from __future__ import annotations

import json

import command_line
import numpy as np
import pytest
from predict_command import done, fails
from scipy.sparse import csr_array, load_npz
from small_model import LABELS, small_model
from text_files import write_csv, write_jsonl, write_txt

import gandalf
from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.predict import inputs
from gandalf.predict.inputs import is_text
from gandalf.predict.predictor import Predictor


@pytest.fixture(scope="module")
def man_folder(man, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "man"
    save_model(small_model(labels=man.train.label_texts), path)
    return path


def test_a_text_on_screen(small_folder, small_predictor):
    shown = done(small_folder, "bzip2 files")
    rows = [line for line in shown.splitlines() if "0." in line or "1.0" in line]
    expected = small_predictor.named("bzip2 files", 5)
    assert len(rows) == 5 and "bzip2 files" in rows[0] and "█" in rows[0]
    assert all(f"{score:.3f}" in row for (_, score), row in zip(expected, rows, strict=True))
    assert "\u2028" not in shown and "probability" in shown
    assert done(small_folder, "bzip2 files", "--top", 10**12).count("\n") == shown.count("\n")


def test_a_text_as_json(small_folder, small_predictor):
    found = json.loads(done(small_folder, "bzip2 files", "--top", 2, "--json"))
    ids, scores = small_predictor.predict("bzip2 files", 2)
    expected = [
        {"label": label, "id": f"L{label}", "text": LABELS[label], "score": score}
        for label, score in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    assert found == {"text": "bzip2 files", "labels": expected, "known": True}


def test_a_blank_label_text_is_shown_as_its_id(tmp_path):
    texts = [*LABELS[:1], " ", *LABELS[2:]]
    with_ids, without = small_model(labels=texts), small_model(labels=texts, ids=False)
    assert [name for name, _ in Predictor(with_ids).named("gzip", 5)].count("L1") == 1
    assert [name for name, _ in Predictor(without).named("gzip", 5)].count("1") == 1
    save_model(with_ids, tmp_path / "model")
    assert "L1 " in done(tmp_path / "model", "gzip")
    found = json.loads(done(tmp_path / "model", "gzip", "--json"))["labels"]
    assert {"L1": " "}.items() <= {each["id"]: each["text"] for each in found}.items()


def test_a_threshold_that_nothing_reaches(small_folder):
    assert done(small_folder, "bzip2", "--threshold", 1.0).strip() == "no label reaches 1.0"
    assert json.loads(done(small_folder, "bzip2", "--threshold", 1.0, "--json"))["labels"] == []


def test_a_threshold_is_a_probability(small_folder):
    for threshold in (-0.1, 1.5):
        result = command_line.run("predict", small_folder, "bzip2", "--threshold", threshold)
        assert result.exit_code == 2 and "--threshold" in result.stderr


def test_markup_and_control_characters_are_letters(small_folder):
    shown = done(small_folder, "[red]x[/] \x1b[2J y")
    assert "[red]x[/]" in shown and "\x1b" not in shown


def test_a_text_into_a_file(small_folder, small_predictor, tmp_path):
    done(small_folder, "bzip2 files", "-o", tmp_path / "o.jsonl")
    record = json.loads((tmp_path / "o.jsonl").read_text("utf-8"))
    assert record["labels"] == small_predictor.predict("bzip2 files", 5)[0].tolist()


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


@pytest.mark.parametrize("suffix", [".npz", ".jsonl"])
def test_a_test_split_as_evaluate_reads_it(suffix, man, man_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "CHUNK", 1000)
    out = tmp_path / f"o{suffix}"
    summary = json.loads(done(man_folder, "man", "-o", out, "--top", 10, "--json"))
    assert summary == {"out": str(out), "texts": len(man.test), "labels": man.train.num_labels, "top": 10}
    ids, scores = Predictor(load_model(man_folder)).predict(man.test.texts, 10, man.test.exclude)
    expected = gandalf.evaluate((ids, scores), man).as_dict()
    found = command_line.done_json("evaluate", out, "man")
    assert found == json.loads(json.dumps(expected)) and found["P@5"] > 0
    assert found["unfiltered"]["P@5"] == found["P@5"]  # the filter was applied before the top were taken


def test_excluded_pairs_are_not_in_the_file(man, man_folder, tmp_path):
    done(man_folder, "man", "-o", tmp_path / "o.npz", "--top", 10)
    found = csr_array(load_npz(tmp_path / "o.npz"))
    assert man.test.exclude.nnz > 0 and found.multiply(man.test.exclude).nnz == 0
    assert (np.diff(found.indptr) == 10).all() and (found.data > 0).all()


def test_a_table_with_a_test_file(small_folder, tmp_path):
    write_csv(tmp_path / "train.csv")
    labelled = "uid,title,labels\nq,gzip please,gzip\n"
    (tmp_path / "other.csv").write_text(labelled)
    (tmp_path / "labels.txt").write_text("\n".join([*LABELS[:3], "Zeilen", "x"]))
    arguments = ("--test", tmp_path / "other.csv", "--labels", tmp_path / "labels.txt")
    done(small_folder, tmp_path / "train.csv", *arguments, "-o", tmp_path / "o.jsonl")
    assert json.loads((tmp_path / "o.jsonl").read_text("utf-8"))["text"] == "gzip please"


def test_data_that_the_model_was_not_made_for(small_folder, man, tmp_path):
    sentence = fails(small_folder, "man", "-o", tmp_path / "o.npz")
    assert f"has {man.train.num_labels:,} labels, and the model 5" in sentence
    (tmp_path / "train.csv").write_text("text,labels\na,v\nb,w\nc,x\nd,y\ne,z\n")
    (tmp_path / "test.csv").write_text("text,labels\na,v\n")
    sentence = fails(small_folder, tmp_path, "-o", tmp_path.parent / "o.npz")
    assert "has other labels than the model: 0 of 5 texts are the same" in sentence
    (tmp_path / "test.csv").unlink()
    assert "has no test split to predict" in fails(small_folder, tmp_path, "-o", tmp_path.parent / "o.npz")


def test_where_predictions_may_not_go(small_folder, tmp_path):
    write_txt(tmp_path / "t.txt")
    write_jsonl(tmp_path / "t.jsonl")
    texts = tmp_path / "t.txt"
    assert "need a file to go to; name it: -o" in fails(small_folder, texts)
    said = fails(small_folder, texts, "-o", tmp_path / "o.pkl")
    assert "in no format that predictions can be written in" in said
    for name in ("o.npz.gz", "o.parquet.gz"):
        assert "in no format" in fails(small_folder, texts, "-o", tmp_path / name)
    assert "is in the model's folder" in fails(small_folder, texts, "-o", small_folder / "labels.jsonl")
    before = (tmp_path / "t.jsonl").read_bytes()
    assert "is part of the data that is read" in fails(
        small_folder, tmp_path / "t.jsonl", "-o", tmp_path / "t.jsonl"
    )
    assert (tmp_path / "t.jsonl").read_bytes() == before
    assert "cannot be written" in fails(small_folder, texts, "-o", tmp_path / "none" / "o.csv")


def test_a_file_is_replaced_only_on_demand(small_folder, tmp_path):
    out = tmp_path / "mine.jsonl"
    out.write_text("mine")
    said = fails(small_folder, "a text of words", "-o", out)
    assert "exists already; choose another name, or add --overwrite" in said and out.read_text() == "mine"
    command_line.done("predict", small_folder, "a text of words", "-o", out, "--overwrite")
    assert out.read_text() != "mine"


def test_columns_that_are_not_there(small_folder, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    out = ("-o", tmp_path / "o.csv")
    assert "name it with --text-column" in fails(small_folder, tmp_path / "t.csv", *out)
    assert "there is no column 'c'; the columns are: a, b" in fails(
        small_folder, tmp_path / "t.csv", *out, "--text-column", "c"
    )
    done(small_folder, tmp_path / "t.csv", *out, "--text-column", "b")
    write_txt(tmp_path / "t.txt")
    out = ("-o", tmp_path / "p.csv")
    assert "one text a line" in fails(small_folder, tmp_path / "t.txt", *out, "--text-column", "b")


def test_no_model_and_no_cuda(small_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "no such model folder" in fails(tmp_path / "none", "gzip")
    assert "no CUDA device" in fails(small_folder, "gzip", "--device", "cuda")
    done(small_folder, "gzip", "--device", "cpu")


WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None\n"  # its import fails
    "from gandalf.cli.main import app\n"
    "app(['predict', *sys.argv[1:]])\n"
)


def test_a_text_needs_no_pytorch_where_words_are_all_that_a_model_reads(small_folder, small_predictor):
    result = command_line.python(WITHOUT_TORCH, small_folder, "gzip", "--json", "--threshold", "0.1")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["known"] and [each["text"] for each in found["labels"]] == [
        name for name, _ in small_predictor.named("gzip", 5, threshold=0.1)
    ]


def test_without_the_training_half_it_says_what_to_install(small_folder, tmp_path):
    save_model(small_model("inception"), tmp_path / "network")
    (tmp_path / "texts.txt").write_text("gzip\n", "utf-8")
    of_texts = (small_folder, tmp_path / "texts.txt", "-o", tmp_path / "out.jsonl")
    for words in ((tmp_path / "network", "gzip"), of_texts):
        result = command_line.python(WITHOUT_TORCH, *words)
        assert result.returncode == 2
        assert result.stderr.strip() == "error: predicting needs torch; pip install 'gandalf-xmc[train]'"


@pytest.mark.parametrize("many", [False, True], ids=["one text", "a file of texts"])
def test_the_first_model_of_a_search_is_called_so(tmp_path, many):
    folder, texts = tmp_path / "model", tmp_path / "texts.txt"
    save_model(small_model(), folder)
    texts.write_text("gzip\n", "utf-8")
    asked = [texts, "-o", tmp_path / "found.jsonl"] if many else ["gzip"]
    finished = command_line.run("predict", folder, *asked)
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "search.json").write_text("{}", "utf-8")
    searching = command_line.run("predict", folder, *asked, *(["--overwrite"] if many else []))
    assert finished.exit_code == searching.exit_code == 0
    assert finished.stdout == searching.stdout and "--resume" not in finished.stderr
    assert searching.stderr.count("first model of a search") == 1 and f"{folder} --resume" in searching.stderr


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_called_so(small_folder, text):
    assert done(small_folder, text).strip() == "the text is empty"
