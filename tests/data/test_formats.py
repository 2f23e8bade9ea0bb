"""A round trip through each layout gives the same data set, and the same data set gives the same bytes."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.data.formats import pecos, raw, renee, table, xc
from gandalf.data.formats.texts import clean
from gandalf.data.load import load
from gandalf.errors import DataError

# Devanagari with vowel signs, a composed and a combining accent, emoji, CJK, and what formats trip over.
ALPHABET = "ab Zé e\u0301ñकि ी日本語🙂👩\u200d🔬\",;|:[]{}\\'\t\n\r\u2028\ufeff0.1"
VALUES = [0.0, 0.0, 1.0, 0.25, 0.1, 1 / 3, 1e-7, 0.9999999]

texts = st.text(st.sampled_from(ALPHABET), max_size=8).map(clean)
names = st.text("abकéñ日🙂-_.1", min_size=1, max_size=5)


@st.composite
def matrices(draw, rows, columns, values):
    entries = st.lists(st.sampled_from(values), min_size=columns, max_size=columns)
    found = draw(st.lists(entries, min_size=rows, max_size=rows))
    return csr_array(np.asarray(found, dtype=np.float32).reshape(rows, columns))


@st.composite
def points(draw, of_labels):
    number, labels = draw(st.integers(1, 6)), len(of_labels["label_texts"])
    exclude = None
    if draw(st.booleans()):
        found = draw(matrices(number, labels, [0.0, 0.0, 1.0])).nonzero()
        exclude = binary_pairs(*found, shape=(number, labels))
    return Dataset(
        targets=draw(matrices(number, labels, VALUES)),
        texts=draw(st.lists(texts, min_size=number, max_size=number)),
        exclude=exclude,
        ids=draw(st.none() | st.lists(names, min_size=number, max_size=number)),
        features=draw(matrices(number, 4, [0.0, 1.0, -0.5, 0.1])),
        **of_labels,
    )


@st.composite
def data_sets(draw):
    labels = draw(st.integers(1, 5))
    of_labels = {
        "label_texts": draw(st.lists(texts, min_size=labels, max_size=labels)),
        "label_ids": draw(st.none() | st.lists(names, min_size=labels, max_size=labels, unique=True)),
        "label_features": draw(matrices(labels, 4, [0.0, 1.0, 0.1])),
    }
    return Splits(draw(points(of_labels)), draw(st.none() | points(of_labels)))


@dataclass(frozen=True)
class Case:
    write: object
    layout: str
    loses: tuple[str, ...]  # what the layout has no place for

    def without(self, found):
        return None if found is None else replace(found, **dict.fromkeys(self.loses))


IDS, FEATURES = ("ids", "label_ids"), ("features", "label_features")
CASES = {
    "raw": Case(raw.write, "raw", FEATURES),
    "xc": Case(xc.write, "sparse", IDS),
    "renee": Case(renee.write, "renee", IDS + FEATURES),
    "npz": Case(pecos.write_npz, "pecos", IDS),
    "text2text": Case(pecos.write_text, "pecos", IDS + FEATURES),
    "csv": Case(table.write, "table", FEATURES),
    "jsonl": Case(lambda splits, folder: table.write(splits, folder, ".jsonl"), "table", FEATURES),
}


def write_new(write, splits, folder):
    folder.mkdir()
    write(splits, folder)


def numbered(found):
    """The raw layout gives points and labels without identifiers their number as one."""
    if found is None:
        return None
    rows, labels = [[str(i) for i in range(size)] for size in found.targets.shape]
    return replace(found, ids=found.ids or rows, label_ids=found.label_ids or labels)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60)
@given(splits=data_sets())
def test_round_trip(name, splits):
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        write_new(case.write, splits, Path(folder) / "set")
        found = load(Path(folder) / "set")
    expected = replace(splits, train=case.without(splits.train), test=case.without(splits.test))
    if name == "raw":
        expected = replace(expected, train=numbered(expected.train), test=numbered(expected.test))
    assert found.layout == case.layout
    assert found.name == "set"
    assert found.train == expected.train
    assert found.test == expected.test


@pytest.mark.parametrize("name", CASES)
def test_same_input_same_bytes(name, tmp_path, monkeypatch):
    splits = small()
    write_new(CASES[name].write, splits, tmp_path / "first")
    monkeypatch.setattr("time.time", lambda: 2e9)  # the clock must not get into the files
    write_new(CASES[name].write, splits, tmp_path / "second")
    first, second = (sorted((tmp_path / folder).iterdir()) for folder in ("first", "second"))
    assert [p.name for p in first] == [p.name for p in second]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_npz_parts_carry_no_date(tmp_path):
    pecos.write_npz(small(), tmp_path)
    with zipfile.ZipFile(tmp_path / "Y.trn.npz") as archive:
        assert {part.date_time for part in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def small(test=True):
    """Three points, two labels, graded targets, a filter pair; features 3 x 2."""
    train = Dataset(
        targets=csr_array(np.asarray([[1, 0.1], [0, 0], [0, 1]], dtype=np.float32)),
        texts=["one, two", 'said "no"', "नमस्ते"],
        label_texts=["é", "b"],
        exclude=binary_pairs([1], [0], (3, 2)),
        ids=["p", "q", "r"],
        label_ids=["x", "y"],
        features=csr_array(np.asarray([[0, 2], [0.5, 0], [0, 0]], dtype=np.float32)),
        label_features=csr_array(np.asarray([[1, 0], [0, 1]], dtype=np.float32)),
    )
    return Splits(train, train[[2, 0]] if test else None)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_any_file_may_be_compressed(name, suffix, tmp_path):
    CASES[name].write(small(), tmp_path)
    plain = load(tmp_path)
    for path in tmp_path.iterdir():
        if path.suffix not in (".npz", ".gz"):
            compress(path, suffix)
    found = load(tmp_path)
    assert found.train == plain.train
    assert found.test == plain.test
    assert found.train.exclude is not None


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compression_is_told_by_content_not_by_name(suffix, tmp_path):
    renee.write(small(), tmp_path)
    plain = load(tmp_path)
    packed = compress(tmp_path / "trn_X.txt", suffix)
    packed.rename(tmp_path / "trn_X.txt")  # compressed under a plain name
    (tmp_path / "Y.txt").rename(tmp_path / "Y.txt.gz")  # plain under a compressed name
    assert load(tmp_path).train == plain.train


def compress(path, suffix):
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    packed = path.with_name(path.name + suffix)
    packed.write_bytes(pack(path.read_bytes()))
    path.unlink()
    return packed


def test_members_that_follow_one_another_are_one_file(tmp_path):
    renee.write(small(), tmp_path)
    lines = (tmp_path / "trn_X.txt").read_bytes().splitlines(keepends=True)
    (tmp_path / "trn_X.txt").write_bytes(b"".join(gzip.compress(line) for line in lines) + b"\0" * 64)
    assert load(tmp_path).train.texts == small().train.texts


# ---- spellings


def test_sparse_layout_takes_texts_and_label_features_under_other_names(tmp_path):
    xc.write(small(), tmp_path)
    for name in ("trn_X.txt", "tst_X.txt", "Y.txt"):
        (tmp_path / name).unlink()
    (tmp_path / "lbl_X_Xf.txt").rename(tmp_path / "Yf.txt")
    found = load(tmp_path).train
    assert found.texts is None and found.label_texts is None
    assert found == replace(small().train, texts=None, label_texts=None, ids=None, label_ids=None)
    write_new(raw.write, small(), tmp_path / "texts")
    for name in ("trn", "tst", "lbl"):
        shutil.move(tmp_path / "texts" / f"{name}.json.gz", tmp_path / f"{name}.json.gz")
    found = load(tmp_path)
    assert found.layout == "sparse"
    assert found.train == small().train
    assert found.test == small().test


def test_old_single_file(tmp_path):
    (tmp_path / "train.txt").write_text("4 5 3\n0,2 1:0.5 4:2\n 3:1\n1\n2:7\n")
    (tmp_path / "test.txt").write_text("1 5 3\n2 0:1")
    found = load(tmp_path)
    assert found.train.targets.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    features = [[0, 0.5, 0, 0, 2], [0, 0, 0, 1, 0], [0] * 5, [0, 0, 7, 0, 0]]
    assert found.train.features.toarray().tolist() == features
    assert found.train.texts is None
    assert found.test.targets.toarray().tolist() == [[0, 0, 1]]
    alone = load(tmp_path / "train.txt")
    assert alone.train == found.train and alone.test is None and alone.name == "train"


@pytest.mark.parametrize(
    "pattern", ["{kind}.{long}.npz", "{short}_{kind}.npz", "{kind}_{short}.npz", "{long}.{kind}.npz"]
)
def test_pecos_spellings(pattern, tmp_path):
    pecos.write_npz(small(), tmp_path)
    for short, long in (("trn", "train"), ("tst", "test")):
        for kind in "XY":
            name = pattern.format(kind=kind, short=short, long=long)
            (tmp_path / f"{kind}.{short}.npz").rename(tmp_path / name)
    found = load(tmp_path)
    assert found.train.features is not None
    assert found.train.targets.toarray().tolist() == small().train.targets.toarray().tolist()
    assert len(found.test) == 2


def test_text2text_with_and_without_weights(tmp_path):
    (tmp_path / "training-data.txt").write_text("0,2::0.5\tone\n\ttwo\n1\tthree\tand more\n")
    (tmp_path / "output-labels.txt").write_text("a\nb\nc\n")
    found = load(tmp_path)
    assert found.layout == "pecos"
    assert found.train.targets.toarray().tolist() == [[1, 0, 0.5], [0, 0, 0], [0, 1, 0]]
    assert found.train.texts == ["one", "two", "three and more"]


@pytest.mark.parametrize(
    "name",
    ["filter_labels_test.txt", "tst_filter_labels.txt", "filter_labels_text.txt", "filter_labels_tst.txt"],
)
def test_filter_file_names(name, tmp_path):
    renee.write(replace(small(), train=replace(small().train, exclude=None)), tmp_path)
    assert load(tmp_path).train.exclude is None
    (tmp_path / "filter_labels_test.txt").unlink()
    (tmp_path / name).write_text("0 0\n1 1\n1 1\n")
    with_filter = load(tmp_path)
    assert with_filter.test.exclude.toarray().tolist() == [[True, False], [False, True]]
    assert with_filter.train.exclude is None


def test_raw_takes_content_where_there_is_no_title(tmp_path):
    (tmp_path / "lbl.json").write_text('{"title": "a"}\n{"title": "", "content": "b"}\n')
    (tmp_path / "trn.json").write_text('{"title": null, "content": "t\\tt", "target_ind": [1]}\n')
    found = load(tmp_path)
    assert found.train.label_texts == ["a", "b"] and found.train.texts == ["t t"]
    assert found.train.ids is None and found.test is None
    assert found.train.targets.toarray().tolist() == [[0, 1]]


# ---- values


def test_graded_targets_share_one_scale(tmp_path):
    (tmp_path / "lbl.json").write_text('{"title": "a"}\n{"title": "b"}\n')
    (tmp_path / "trn.json").write_text('{"title": "t", "target_ind": [0, 1], "target_rel": [1, 2]}\n')
    (tmp_path / "tst.json").write_text('{"title": "u", "target_ind": [0], "target_rel": [8]}\n')
    found = load(tmp_path)
    assert found.train.targets.toarray().tolist() == [[0.125, 0.25]]
    assert found.test.targets.toarray().tolist() == [[1, 0]]
    (note,) = [p for p in found.findings if p.kind == "graded-targets-scaled"]
    assert "divided by 8" in note.what and note.severity == "note"


def test_zeros_are_no_targets_and_repeated_labels_keep_the_largest(tmp_path):
    renee.write(small(test=False), tmp_path)
    (tmp_path / "trn_X_Y.txt").write_text("3 2\n1:0.5 0:0 1:0.75 1:0.25\n\n0:1\n")
    found = load(tmp_path)
    assert found.train.targets.toarray().tolist() == [[0, 0.75], [0, 0], [1, 0]]
    assert found.train.targets.nnz == 2
    problem = found.findings[0]
    assert (problem.kind, problem.severity, problem.line) == ("duplicate-label", "warning", 2)


def test_layouts_that_need_features_or_texts_say_so(tmp_path):
    texts_only = CASES["raw"].without(small().train)
    features_only = replace(small().train, texts=None, label_texts=None)
    for write in (xc.write, pecos.write_npz):
        with pytest.raises(DataError, match="has only texts; make features first"):
            write(Splits(texts_only), tmp_path / "out")
    for write in (raw.write, renee.write, pecos.write_text, table.write):
        with pytest.raises(DataError, match="needs texts, and this data set has none"):
            write(Splits(features_only), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_layout_keeps_a_data_set_without_texts_from_its_round_trip(tmp_path):
    bare = replace(small(), train=replace(small().train, texts=None, label_texts=None), test=None)
    for name, write in (("xc", xc.write), ("npz", pecos.write_npz)):
        write_new(write, bare, tmp_path / name)
        assert load(tmp_path / name).train == replace(bare.train, ids=None, label_ids=None)
