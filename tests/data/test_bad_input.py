"""Each kind of bad input has its sentence: which file, which line, what is wrong, what to do."""

from __future__ import annotations

import gzip

import pytest
from small_files import LABELS, MANY, POINT, folder_of, raw, renee, single

from gandalf.data.load import load
from gandalf.errors import DataError, Findings

# kind -> files, where it is, and words of the sentence that follows
ERRORS = {
    "index-out-of-range": [
        (
            raw('{"title": "t", "target_ind": [0]}\n{"title": "u", "target_ind": [2]}\n'),
            "trn.json:2",
            "label 2",
        ),
        (raw('{"title": "t", "target_ind": [-1]}\n'), "trn.json:1", "label -1 is out of range: there are 2"),
        (raw(tst='{"title": "t", "target_ind": [9999999999]}\n'), "tst.json:1", "label 9999999999"),
        (renee("3 2\n0:1\n\n2:1\n"), "trn_X_Y.txt:4", "there are 2 labels, counted from 0"),
        (renee("3 2\n0:1\nx\n\n99999999999999999999:1\n"), "trn_X_Y.txt:3", "'x' is not an index:value"),
        (single("0,2 1:1\n1 0:1\n"), "train.txt:2", "label 2"),
        (single("0,1 1:1\n1 3:1\n"), "train.txt:3", "feature 3 is out of range: there are 3 features"),
        (renee() | {"filter_labels_train.txt": "0 0\n1 2\n"}, "filter_labels_train.txt:2", "label 2"),
        (renee() | {"trn_filter_labels.txt": "3 0\n"}, "trn_filter_labels.txt:1", "row 3 is out of range"),
        ({"train.txt": "0\ta\n7\tb\n", "output-items.txt": "x\ny\n"}, "train.txt:2", "label 7"),
    ],
    "header-mismatch": [
        (renee("4 2\n0:1\n\n1:1\n"), "trn_X_Y.txt:1", "4 rows, but 3 follow; correct"),
        (renee("2 2\n0:1\n\n1:1\n"), "trn_X_Y.txt:1", "2 rows, but 3 follow; correct"),
        (renee(labels="first\n"), "Y.txt", "has 1 line, but trn_X_Y.txt needs 2; both files"),
        (renee(x="a\nb\nc\nd\n"), "trn_X.txt", "has 4 lines, but trn_X_Y.txt needs 3"),
        (
            renee(tst_X_Y="1 3\n\n", tst_X="a\n"),
            "tst_X_Y.txt:1",
            "says 3 labels, but the training file says 2",
        ),
        (renee(trn_X_Xf="2 2\n0:1\n1:1\n"), "trn_X_Xf.txt:1", "has 2 rows, but trn_X_Y.txt needs 3"),
        (single("0 1:1\n"), "train.txt:1", "2 rows, but 1 follow"),
    ],
    "missing-header": [
        (renee("0:1\n\n1:1\n"), "trn_X_Y.txt:1", "'0:1'; begin the file with a line 'rows columns'"),
        (renee(""), "trn_X_Y.txt:1", "rows and columns, but is ''"),
        (
            {"train.txt": "0,2 1:0.5\n"},
            "train.txt:1",
            "points, features and labels, but is '0,2 1:0.5'",
        ),
    ],
    "bad-number": [
        (renee("3 2\n0:1\n1:one\n\n"), "trn_X_Y.txt:3", "'1:one'"),
        (renee("3 2\n0:1\n\n1.5:1\n"), "trn_X_Y.txt:4", "'1.5:1'"),
        (single("0 1:1\nx 2:1\n"), "train.txt:3", "'x'"),
        ({"train.txt": "0\ta\n1::much\tb\n", "Y.txt": "x\ny\n"}, "train.txt:2", "'1::much' is neither"),
        (
            {"t.csv": "text,labels,scores\na,b;c,1;2\na,b,high\n"},
            "t.csv:3",
            "the weight 'high' is not a number",
        ),
    ],
    "nan": [
        (renee("3 2\n0:1\n1:nan\n\n"), "trn_X_Y.txt:3", "the value of label 1 is nan"),
        (renee("3 2\n0:1\n1:inf\n\n"), "trn_X_Y.txt:3", "the value of label 1 is inf"),
        (renee("3 2\n0:1\n1:1e99\n\n"), "trn_X_Y.txt:3", "is inf"),
        (raw('{"title": "t", "target_ind": [0], "target_rel": [NaN]}\n'), "trn.json:1", "is nan"),
        (single("0 1:nan\n1 0:1\n"), "train.txt:2", "the value of feature 1 is nan"),
    ],
    "value-out-of-range": [
        (renee("3 2\n0:1\n1:-0.5\n\n"), "trn_X_Y.txt:3", "is -0.5, and targets cannot be negative; leave"),
        (raw('{"title": "t", "target_ind": [0], "target_rel": [-1]}\n'), "trn.json:1", "is -1, and targets"),
    ],
    "bad-line": [
        (renee("3 2\n0:1\n0 1\n\n"), "trn_X_Y.txt:3", "'0' is not an index:value pair; separate"),
        (renee() | {"trn_filter_labels.txt": "0\n"}, "trn_filter_labels.txt:1", "'0' is not a pair of row"),
        (renee() | {"trn_filter_labels.txt": "0 0\n-1 0\n"}, "trn_filter_labels.txt:2", "write two whole"),
        ({"train.txt": "0\ta\nonly text\n", "Y.txt": "x\n"}, "train.txt:2", "there is no tab between"),
        ({"t.csv": "text,labels\na,b,c\n"}, "t.csv:2", "the row has 3 cells, but the header has 2; put"),
        ({"t.csv": 'text,labels\nx,y\n"a,b\n'}, "t.csv:3", "is not valid CSV"),
        ({"t.tsv": "text\tlabels\na\n"}, "t.tsv:2", "the row has 1 cell, but the header has 2"),
    ],
    "bad-json": [
        (raw(POINT + '{"title": \n'), "trn.json:2", "the line is no JSON object: '{\"title\": '; write one"),
        (raw(POINT + "\n" + POINT), "trn.json:2", "the line is empty"),
        (raw(lbl=LABELS + "[1]\n"), "lbl.json:3", "the line is no JSON object: '[1]'"),
        ({"t.jsonl": '{"text": "a", "labels": ["x"]}\nnope\n'}, "t.jsonl:2", "the line is no JSON object"),
        ({"t.json": '[{"text": "a", "labels": ["x"]}]\n'}, "t.json:1", "is one JSON array"),
    ],
    "bad-targets": [
        (raw('{"title": "t"}\n'), "trn.json:1", "target_ind is not a list; list the numbers"),
        (raw('{"title": "t", "target_ind": "0"}\n'), "trn.json:1", "target_ind is not a list"),
        (raw('{"title": "t", "target_ind": ["x"]}\n'), "trn.json:1", "target_ind or target_rel"),
        (raw('{"title": "t", "target_ind": [0.5]}\n'), "trn.json:1", "target_ind or target_rel"),
        (
            raw('{"title": "t", "target_ind": [0], "target_rel": [null]}\n'),
            "trn.json:1",
            "target_ind or target_rel",
        ),
    ],
    "length-mismatch": [
        (
            raw('{"title": "t", "target_ind": [0, 1], "target_rel": [1]}\n'),
            "trn.json:1",
            "target_ind has 2 entries, but target_rel has 1; give one value for each label",
        ),
        (
            {"t.csv": "text,labels,scores\na,b;c,1;2\na,b;c,1\n"},
            "t.csv:3",
            "has 2 labels, but 1 weight; give",
        ),
    ],
    "broken-utf8": [
        (
            renee(x=b"a\nna\xefve\nc\n"),
            "trn_X.txt:2",
            "byte 3 of the line is not UTF-8; save the file as UTF-8",
        ),
        (raw(POINT.encode() + b'{"title": "\xff", "target_ind": []}\n'), "trn.json:2", "byte 12 of the line"),
        (raw('{"title": "a\\ud83d", "target_ind": []}\n'), "trn.json:1", "half of a surrogate pair"),
    ],
    "truncated-file": [
        (raw(gzip.compress(MANY)[:-2000]), "trn.json:", "cut short or damaged; it can be read up to line"),
        (raw(gzip.compress(MANY)[:-4]), "trn.json:2001", "download or copy it again"),
        (raw(gzip.compress(MANY)[:10] + b"\xff" * 99), "trn.json:", "download or copy it again"),
        (raw(b"\x1f\x8b"), "trn.json:1", "cut short or damaged"),
        (
            {"Y.trn.npz": b"PK no zip"},
            "Y.trn.npz",
            "cannot be read as a SciPy sparse matrix (it is no zip file); write",
        ),
        ({"train.parquet": b"PAR1 but no more"}, "train.parquet", "cannot be read as Parquet; download"),
    ],
    "unknown-label": [
        (
            {"train.csv": "text,labels\na,x;z\n", "labels.csv": "id,text\nx,first\ny,second\n"},
            "train.csv:2",
            "label 'z' is not in",
        ),
        (
            {"t.jsonl": '{"text": "a", "labels": [{"name": "x"}]}\n'},
            "t.jsonl:1",
            "is not a label; list names",
        ),
    ],
    "empty-file": [
        (raw(""), "", "there are no training points"),
        ({"t.csv": "text,labels\n"}, "", "there are no training points"),
        ({"t.csv": ""}, "t.csv", "the file is empty; write a line with the names of the columns"),
        ({"t.tsv": ""}, "t.tsv", "the file is empty"),
        ({"t.jsonl": "\n"}, "t.jsonl", "no JSON object; write one"),
        (renee("3 0\n\n\n\n", labels=""), "", "there are no labels"),
    ],
    "duplicate-label-id": [
        (
            {"train.csv": "text,labels\na,x\n", "labels.csv": "id,text\nx,first\nx,second\n"},
            "labels.csv",
            "the id 'x' stands for two labels, 'first' and 'second'; give each",
        ),
    ],
    "missing-column": [
        (
            {"t.csv": "words,labels\na,b\n"},
            "t.csv",
            "the columns are: words, labels; give it with text_column=...",
        ),
        (
            {"t.csv": "text,things\na,b\n"},
            "t.csv",
            "the columns are: text, things; give it with label_column=...",
        ),
        ({"t.csv": "red fish,fish\n"}, "t.csv", "the first line must be a header, such as text,labels"),
        ({"t.tsv": "red fish\tfish\n"}, "t.tsv", "the first line must be a header, such as text,labels"),
        ({"t.csv": "\ntext,labels\n"}, "t.csv", "the columns are: none"),
        (
            {"train.csv": "text,labels\n", "labels.csv": "id,words\n"},
            "labels.csv",
            "no column of label texts",
        ),
    ],
    "missing-file": [
        ({"trn.json": POINT}, "", "there is no lbl.json (or lbl.json.gz)"),
        ({"trn_X.txt": "a\n", "trn_X_Y.txt": "1 1\n\n"}, "", "there is no Y.txt; add it"),
        ({"train.txt": "0\ta\n"}, "", "no output-items.txt beside train.txt"),
    ],
    "unknown-layout": [
        (
            {"notes.md": "x", "a.bin": "y"},
            "",
            "it holds a.bin, notes.md; use a layout of docs/guide/data.md",
        ),
        ({}, "", "the folder is empty"),
    ],
}
CASES = [(kind, *case) for kind, cases in ERRORS.items() for case in cases]


@pytest.mark.parametrize(("kind", "files", "where", "words"), CASES)
def test_an_error_names_file_line_and_remedy(kind, files, where, words, tmp_path):
    with pytest.raises(DataError) as caught:
        load(folder_of(tmp_path, files))
    sentence = str(caught.value)
    assert f"{tmp_path / where}" in sentence
    assert words in sentence
    assert caught.value.problem.remedy and "\n" not in sentence
    if "is not an index:value" not in words:  # that line is met before the one the case is about
        assert caught.value.problem.kind == kind
    if ":" in where and not where.endswith(":"):
        assert caught.value.problem.line == int(where.rpartition(":")[2])


WARNINGS = {
    "duplicate-label": (
        raw('{"title": "t", "target_ind": [1, 0, 1]}\n'),
        "trn.json:1",
        "label 1 stands twice",
    ),
    "duplicate-feature": (single("0 1:1 1:2\n1 0:1\n"), "train.txt:2", "feature 1 stands twice"),
    "empty-text": (renee(x="a\n \nc\n"), "trn_X.txt:2", "the text is empty; write the text, or leave"),
    "missing-label-text": (renee(labels="first\n\n"), "Y.txt:2", "the label has no text"),
    "filter-hides-truth": (
        renee(tst_X="a\n", tst_X_Y="1 2\n0:1 1:1\n") | {"tst_filter_labels.txt": "0 1\n"},
        "tst_filter_labels.txt",
        "1 pair is in the test truth too, such as '0 1'",
    ),
}
NOTES = {
    "shared-label-text": (
        renee(labels="One  two\none Two\n"),
        "Y.txt:1",
        "2 labels share their text",
        "(lines 1 and 2)",
    ),
    "near-duplicate-label-text": (
        renee(labels="about_pages\nAbout Pages\n"),
        "Y.txt:1",
        "2 labels differ from another in punctuation or spaces only",
        "such as 'about_pages' and 'About Pages' (lines 1 and 2)",
    ),
    "guessed-separator": (
        {"t.csv": "text,labels\na,b;c\n"},
        "t.csv",
        "separated by ';': 'b;c' is 2 labels",
    ),
}


@pytest.mark.parametrize(
    ("severity", "kind", "case"),
    [("warning", *item) for item in WARNINGS.items()] + [("note", *item) for item in NOTES.items()],
)
def test_a_warning_or_note_is_kept_with_the_data(severity, kind, case, tmp_path):
    files, where, *words = case
    found = load(folder_of(tmp_path, files)).findings
    (problem,) = [p for p in found if p.kind == kind]
    assert problem.severity == severity and problem.remedy
    assert f"{tmp_path / where}:" in str(problem)
    assert all(word in str(problem) for word in words)


@pytest.mark.parametrize("labels", ["कि\nकी\n", "é\ne\n", "C\nD\n", "a\n\n"])
def test_letters_marks_and_missing_texts_make_no_near_duplicates(labels, tmp_path):
    found = load(folder_of(tmp_path, renee(labels=labels))).findings
    assert not {p.kind for p in found} & {"near-duplicate-label-text", "shared-label-text"}


def test_the_bundled_data_has_notes_only():
    assert {p.severity for p in load("man").findings} == {"note"}


def test_reading_goes_on_where_errors_are_collected(tmp_path):
    points = [
        '{"title": "a", "target_ind": [0, 5]}',
        "broken",
        '{"title": "c", "target_ind": [1], "target_rel": [-1]}',
        '{"title": "", "target_ind": [0, 1], "target_rel": [0.5]}',
        '{"title": "e", "target_ind": ["x"]}',
        '{"title": "f", "target_ind": [1], "target_rel": [0.5]}',
    ]
    files = raw("\n".join(points)) | {"filter_labels_train.txt": "0 0\n9 0\n"}
    findings = Findings(strict=False)
    found = load(folder_of(tmp_path, files), findings=findings)
    assert found.train.targets.toarray().tolist() == [[1, 0], [0, 0], [0, 0], [1, 1], [0, 0], [0, 0.5]]
    assert found.train.texts == ["a", "", "c", "", "e", "f"]
    assert found.train.exclude.nnz == 1
    expected = [
        *(("bad-json", 2), ("empty-text", 2), ("length-mismatch", 4), ("empty-text", 4), ("bad-targets", 5)),
        *(("index-out-of-range", 1), ("value-out-of-range", 3), ("index-out-of-range", 2)),
    ]
    assert sorted((p.kind, p.line) for p in found.findings) == sorted(expected)
    assert found.findings == tuple(findings.problems)


def test_lines_that_disagree_with_the_header_are_cut_or_filled_up(tmp_path):
    findings = Findings(strict=False)
    files = renee("4 2\n0:1\n\n1:oops 0:1\n", x="a\nb\n", labels="first\n")
    found = load(folder_of(tmp_path, files), findings=findings).train
    assert found.targets.toarray().tolist() == [[1, 0], [0, 0], [1, 0], [0, 0]]
    assert found.texts == ["a", "b", "", ""] and found.label_texts == ["first", ""]
    kinds = [p.kind for p in findings.problems]
    assert kinds.count("header-mismatch") == 3 and kinds.count("bad-number") == 1
