"""Guesses about tables are made only where the cells bear them out, and odd cells are not misread."""

from __future__ import annotations

import csv
import gzip
import re

import numpy as np
import pytest
from command_line import run

from gandalf.data.formats import TableOptions
from gandalf.data.formats.label_cells import decide_separator
from gandalf.data.load import load
from gandalf.errors import DataError, Findings


def table(folder, content, name="t.csv"):
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def targets(path, **options):
    return load(path, options=TableOptions(**options)).train.targets.toarray().tolist()


def notes(path, kind, **options):
    found = load(path, options=TableOptions(**options)).findings
    return [problem for problem in found if problem.kind == kind]


# ---- weights


def test_a_score_of_the_point_is_no_weight_of_its_labels(tmp_path):
    dump = table(tmp_path, "Title,Tags,Score\nred hat,linux|rpm,17\nblue,linux,0\n")
    assert targets(dump) == [[1, 1], [1, 0]]
    assert notes(dump, "guessed-weights") == [] and notes(dump, "zero-weight") == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,x,3\nb,x;y,5\n", "t.csv:3: column 'clicks' is not read .* has 1 entry here for 2 labels"),
        ("a,x,many\nb,y,5\n", "t.csv:2: column 'clicks' is not read .* has 1 entry here for 1 label,"),
        ("a,x,3\nb,y,\n", "t.csv:3: column 'clicks' is not read .* has 0 entries here for 1 label,"),
        ("a,x,3\nb,,5\n", "t.csv:3: column 'clicks' is not read .* has 1 entry here for 0 labels,"),
    ],
)
def test_a_column_that_has_only_the_name_of_weights_is_left_alone(rows, said, tmp_path):
    path = table(tmp_path, f"text,labels,clicks\n{rows}")
    assert set(np.ravel(targets(path))) == {0.0, 1.0}
    (note,) = notes(path, "guessed-weights")
    assert note.severity == "note" and "weight_column=" in str(note)
    assert re.search(said, str(note))
    with pytest.raises(DataError, match=r"t\.csv:[23]: "):  # who names a column means it
        load(path, options=TableOptions(weight_column="clicks"))


@pytest.mark.parametrize("rows", ["a,x,2\nb,y,4\n", "a,x;y,2;4\n", 'a,x;y,"[2, 4]"\n', "a,x,2\nb,y,4\nc,,\n"])
def test_a_column_that_fits_is_taken_for_weights(rows, tmp_path):
    path = table(tmp_path, f"text,labels,clicks\n{rows}")
    assert set(np.ravel(targets(path))) - {0.0} == {0.5, 1.0}
    (note,) = notes(path, "guessed-weights")
    assert "column 'clicks' is read as the weights" in str(note)
    assert notes(path, "guessed-weights", weight_column="clicks") == []


def test_lists_of_weights_are_weights_and_a_row_without_is_an_error(tmp_path):
    path = table(tmp_path, "text,labels,scores\na,x,1\nb,x;y,1\nc,x;y,1;0.5\n")
    with pytest.raises(DataError, match=r"t\.csv:3: the row has 2 labels, but 1 weight; give one weight"):
        load(path)


def test_what_holds_for_the_training_file_holds_for_the_test_file(tmp_path):
    table(tmp_path, "text,labels,clicks\na,x;y,9\n", "train.csv")
    table(tmp_path, "text,labels,clicks\nb,x,9\n", "test.csv")
    found = load(tmp_path)
    assert found.test.targets.toarray().tolist() == [[1, 0]] and found.train.targets.data.tolist() == [1, 1]
    table(tmp_path, "text,labels,clicks\na,x;y,9;3\n", "train.csv")
    table(tmp_path, "text,labels,clicks\nb,x;y,9\n", "test.csv")
    with pytest.raises(DataError, match=r"test\.csv:2: the row has 2 labels, but 1 weight"):
        load(tmp_path)


def test_a_label_left_out_for_a_weight_of_0_is_noted_once(tmp_path):
    path = table(tmp_path, "text,labels,scores\na,x;y,1;0\nb,x;y,0;0\nc,y::0,1\n")
    assert targets(path) == [[1, 0], [0, 0], [0, 1]]
    (note,) = notes(path, "zero-weight")
    assert "t.csv:2: 3 labels are left out" in str(note)
    assert note.severity == "note"
    (note,) = notes(table(tmp_path, "text,labels\na,x::0;y\n"), "zero-weight")
    assert "1 label is left out" in str(note)


def test_a_weight_that_no_float_can_hold_is_an_error(tmp_path):
    path = table(tmp_path, f'{{"text": "a", "labels": ["x"], "scores": [1{"0" * 400}]}}\n', "t.jsonl")
    with pytest.raises(DataError, match="the value of label 0 'x' is inf"):
        load(path)
    with pytest.raises(DataError, match="the weight 'True' is not a number"):
        path = table(tmp_path, '{"text": "a", "labels": ["x"], "n": [true]}\n', "t.jsonl")
        load(path, options=TableOptions(weight_column="n"))


# ---- separators


@pytest.mark.parametrize(
    ("cells", "mark"),
    [
        (["x,y", "y,z", "q;r"], ","),
        (["x,y", "q;r"], ";"),
        (["x,y", "q|r"], "|"),
        (["x;y", "q|r"], ";"),
        (["a,b|c", "d|e"], "|"),
        (["米饭；储存", "汤"], "；"),
        (["['a;b', 'c']", "x,y"], ","),
        (["x y", None, 3, ["a;b"]], None),
        ([], None),
    ],
)
def test_the_separator_is_what_most_cells_hold(cells, mark):
    found = decide_separator(cells)
    assert (None if found is None else found.separator) == mark


SHOPS = ["Arts, Crafts & Sewing", "Patio, Lawn & Garden", "Clothing, Shoes & Jewelry", "Toys"]
TAGS = ["python, pandas", "python, numpy", "sql, pandas", "java"]


@pytest.mark.parametrize(
    ("cells", "known", "mark"),
    [
        (SHOPS, (), "none"),
        (SHOPS * 50, (), "none"),
        (TAGS, (), ","),
        (["x, y"], (), "none"),  # as in a sentence, and nothing else to go by
        (["x,y"], (), ","),
        (["x,y", "y", "z,w"] * 10, (), ","),
        ([f"New York {n},NY{n}" for n in range(9)] * 9, (), "none"),  # again and again
        (
            [*SHOPS, "Toys;Arts, Crafts & Sewing"],
            (),
            ";",
        ),  # a comma that separates nothing leaves it to others
        ([f"{a}|{b}" for a in SHOPS for b in SHOPS if a != b], (), "|"),  # names with commas, several a cell
        ([*SHOPS, *(f"{a}|{b}" for a in SHOPS for b in SHOPS if a != b)] * 9, (), "|"),
        ([*[f"{a}, {b}" for a in "xyz" for b in "uvw"] * 3, "x|y, u"], (), ","),  # a slip
        (['"Arts, Crafts & Sewing",Toys', "Books"], (), ","),
        (['"Arts, Crafts & Sewing"'], (), None),
        (["Arts &amp; Crafts", "Toys &amp; Games"], (), None),
        (["x, y"], {"x", "y"}, ","),
        (TAGS, set(TAGS), "none"),
        (["a;b", "c;d"], {"a;b", "c;d", "a"}, "none"),
        (["a;b,c", "d;e,f"], {"a;b", "c", "d;e", "f"}, ","),
        (["a::0.5;b::1"], {"a", "b"}, ";"),
        (["x,y"], {"z"}, ","),  # names that explain no cell are no evidence
    ],
)
def test_a_comma_may_be_part_of_a_name(cells, known, mark):
    found = decide_separator(cells, known)
    assert (None if found is None else found.separator) == mark


def test_names_with_commas_stay_whole_and_it_is_said(tmp_path):
    shop = table(tmp_path, "text,category\n" + "".join(f't{n},"{name}"\n' for n, name in enumerate(SHOPS)))
    assert load(shop).train.label_texts == SHOPS
    (note,) = notes(shop, "guessed-separator")
    assert "one label each: 'Arts, Crafts & Sewing' is 1 label (0% of the parts" in str(note)
    assert str(note).endswith("if commas separate labels, give separator=','")
    assert len(load(shop, separator=",").train.label_texts) == 7
    for command in ("check", "stats"):
        result = run(command, shop)
        said = result.stdout + result.stderr
        assert "'Arts, Crafts & Sewing' is 1 label" in said and "give --separator ," in said


def test_no_separator_can_be_asked_for(tmp_path):
    path = table(tmp_path, "text,labels\na,x;y\nb,x|z\n")
    assert load(path, separator="none").train.label_texts == ["x;y", "x|z"]
    assert load(path, separator="none").findings == ()
    assert run("stats", path, "--separator", "none", "--json").exit_code == 0
    lists = table(tmp_path, "text,labels\na,\"['x', 'y']\"\n")
    assert load(lists, separator="none").train.label_texts == ["x", "y"]  # a list is a list


def test_a_name_in_quotes_may_hold_the_separator(tmp_path):
    rows = 'text\tlabels\na\t"Arts, Crafts",Toys\nb\tToys,17" screens\n'
    assert load(table(tmp_path, rows, "t.tsv")).train.label_texts == ["Arts, Crafts", "Toys", '17" screens']


def test_a_name_in_quotes_may_hold_a_full_width_semicolon(tmp_path):
    path = table(tmp_path, 'text\tlabels\na\t"x；y"；z\nb\tx；z\n', "t.tsv")
    assert load(path).train.label_texts == ["x；y", "z", "x"]


def test_a_label_that_stands_twice_is_named(tmp_path):
    (problem,) = notes(table(tmp_path, "text,labels\na,x;y\nb,y;x;y\n"), "duplicate-label")
    assert str(problem).startswith(f"{tmp_path / 't.csv'}:3: label 1 'y' stands twice in the row; the larger")


def test_a_label_with_a_bad_weight_is_named(tmp_path):
    with pytest.raises(DataError, match=r"t\.csv:2: the value of label 1 'y' is -3, and targets cannot be"):
        load(table(tmp_path, "text,labels,clicks\na,x;y,2;-3\n"))


def test_a_name_of_the_label_file_may_hold_the_separator(tmp_path):
    table(tmp_path, 'text,labels\na,"Toys,Books"\nb,"Arts, Crafts"\nc,"Books,Games"\n', "train.csv")
    table(tmp_path, "Toys\nBooks\nGames\nArts, Crafts\n", "labels.txt")
    expected = [[1, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0]]
    assert load(tmp_path).train.targets.toarray().tolist() == expected
    (note,) = notes(tmp_path, "guessed-separator")
    assert "separated by ',': 'Toys,Books' is 2 labels (labels of such names exist)" in str(note)


def test_an_empty_separator_is_one_sentence(tmp_path):
    result = run("stats", table(tmp_path, "text,labels\na,b\n"), "--separator", "")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "error: --separator is empty; give a character, or leave it out to guess the separator\n"
    )


# ---- files


def test_cells_may_be_long_and_the_process_keeps_its_own_limit(tmp_path):
    before = csv.field_size_limit()
    long = "word " * 50_000 + "end"
    path = table(tmp_path, f"text,labels\n{long},x\nb,{'y' * 200_000}\n")
    found = load(path)
    assert found.train.texts == [long, "b"] and found.train.label_texts == ["x", "y" * 200_000]
    assert csv.field_size_limit() == before


def test_a_quote_that_is_never_closed_does_not_take_all_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("gandalf.data.formats.table_files._CELL_CHARACTERS", 1000)
    path = table(tmp_path, 'text,labels\na,x\n"b,x\n' + "c,x\n" * 1000)
    with pytest.raises(
        DataError, match=r"t\.csv:3: the line is not valid CSV \(field larger than field limit \(1000\)\)"
    ):
        load(path)


def test_two_columns_of_one_name(tmp_path):
    path = table(tmp_path, "text,labels,labels\na,x,y\n")
    with pytest.raises(DataError, match=r"t\.csv: there are 2 columns called 'labels'; give each") as caught:
        load(path)
    assert caught.value.problem.kind == "duplicate-column"
    assert load(table(tmp_path, "text,labels,n,n\na,x,1,2\n")).train.texts == ["a"]
    assert load(table(tmp_path, "Text,labels,text\na,x,b\n")).train.texts == ["b"], "as it is written"
    assert load(table(tmp_path, "TEXT,labels,Text\na,x,b\n")).train.texts == ["a"], "else the first"


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        (
            "--test",
            "notes.txt",
            "notes.txt: has a suffix that is not of a table; give a file whose name ends in .csv",
        ),
        ("--test", "", "is a folder, and --test names a file"),
        ("--labels", "", "is a folder, and --labels names a file"),
        ("--test", "nothing.csv", "nothing.csv: does not exist, and --test names a file"),
        ("--labels", "nothing.txt", "nothing.txt: does not exist, and --labels names a file"),
    ],
)
@pytest.mark.parametrize("command", ["stats", "check"])
def test_a_file_on_the_command_line_that_is_none(command, option, name, said, tmp_path):
    path = table(tmp_path, "text,labels\na,b\n")
    table(tmp_path, "a\n", "notes.txt")
    result = run(command, path, option, tmp_path / name)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and said in result.stderr and result.stderr.count("\n") == 1


# ---- Parquet


@pytest.fixture
def parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    def write(**columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet", use_dictionary=False)
        return tmp_path / "t.parquet"

    return write


def test_parquet_with_damaged_pages(parquet):
    path = parquet(text=[f"some text {n}" for n in range(2000)], labels=["x"] * 2000)
    content = path.read_bytes()
    path.write_bytes(content[:1000] + b"\xff" * 1000 + content[2000:])
    with pytest.raises(DataError, match=r"t\.parquet: cannot be read as Parquet; download or copy") as caught:
        load(path)
    assert caught.value.problem.kind == "truncated-file"
    result = run("check", path)
    assert result.exit_code == 1 and "[truncated-file]" in result.stdout


def test_parquet_with_bytes_for_text(parquet):
    found = load(parquet(text=["é".encode()], labels=[["ü".encode(), b"y"]], picture=[b"\xff\xd8"]))
    assert found.train.texts == ["é"] and found.train.label_texts == ["ü", "y"]
    assert load(parquet(text=[b"a"], labels=[b"x;y"])).train.label_texts == ["x", "y"]
    with pytest.raises(DataError, match=r"t\.parquet:2: the text is bytes that are not UTF-8") as caught:
        load(parquet(text=[b"a", b"\xff"], labels=["x", "y"]))
    assert caught.value.problem.kind == "broken-utf8"
    with pytest.raises(DataError, match=r"t\.parquet:1: .* is not a label"):
        load(parquet(text=["a"], labels=[[b"\xff"]]))
    path = parquet(text=[b"a", b"\xff"], labels=["x", "y"])
    assert len(load(path, findings=Findings(strict=False)).train) == 2


@pytest.mark.parametrize("name", ["t.parquet.gz", "packed.parquet"])
def test_parquet_that_is_compressed_as_a_whole(name, parquet, tmp_path):
    packed = tmp_path / name
    packed.write_bytes(gzip.compress(parquet(text=["a"], labels=["x"]).read_bytes()))
    with pytest.raises(DataError, match=rf"{name}: is compressed twice.*; unpack it"):
        load(packed)
