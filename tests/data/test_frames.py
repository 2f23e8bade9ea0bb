"""Everything that `load` takes gives one and the same data set."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from command_line import run

import gandalf
from gandalf.data.check import check
from gandalf.data.formats import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError, Findings, Problem, argument

TEXTS = ["one, two", 'said "no"', "नमस्ते दुनिया", "four"]
LABELS = [["red wine", "blue"], [], ["blue", "grün"], ["grün"]]
SCORES = [[1.0, 0.5], [], [0.25, 1.0], [1.0]]
IDS = ["a", "b", "c", "d"]
TEST_TEXTS, TEST_LABELS, TEST_SCORES, TEST_IDS = ["five"], [["blue"]], [[1.0]], ["e"]


def columns(test=False):
    if test:
        return {"id": TEST_IDS, "text": TEST_TEXTS, "labels": TEST_LABELS, "scores": TEST_SCORES}
    return {"id": IDS, "text": TEXTS, "labels": LABELS, "scores": SCORES}


def dicts(test=False):
    found = columns(test)
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def expected():
    targets = [[1, 0.5, 0], [0, 0, 0], [0, 0.25, 1], [0, 0, 1]]
    return gandalf.Dataset(
        np.array(targets, dtype=np.float32), TEXTS, ["red wine", "blue", "grün"], None, IDS
    )


def pandas_frame(test=False):
    return pytest.importorskip("pandas").DataFrame(columns(test))


def pandas_of_arrow(test=False):
    pandas = pytest.importorskip("pandas")
    return arrow_table(test).to_pandas(types_mapper=pandas.ArrowDtype)


def pandas_of_arrays(test=False):
    return arrow_table(test).to_pandas()  # lists become NumPy arrays


def polars_frame(test=False):
    return pytest.importorskip("polars").DataFrame(columns(test))


def arrow_table(test=False):
    return pytest.importorskip("pyarrow").table(columns(test))


class OnlyAStream:
    """What knows nothing but Arrow's C stream interface, as tables of many libraries do."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def hub_dataset(test=False):
    return pytest.importorskip("datasets").Dataset.from_dict(columns(test))


FRAMES = {
    "dicts": dicts,
    "pandas": pandas_frame,
    "pandas-arrow": pandas_of_arrow,
    "pandas-arrays": pandas_of_arrays,
    "polars": polars_frame,
    "pyarrow": arrow_table,
    "stream": lambda test=False: OnlyAStream(arrow_table(test)),
    "datasets": hub_dataset,
    "iterable": lambda test=False: hub_dataset(test).to_iterable_dataset(),
}


def csv_file(path, rows, mark=","):
    with open(path, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=mark)
        table.writerow(rows[0])
        table.writerows([json.dumps(v) if isinstance(v, list) else v for v in row.values()] for row in rows)


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def parquet_file(path, rows):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


FILES = {
    ".csv": csv_file,
    ".tsv": lambda path, rows: csv_file(path, rows, "\t"),
    ".jsonl": json_lines,
    ".parquet": parquet_file,
}


@pytest.mark.parametrize("kind", [*FRAMES, *FILES])
def test_every_form_gives_the_same_data_set(kind, tmp_path):
    if kind in FRAMES:
        train, test = FRAMES[kind](), FRAMES[kind](test=True)
        both = load({"train": train, "test": test})
    else:
        train, test = tmp_path / f"train{kind}", tmp_path / f"test{kind}"
        FILES[kind](train, dicts())
        FILES[kind](test, dicts(test=True))
        both = load(tmp_path)
    for found in (load(train).train, load(train, test=test).train, both.train):
        assert found == expected()
    for found in (load(train, test=test).test, both.test):
        assert (found.texts, found.ids, found.targets.toarray().tolist()) == (["five"], ["e"], [[0, 1, 0]])
    assert both.layout == "table"


def test_names_of_columns_and_label_texts_are_keywords(tmp_path):
    rows = [
        {"subject": "printer", "kind": "hw|now", "n": [2, 1]},
        {"subject": "reset", "kind": "acc", "n": [2]},
    ]
    texts = {"hw": "broken hardware", "acc": "user accounts", "now": "urgent"}
    asked = {"text_column": "subject", "label_column": "kind", "weight_column": "n", "separator": "|"}
    (tmp_path / "l.csv").write_text("id,text\n" + "".join(f"{key},{text}\n" for key, text in texts.items()))
    forms = [texts, str(tmp_path / "l.csv"), [{"id": key, "text": text} for key, text in texts.items()]]
    for labels in forms:
        found = load(rows, labels=labels, **asked).train
        assert found.label_texts == list(texts.values()) and found.label_ids == list(texts)
        assert found.targets.toarray().tolist() == [[1, 0, 0.5], [0, 1, 0]]
    assert load(rows, options=TableOptions(**asked, labels=texts)).train == found
    by_number = load([{"text": "x", "label": 1}], labels=["a", "b"]).train
    assert by_number.label_texts == ["a", "b"] and by_number.targets.toarray().tolist() == [[0, 1]]


@pytest.mark.parametrize("labels", [[1, 0], ["b", "a"], [1.0, 0.0]])
def test_a_column_with_one_label_a_row(labels):
    pandas = pytest.importorskip("pandas")
    made = {"text": ["x", "y"], "label": labels}
    frames = [pandas.DataFrame(made), pytest.importorskip("polars").DataFrame(made), FRAMES["pyarrow"]()]
    frames[2] = pytest.importorskip("pyarrow").table(made)
    if isinstance(labels[0], str):
        frames.append(pandas.DataFrame(made).astype({"label": "category"}))
    for frame in frames:
        found = load(frame).train
        assert found.label_texts == [str(int(v)) if not isinstance(v, str) else v for v in labels]
        assert found.targets.toarray().tolist() == [[1, 0], [0, 1]]


def test_missing_cells_of_pandas():
    pandas = pytest.importorskip("pandas")
    missing = [None, float("nan"), pandas.NA, pandas.NaT]
    frame = pandas.DataFrame({"text": ["a", *missing], "label": [*missing, 3]}, dtype=object)
    found = load(frame).train
    assert found.texts == ["a", "", "", "", ""] and found.label_texts == ["3"]
    assert np.diff(found.targets.indptr).tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("several", [False, True])
def test_classes_of_the_hub_have_names(several):
    datasets = pytest.importorskip("datasets")
    kind = datasets.ClassLabel(names=["neg", "pos"])
    labels = [[1], [0, 1], []] if several else [1, 0, -1]
    features = datasets.Features({"text": datasets.Value("string"), "label": [kind] if several else kind})
    data = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": labels}, features=features)
    found = load(datasets.DatasetDict(train=data, test=data, validation=data))
    assert found.train.label_texts == ["pos", "neg"]
    assert found.train.targets.toarray().tolist() == [[1, 0], [1 if several else 0, 1], [0, 0]]
    assert found.test.targets.toarray().tolist() == found.train.targets.toarray().tolist()
    assert ["validation" in str(note) for note in found.findings if note.kind == "unread-split"] == [True]


BAD = [
    (17, {}, "a int cannot be read as a table; give a folder, a file, a DataFrame"),
    ([], {}, "<list>: the list is empty; give a dict for each point"),
    (["a"], {}, "a list cannot be read as a table"),
    ({"a": [{"text": "x"}]}, {}, "the dict has no table 'train', but a; name a table 'train'"),
    ([{"words": "a", "label": "b"}], {}, "no text column .* give it with text_column=...$"),
    (
        [{"text": "a", "label": "b"}],
        {"label_column": "no"},
        "no column 'no'.* give it with label_column=...$",
    ),
    ([{"text": "a", "label": "b"}], {"separator": ""}, "^separator=... is empty"),
    (
        [{"text": "a", "label": "b"}],
        {"columns": "a"},
        "no option 'columns' of a table; there are text_",
    ),
    ([{"text": "a", "label": {"b": 1}}], {}, "<list>, row 0: '{'b': 1}' is not a label"),
    ([{"text": "a", "label": "b"}], {"labels": ["c"]}, "row 0: label 'b' is not in <labels>; add it there"),
    ([{"text": "a", "label": "b"}], {"labels": 5}, "a int cannot be read"),
    ([{"text": "a", "label": "b"}], {"test": "nothing.csv"}, "does not exist, and test=... names a file"),
    (gandalf.Splits(expected()), {}, "a Splits is loaded already"),
]


@pytest.mark.parametrize(("given", "asked", "said"), BAD)
def test_what_cannot_be_read_is_one_sentence(given, asked, said):
    with pytest.raises(DataError, match=said) as caught:
        load(given, **asked)
    assert "--" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_dataframe_is_checked_as_a_file_is():
    report = check([{"text": "", "labels": "a|b"}, {"text": "b", "labels": "a"}])
    kinds = {problem.kind for problem in report.findings}
    assert {"empty-text", "guessed-separator"} <= kinds
    assert not report.passed and "\u2063" not in json.dumps(report.as_dict(), ensure_ascii=False)


def test_the_command_line_speaks_of_flags_and_python_of_arguments(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("words,labels\na,b\n")
    with pytest.raises(DataError, match=r"give it with text_column=\.\.\.;"):
        load(path)
    result = run("stats", path)
    assert result.exit_code == 2 and "give it with --text-column;" in result.stderr
    path.write_text("text,labels\na,b;c\n")
    result = run("check", path, "--json")
    assert "--separator" in result.stdout and "separator=" not in result.stdout


def test_an_argument_is_rendered_by_the_caller():
    said = f"use {argument('batch', 16)}, {argument('resume', True)} or {argument('harden', 'any')}"
    problem = Problem("x", "note", said, f"or {argument('label_column')}")
    assert str(problem) == "use batch=16, resume=True or harden='any'; or label_column=..."
    assert str(problem.with_flags()) == "use --batch 16, --resume or --harden any; or --label-column"
    with pytest.raises(DataError, match=r"^use batch=16, "):
        Findings().error("x", said)


def test_train_takes_what_load_takes():
    rows = [{"subject": f"text {n % 7} of {n % 3}", "kind": f"label {n % 3}"} for n in range(60)]
    asked = {"text_column": "subject", "label_column": "kind"}
    settings = {"device": "cpu", "steps": 2, "targets": "self"}
    found = gandalf.train(rows, "astec", **asked, **settings).model
    assert list(found.label_texts) == ["label 0", "label 1", "label 2"]
    with pytest.raises(DataError, match=r"^text_column=\.\.\. says how data is read, and a Splits is read"):
        gandalf.train(load(rows, **asked), "astec", text_column="subject")
    with pytest.raises(DataError, match=r"<list>: there is no text column .* with text_column=\.\.\.$"):
        gandalf.train(rows, "astec", **settings)
