from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, load_npz
from strategies import targets

from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.data.export import FORMATS, NO_WORDS, export
from gandalf.data.load import load
from gandalf.data.tf_idf import add_features
from gandalf.errors import DataError

TEXTS = [
    "red hat",
    "GNU zip\u2028__label__7",
    "naïve 東京",
    'हिन्दी "quoted", a',
    "...",
    "x\ty",
    "Red Hat",
    "9 lives",
]
LABEL_TEXTS = ["hat", "zip", "東京", "quoted, comma", "lives", "y"]
HARD = [name for name, one in FORMATS.items() if not one.carries_soft]


def make(train, test):
    """A data set of two splits with the same labels, texts that try every format, and a filter."""
    width = max(train.shape[1], test.shape[1])

    def points(matrix, ids):
        matrix = csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], width))
        texts = [TEXTS[i % len(TEXTS)] for i in range(matrix.shape[0])]
        exclude = binary_pairs([0], [width - 1], matrix.shape)
        return Dataset(matrix, texts, LABEL_TEXTS[:width], exclude, [f"{ids}{i}" for i in range(len(texts))])

    return Splits(points(train, "a"), points(test, "b"))


@pytest.fixture
def hard():
    rng = np.random.default_rng(0)
    train, test = (csr_array((rng.random((n, 6)) < 0.3).astype(np.float32)) for n in (12, 5))
    return make(train, test)


@pytest.fixture
def soft(hard):
    rng = np.random.default_rng(1)
    matrix = hard.train.targets.copy()
    matrix.data[:] = rng.choice([1.0, 0.1, 0.625, 1 / 3], len(matrix.data)).astype(np.float32)
    return replace(hard, train=replace(hard.train, targets=matrix))


def dense(points):
    return points.targets.toarray().tolist()


def from_labels(rows, width):
    return [[float(label in row) for label in range(width)] for row in rows]


def one_line(text):
    return " ".join(text.split())


# ---- each format, read back by a few lines that know nothing of the writer


def read_libsvm(path):
    header, *lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    points, features, labels = map(int, header.split(" "))
    assert len(lines) == points
    matrix, rows = np.zeros((points, features), dtype=np.float32), []
    for row, line in enumerate(lines):
        first, *pairs = line.split(" ")
        rows.append([int(label) for label in first.split(",") if label])
        assert pairs, "omikuji takes no row without features"
        for pair in pairs:
            feature, value = pair.split(":")
            matrix[row, int(feature)] = np.float32(value)
    return matrix, from_labels(rows, labels)


def test_libsvm_holds_features_and_labels_of_both_splits(hard, tmp_path):
    notes = export(hard, tmp_path / "out", "libsvm")
    featured, words = add_features(hard)
    for name, points in (("train", featured.train), ("test", featured.test)):
        matrix, rows = read_libsvm(tmp_path / "out" / f"{name}.txt")
        assert rows == dense(points)
        np.testing.assert_array_equal(matrix[:, :-1], points.features.toarray())
        # "..." has no word: the row stays, with the extra feature and nothing else
        np.testing.assert_array_equal(matrix[:, -1], [text == "..." for text in points.texts])
    assert (tmp_path / "out" / "Xf.txt").read_text("utf-8").split("\n")[:-1] == [*words, NO_WORDS]
    assert [note.kind for note in notes] == ["no-features"]
    assert notes[0].what.startswith("2 points have no features")  # the fifth text, once in each split


def test_libsvm_keeps_the_features_a_set_has_and_reads_back_as_the_same_set(hard, tmp_path):
    featured, _ = add_features(replace(hard, train=hard.train[[0, 1, 2]], test=hard.test[[0, 2]]))
    plain = [
        replace(d, texts=None, label_texts=None, label_features=None, ids=None)
        for d in (featured.train, featured.test)
    ]
    assert export(Splits(*plain), tmp_path / "out", "libsvm") == ()
    again = load(tmp_path / "out")
    assert again.train == plain[0]
    assert again.test == plain[1]
    assert not (tmp_path / "out" / "Xf.txt").exists()


def test_fasttext_lines_are_labels_then_words(hard, tmp_path):
    export(hard, tmp_path / "out", "fasttext")
    for name, points in (("train", hard.train), ("test", hard.test)):
        lines = (tmp_path / "out" / f"{name}.txt").read_bytes().decode().removesuffix("\n").split("\n")
        words = [line.split() for line in lines]  # as fastText does
        found = [
            [int(word.removeprefix("__label__")) for word in row if word.startswith("__label__")]
            for row in words
        ]
        assert from_labels(found, points.num_labels) == dense(points)
        texts = [" ".join(word for word in row if not word.startswith("__label__")) for row in words]
        assert texts == [one_line(text).replace("__label__", "__label_") for text in points.texts]
    assert (tmp_path / "out" / "labels.txt").read_text("utf-8").split("\n")[:-1] == LABEL_TEXTS


def test_libmultilabel_lines_are_labels_tab_text(hard, tmp_path):
    export(hard, tmp_path / "out", "libmultilabel")
    for name, points in (("train", hard.train), ("test", hard.test)):
        lines = (tmp_path / "out" / f"{name}.txt").read_bytes().decode().removesuffix("\n").split("\n")
        cells = [line.split("\t") for line in lines]
        assert {len(row) for row in cells} == {2}
        assert from_labels([[int(label) for label in row[0].split()] for row in cells], 6) == dense(points)
        assert [row[1] for row in cells] == [one_line(text) for text in points.texts]


def test_pairs_are_every_point_with_each_of_its_labels(soft, tmp_path):
    export(soft, tmp_path / "out", "pairs")
    for name, points in (("pairs.jsonl", soft.train), ("pairs_test.jsonl", soft.test)):
        lines = (tmp_path / "out" / name).read_bytes().decode().removesuffix("\n").split("\n")
        expected = [
            (points.texts[row], LABEL_TEXTS[label], value)
            for row, values in enumerate(dense(points))
            for label, value in enumerate(values)
            if value
        ]
        found = [json.loads(line) for line in lines]
        assert [(f["anchor"], f["positive"], np.float32(f["score"])) for f in found] == expected
        assert {tuple(f) for f in found} == {("anchor", "positive", "score")}


def test_pairs_leave_out_empty_texts(tmp_path):
    matrix = csr_array(np.ones((2, 2), dtype=np.float32))
    export(Splits(Dataset(matrix, ["", "a"], ["b", ""])), tmp_path / "out", "pairs")
    assert (
        tmp_path / "out" / "pairs.jsonl"
    ).read_text() == '{"anchor": "a", "positive": "b", "score": 1.0}\n'


def test_npz_is_what_scipy_reads(soft, tmp_path):
    export(soft, tmp_path / "out", "npz")
    assert load_npz(tmp_path / "out" / "Y.trn.npz").toarray().tolist() == dense(soft.train)
    assert load_npz(tmp_path / "out" / "X.tst.npz").shape[0] == len(soft.test)


@pytest.mark.parametrize("format", ["raw", "xc", "npz", "pecos"])
def test_formats_that_gandalf_reads_keep_soft_targets_texts_and_filter(soft, tmp_path, format):
    clean = [replace(d, texts=[one_line(text) for text in d.texts]) for d in (soft.train, soft.test)]
    export(Splits(*clean), tmp_path / "out", format)
    again = load(tmp_path / "out")
    for found, made in ((again.train, clean[0]), (again.test, clean[1])):
        bare = dict(features=None, label_features=None, ids=None, label_ids=None)
        assert replace(found, **bare) == replace(made, **bare)


# ---- what holds for every format


@pytest.mark.parametrize("format", FORMATS)
def test_same_input_same_bytes_and_a_record_of_the_origin(soft, tmp_path, format):
    origin = ({"data": "soft"}, soft.train.label_frequencies)
    for name in ("one", "two"):
        export(soft, tmp_path / name, format, harden="sample", seed=5, origin=origin)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert json.loads(one["gandalf.json"]) == {"data": "soft", "files": sorted(one)}
    assert one["label_frequencies.txt"].split() == [b"%d" % n for n in soft.train.label_frequencies]
    assert "filter_labels_test.txt" in one


@pytest.mark.parametrize("format", FORMATS)
def test_a_set_without_test_split(hard, tmp_path, format):
    export(replace(hard, test=None), tmp_path / "out", format)
    assert not [
        path.name for path in (tmp_path / "out").iterdir() if "test" in path.name or "tst" in path.name
    ]


@pytest.mark.parametrize("format", HARD)
def test_soft_targets_need_a_choice_where_only_0_and_1_fit(soft, tmp_path, format):
    with pytest.raises(
        DataError,
        match=rf"{format} carries only 0 and 1, and the points to write have soft targets; choose "
        "harden='threshold' or harden='any' or .*harden='copies'",
    ):
        export(soft, tmp_path / "out", format)
    assert list(tmp_path.iterdir()) == []


@given(
    targets(max_points=5, max_labels=4, graded=True),
    targets(max_points=4, max_labels=4, graded=True),
    st.integers(0, 3),
)
def test_hardening_touches_training_targets_and_counts_every_test_label(tmp_path_factory, train, test, seed):
    splits = make(train, test)
    out = tmp_path_factory.mktemp("x") / "out"
    export(splits, out, "libmultilabel", harden="threshold", seed=seed)
    rows = [line.split("\t")[0].split() for line in (out / "train.txt").read_text("utf-8").split("\n")[:-1]]
    expected = [
        [str(label) for label, value in enumerate(row) if value and (value >= 0.5 or value == max(row))]
        for row in dense(splits.train)
    ]
    assert rows == expected
    rows = [line.split("\t")[0].split() for line in (out / "test.txt").read_text("utf-8").split("\n")[:-1]]
    assert rows == [[str(label) for label, value in enumerate(row) if value] for row in dense(splits.test)]


def test_sampling_depends_on_the_seed(soft, tmp_path):
    for seed in (0, 1):
        export(soft, tmp_path / str(seed), "fasttext", harden="sample", seed=seed)
    assert (tmp_path / "0" / "train.txt").read_bytes() != (tmp_path / "1" / "train.txt").read_bytes()


def test_hardening_can_be_asked_for_where_it_is_not_needed(soft, tmp_path):
    export(soft, tmp_path / "out", "raw", harden="threshold")
    assert set(load(tmp_path / "out").train.targets.data.tolist()) == {1.0}


def test_a_folder_in_use_is_left_alone(hard, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="not empty"):
        export(hard, tmp_path, "raw")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    export(hard, tmp_path / "out", "fasttext")
    export(hard, tmp_path / "out", "raw", overwrite=True)
    assert not (tmp_path / "out" / "train.txt").exists()


@pytest.mark.parametrize(
    ("format", "says"), [("fasttext", "needs texts"), ("pairs", "needs texts"), ("raw", "needs texts")]
)
def test_formats_of_texts_need_texts(tmp_path, format, says):
    matrix = csr_array(np.ones((2, 2), dtype=np.float32))
    bare = Splits(Dataset(matrix, features=matrix))
    with pytest.raises(DataError, match=says):
        export(bare, tmp_path / "out", format)
    assert list(tmp_path.iterdir()) == []


def test_unknown_format_lists_the_known_ones(hard, tmp_path):
    with pytest.raises(
        DataError,
        match="choose one of raw, renee, csv, jsonl, xc, npz, pecos, libsvm, fasttext, libmultilabel, pairs",
    ):
        export(hard, tmp_path / "out", "arff")


def test_label_list_without_label_texts(hard, tmp_path):
    export(Splits(replace(hard.train, label_texts=None)), tmp_path / "out", "fasttext")
    assert (tmp_path / "out" / "labels.txt").read_text() == "0\n1\n2\n3\n4\n5\n"


def test_napkinxc_reads_the_libsvm_files(hard, tmp_path):
    datasets = pytest.importorskip(
        "napkinxc.datasets", reason="napkinXC is an optional oracle: extra [oracle]"
    )
    export(hard, tmp_path / "out", "libsvm")
    features, labels = datasets.load_libsvm_file(str(tmp_path / "out" / "train.txt"))
    expected, rows = read_libsvm(tmp_path / "out" / "train.txt")
    np.testing.assert_allclose(features.toarray()[:, : expected.shape[1]], expected, rtol=1e-6)
    assert from_labels([list(row) for row in labels], 6) == rows


def test_bundled_set_through_every_hard_format(tmp_path):
    man = load("man")
    for format in HARD:
        export(man, tmp_path / format, format)
        lines = (tmp_path / format / "test.txt").read_text("utf-8").count("\n")
        assert lines - (format == "libsvm") == len(man.test)
