"""`gandalf add-labels`: files of labels, where the model goes, and what is refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import command_line
import pytest
import torch
from small_model import LABELS, small_model

import gandalf
from gandalf.data.dataset import Splits
from gandalf.data.new_labels import NewLabel, read_new_labels
from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.model.added_labels import ADDED
from gandalf.predict.inputs import texts_of_test_split

done = partial(command_line.done, "add-labels")
fails = partial(command_line.fails, "add-labels")


@pytest.fixture
def folder(tmp_path):
    save_model(small_model(), tmp_path / "small", metrics={"P@1": 51.25})
    return tmp_path / "small"


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("tar archives\n\nzstd [fast] compression\n", "utf-8")
    return path


def plain(label: NewLabel):
    return (label.text, label.id, tuple(label.examples), tuple(label.neighbours), label.line)


def test_lines(lines):
    found = [plain(label) for label in read_new_labels(lines)]
    assert found == [("tar archives", None, (), (), 1), ("zstd [fast] compression", None, (), (), 3)]


def test_json_lines_need_not_have_the_same_keys(tmp_path):
    path = tmp_path / "new.jsonl"
    records = [{"text": "tar"}, {"Title": "zstd", "id": 7, "examples": ["a; b", "c"], "neighbors": "gzip"}]
    path.write_text("\n".join(map(json.dumps, records)))
    found = [plain(label) for label in read_new_labels(path)]
    assert found == [("tar", None, (), (), 1), ("zstd", "7", ("a; b", "c"), ("gzip",), 2)]


def test_csv_cells_hold_several(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('text,id,examples,neighbours\ntar,x,a; b,\n"zstd, fast",,,"[""L1"", ""gzip""]"\n')
    found = [plain(label) for label in read_new_labels(path)]
    assert found == [("tar", "x", ("a", "b"), (), 2), ("zstd, fast", None, (), ("L1", "gzip"), 3)]
    assert read_new_labels(path, "|")[0].examples == ("a; b",)


def test_a_new_folder(folder, lines, tmp_path):
    out = tmp_path / "longer"
    shown = done(folder, lines, "-o", out)
    assert f"{out}: 2 labels added, 7 in all" in shown
    assert f"try it: gandalf predict {out} 'tar archives'" in shown
    old, new = load_model(folder), load_model(out)
    assert (old.num_labels, new.label_texts) == (5, [*LABELS, "tar archives", "zstd [fast] compression"])
    assert torch.equal(old.head.rows, new.head.rows[:5]) and new.calibration == old.calibration
    assert json.loads((out / "metrics.json").read_text()) == {"P@1": 51.25}
    card = (out / "README.md").read_text("utf-8")
    assert "51.2" in card and "the last 2 labels in" in card
    assert "tar archives" in command_line.done("predict", out, "tar archives")
    assert "the folder is not empty" in fails(folder, lines, "-o", out)
    assert done(folder, lines, "-o", out, "--overwrite") == shown


def test_in_place(folder, lines, tmp_path):
    found = command_line.done_json("add-labels", folder, lines, "--in-place")
    model = load_model(folder)
    assert found == {"out": str(folder), "added": model.config[ADDED][0], "all_labels": 7}
    assert json.loads((folder / "metrics.json").read_text()) == {"P@1": 51.25}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "'tar archives' is a label of the model already" in fails(folder, lines, "--in-place")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_the_training_left_stays(lines, tmp_path):
    folder = tmp_path / "trained"
    splits = gandalf.synthetic(300, 120, seed=1).splits
    gandalf.train(splits, steps=2, dim=16, targets="self", device="cpu", out=folder)
    names = {path.name for path in folder.iterdir()}
    recipe = (folder / "recipe.toml").read_bytes()
    done(folder, lines, "--in-place")
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "recipe.toml").read_bytes() == recipe
    (folder / "notes.txt").write_text("mine")
    lines.write_text("another\n")
    assert "holds notes.txt, which is not part of a model" in fails(folder, lines, "--in-place")


def test_examples_and_neighbours_are_told(folder, tmp_path):
    path = tmp_path / "new.jsonl"
    path.write_text('{"text": "tar", "examples": ["pack"], "neighbours": ["L1"]}\n{"text": "ar"}\n')
    shown = done(folder, path, "-o", tmp_path / "longer")
    assert "2 labels added (1 with examples, 1 with neighbours), 7 in all" in shown


def test_where_it_may_not_go(folder, lines, tmp_path):
    assert "no folder for the new model is named; name it: -o OUT" in fails(folder, lines)
    assert "--in-place replaces MODEL" in fails(folder, lines, "--in-place", "-o", tmp_path / "o")
    assert "is the model itself; replace it with --in-place" in fails(folder, lines, "-o", folder)
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "letter.txt").write_text("dear")
    assert "holds letter.txt" in fails(folder, lines, "-o", tmp_path / "o", "--overwrite")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.txt", None, "there is no such file"),
        ("new.pdf", "x", "new.pdf: has an unknown suffix"),
        ("new.txt", "\n \n", "holds no label"),
        ("new.txt", "tar\ngzip\n", "new.txt:2: 'gzip' is a label of the model already; leave it out"),
        ("new.csv", "text,id\ntar,L0\n", "new.csv:2: the id 'L0' of 'tar' is taken"),
        ("new.csv", "text,id\ntar,x\n,y\n", "new.csv:3: the label has no text"),
        ("new.csv", "a,b\n1,2\n", "the columns are: a, b; name the column"),
        ("new.jsonl", '{"text": "tar"}\n{"text": ["a"]}\n', "new.jsonl:2: the label text is not a string"),
        (
            "new.jsonl",
            '{"text": "tar", "neighbours": ["zip"]}\n',
            "new.jsonl:1: the neighbour 'zip' of 'tar'",
        ),
        ("new.jsonl", "{", "new.jsonl:1: the line is no JSON object"),
        ("new.jsonl", '{"text": 5}', "new.jsonl:1: the label text is not a string"),
        ("new.jsonl", '{"text": "tar", "examples": {"a": 1}}', "must be lists of texts"),
        (
            "new.jsonl",
            '{"text": "tar", "neigbours": ["gzip"]}',
            "'neigbours' is not known; did you mean 'neighbours'?",
        ),
        ("new.csv", "text,exampels\ntar,pack\n", "did you mean 'examples'?"),
        (
            "new.jsonl",
            '{"text": "tar", "neighbours": ["bzip"]}',
            "name a known label by its id or its whole text, such as 'bzip2",
        ),
    ],
)
def test_files_that_are_refused(name, content, sentence, folder, tmp_path):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert sentence in fails(folder, tmp_path / name, "-o", tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_columns_of_others_are_left_alone(folder, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("text,price,colour\ntar,5,red\n")
    assert "1 label added" in done(folder, path, "-o", tmp_path / "o")


def test_a_longer_model_has_other_labels_than_its_data(tmp_path, man):
    model = small_model(labels=man.train.label_texts[:-1])
    save_model(model.add_labels([man.train.label_texts[-1] + " once more"]), tmp_path / "m")
    fewer = {"targets": man.train.targets[:, :-1], "label_texts": man.train.label_texts[:-1]}
    data = replace(man.train, **fewer, label_ids=None, exclude=None)
    longer = gandalf.load_model(tmp_path / "m")
    with pytest.raises(
        DataError, match="1 of them added later; give a file of texts, or the model as it was"
    ):
        list(texts_of_test_split(Splits(train=data, test=data), longer))


def test_no_model(lines, tmp_path):
    assert "there is no such model folder" in fails(tmp_path / "none", lines, "-o", tmp_path / "o")
