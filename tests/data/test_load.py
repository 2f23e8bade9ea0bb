"""From a name to a data set, and what people have: tables of every shape."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from gandalf.data.export import export
from gandalf.data.formats import TableOptions
from gandalf.data.load import bundled, load
from gandalf.errors import DataError


def test_bundled_set():
    found = load("man")
    assert (len(found.train), len(found.test), found.train.num_labels) == (9599, 3207, 8808)
    assert found.name == "LF-ManSeeAlso-9K" and found.layout == "raw"
    assert found.train.targets.dtype == np.float32
    assert found.train.targets.has_canonical_format and found.test.targets.has_canonical_format
    assert set(found.train.targets.data.tolist()) == {1.0}
    assert found.train.exclude.nnz == 5425 and found.test.exclude.nnz == 6711
    assert found.train.texts[0].startswith("2ndscore - find") and found.train.ids[0] == "2ndscore.1"
    assert found.train.label_texts is found.test.label_texts


def test_bundled_set_equals_a_plain_reader():
    folder, found = bundled()["man"], load("man").test
    with gzip.open(folder / "tst.json.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    assert [record["uid"] for record in records] == found.ids
    for row, record in enumerate(records):
        entries = slice(found.targets.indptr[row], found.targets.indptr[row + 1])
        assert found.targets.indices[entries].tolist() == sorted(record["target_ind"])
    lines = (folder / "filter_labels_test.txt").read_text().splitlines()
    pairs = [tuple(map(int, line.split())) for line in lines]
    assert set(zip(*found.exclude.nonzero(), strict=True)) == set(pairs)


@pytest.mark.parametrize("name", ["LF-WebSeeAlsoTitles-6K", "LF-WordNetRelated-64K"])
def test_larger_real_sets(name, shared_data):
    found = load(shared_data / name)
    facts = json.loads((shared_data / name / "stats.json").read_text())
    assert found.name == name
    assert len(found.train) == facts["N_train"] and len(found.test) == facts["N_test"]
    assert found.train.num_labels == facts["L"]
    assert {p.severity for p in found.findings} <= {"note"}


def test_a_bundled_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "man").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("man").name == "LF-ManSeeAlso-9K"
    with pytest.raises(DataError, match="the folder is empty"):
        load("./man")


def test_an_unknown_source_lists_what_is_bundled():
    with pytest.raises(DataError, match=r"no file or folder 'nowhere'.*; bundled are: man"):
        load("nowhere")


def test_a_file_of_unknown_kind(tmp_path):
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(DataError, match=r"a\.pdf: .*no layout that can be read"):
        load(tmp_path / "a.pdf")


# ---- tables

EXPECTED = [[1, 1, 0], [0, 0, 0], [0, 1, 1]]
TEXTS = ["one, two", 'said "no"', "नमस्ते दुनिया"]
NAMES = ["red wine", "blue", "grün"]


def check(found, texts=TEXTS, names=NAMES, expected=EXPECTED):
    assert found.layout == "table"
    assert found.train.texts == texts and found.train.label_texts == names
    assert found.train.targets.toarray().tolist() == expected


TABLES = {
    "semicolons.csv": 'text,labels\n"one, two",red wine;blue\n"said ""no""",\nनमस्ते दुनिया,blue; grün;\n',
    "bars.csv": 'Title,Tags\n"one, two",red wine|blue\n"said ""no""",\nनमस्ते दुनिया,blue|grün\n',
    "commas.csv": 'query,categories\n"one, two","red wine,blue"\n"said ""no""",\nनमस्ते दुनिया,"blue,grün"\n',
    "python.csv": """labels,text\n"['red wine', 'blue']","one, two"\n[],"said \""no\"""\n"""
    """"['blue','grün']",नमस्ते दुनिया\n""",
    "european.csv": 'text;labels\none, two;red wine|blue\n"said ""no""";\nनमस्ते दुनिया;blue|grün\n',
    "breaks.csv": '\ufefftext,labels\r\n"one,\ntwo",red wine;blue\r\n\r\n"said ""no""",\r\n'
    "नमस्ते दुनिया,blue;grün",
    "plain.tsv": 'text\tlabels\none, two\tred wine;blue\nsaid "no"\t\nनमस्ते दुनिया\tblue;grün\n',
    "quoted.tsv": 'text\tlabels\n"one, two"\tred wine;blue\n"said ""no"""\t\nनमस्ते दुनिया\tblue;grün\n',
    "lists.jsonl": '{"text": "one, two", "labels": ["red wine", "blue"]}\n{"text": "said \\"no\\""}\n'
    '{"labels": ["blue", "gru\\u0308n"], "text": "नमस्ते दुनिया"}\n',
    "names.ndjson": '{"name": "one, two", "label": "red wine;blue"}\n'
    '{"name": "said \\"no\\"", "label": null}\n{"name": "नमस्ते दुनिया", "label": "blue;grün"}\n',
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_one_table(name, suffix, tmp_path):
    path = tmp_path / (name + suffix)
    content = TABLES[name].encode()
    path.write_bytes(gzip.compress(content) if suffix else content)
    found = load(path)
    check(found)
    assert found.name == Path(name).stem and found.test is None
    check(load(tmp_path))  # a folder with nothing but that file


def test_parquet(tmp_path):
    lists = [["red wine", "blue"], None, ["blue", "grün"]]
    path = tmp_path / "set.parquet"
    parquet.write_table(pyarrow.table({"text": TEXTS, "labels": lists}), path)
    check(load(path))
    weights = [[3.0, 1.5], None, [1.0, 3.0]]
    with_weights = pyarrow.table({"text": TEXTS, "labels": lists, "clicks": weights})
    parquet.write_table(with_weights, path)
    third = float(np.float32(1) / np.float32(3))
    check(load(path), expected=[[1, 0.5, 0], [0, 0, 0], [0, third, 1]])


def test_train_test_and_labels(tmp_path):
    (tmp_path / "train.csv").write_text("id,text,labels\np1,a,7;9\n")
    (tmp_path / "test.jsonl").write_text('{"text": "b", "labels": [9, 8.0]}\n')
    (tmp_path / "labels.tsv").write_text("id\ttext\n7\tseven\n8\teight\n9\tnine\n10\tten\n")
    (tmp_path / "filter_labels_test.txt").write_text("0 3\n")
    found = load(tmp_path)
    check(found, ["a"], ["seven", "eight", "nine", "ten"], [[1, 0, 1, 0]])
    assert found.train.ids == ["p1"] and found.train.label_ids == ["7", "8", "9", "10"]
    assert found.test.targets.toarray().tolist() == [[0, 1, 1, 0]] and found.test.ids is None
    assert found.test.exclude.toarray().tolist() == [[False, False, False, True]]


def test_label_texts_one_a_line_are_numbered_from_0_or_named(tmp_path):
    (tmp_path / "points.csv").write_text("text,labels\na,0;2\nb,nine\n")
    (tmp_path / "names.txt").write_text("seven\neight\nnine\n")
    options = TableOptions(labels=tmp_path / "names.txt")
    found = load(tmp_path / "points.csv", options=options)
    check(found, ["a", "b"], ["seven", "eight", "nine"], [[1, 0, 1], [0, 0, 1]])
    assert found.train.label_ids is None


def test_labels_new_in_test_are_numbered_after_those_of_train(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,y;x\n")
    (tmp_path / "b.csv").write_text("text,labels\nb,z;x\n")
    found = load(tmp_path / "a.csv", options=TableOptions(test=tmp_path / "b.csv"))
    assert found.train.label_texts == found.test.label_texts == ["y", "x", "z"]
    assert found.train.targets.toarray().tolist() == [[1, 1, 0]]
    assert found.test.targets.toarray().tolist() == [[0, 1, 1]]


def test_columns_and_separator_can_be_named(tmp_path):
    (tmp_path / "train.csv").write_text("text,Words,kinds,n\nno,a b,x y,1 3\nno,c,x,2\n")
    options = TableOptions(text_column="words", label_column="kinds", weight_column="n", separator=" ")
    third = [float(np.float32(value) / np.float32(3)) for value in (1, 2)]
    check(load(tmp_path, options=options), ["a b", "c"], ["x", "y"], [[third[0], 1], [third[1], 0]])


def test_a_separator_is_not_white_space_unless_given(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,red wine\n")
    check(load(tmp_path / "a.csv"), ["a"], ["red wine"], [[1]])


def test_lists_to_train_on_and_separators_in_the_test_file(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a", "labels": ["x", "y"]}\n')
    (tmp_path / "test.csv").write_text("text,labels\nb,y;x\n")
    found = load(tmp_path)
    check(found, ["a"], ["x", "y"], [[1, 1]])
    assert found.test.targets.toarray().tolist() == [[1, 1]]


def test_a_record_of_an_augmentation_is_no_table(tmp_path):
    (tmp_path / "gandalf.json").write_text('{"data": "x", "points": 1, "format": "raw"}\n')
    (tmp_path / "label_frequencies.txt").write_text("1\n")
    with pytest.raises(DataError, match=r"no layout that can be read: it holds gandalf\.json, label_freq"):
        load(tmp_path)


def test_one_table_to_train_on_beside_tst(tmp_path):
    (tmp_path / "tickets.csv").write_text("text,labels\na,x\n")
    (tmp_path / "tst.csv").write_text("text,labels\nb,x\n")
    found = load(tmp_path)
    assert found.train.texts == ["a"] and found.test.texts == ["b"]


def test_weights_in_the_label_column(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,x::0.5;std::vector;y::1\n")
    check(load(tmp_path / "a.csv"), ["a"], ["x", "std::vector", "y"], [[0.5, 1, 1]])


def test_naming_columns_makes_a_table_of_a_folder_or_file_that_has_one(tmp_path):
    (tmp_path / "trn.json").write_text('{"title": "a", "content": "long", "target_ind": [0]}\n')
    (tmp_path / "lbl.json").write_text('{"title": "x"}\n')
    assert load(tmp_path).layout == "raw"
    options = TableOptions(text_column="content", labels=tmp_path / "lbl.json")
    check(load(tmp_path / "trn.json", options=options), ["long"], ["x"], [[1]])
    (tmp_path / "train.csv").write_text("text,content,labels\na,long,0\n")
    assert load(tmp_path).layout == "raw"
    check(load(tmp_path, options=TableOptions(text_column="content")), ["long"], ["x"], [[1]])


@pytest.mark.parametrize("option", ["text_column", "label_column", "weight_column", "separator"])
def test_naming_columns_makes_no_table_of_another_layout(option):
    flag = re.escape(f"{option}=...")
    with pytest.raises(DataError, match=f"^man: .*raw layout.* {flag} .* leave {flag}"):
        load("man", options=TableOptions(**{option: ";"}))


def test_labels_that_are_only_numbers_are_no_label_texts(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\na,3;5\n")
    (warning,) = [p for p in load(tmp_path / "a.csv").findings if p.severity == "warning"]
    assert warning.kind == "missing-label-text" and "give a file of label texts with labels=..." in str(
        warning
    )


def test_a_name_known_as_it_stands_has_no_weight(tmp_path):
    (tmp_path / "train.csv").write_text("text,labels\na,v::2;v::3\n")
    (tmp_path / "labels.csv").write_text("id,text\nv::2,second\nv,first\n")
    third = float(np.float32(1) / np.float32(3))
    check(load(tmp_path), ["a"], ["second", "first"], [[third, 1]])


def test_a_table_may_begin_with_an_unnamed_column(tmp_path):
    (tmp_path / "train.tsv").write_text("\ttext\tlabels\n0\ta\tx\n")
    check(load(tmp_path), ["a"], ["x"], [[1]])


def test_options_that_the_layout_cannot_use_are_not_ignored(tmp_path):
    (tmp_path / "labels.txt").touch()
    with pytest.raises(DataError, match="raw layout, and labels="):
        load("man", options=TableOptions(labels=tmp_path / "labels.txt"))


def test_folders_written_for_a_trainer_say_what_they_are(tmp_path):
    made = load("man")
    record = {"data": "LF-ManSeeAlso-9K", "points": 9599, "format": "libmultilabel"}
    origin = (record, made.train.label_frequencies)
    export(made, tmp_path / "out", "libmultilabel", origin=origin)
    with pytest.raises(DataError, match=r"format libmultilabel.* cannot be read back; give the original"):
        load(tmp_path / "out")
