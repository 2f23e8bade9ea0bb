"""Reading predictions: each accepted form gives the same matrix, each bad one its own sentence."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array, save_npz

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.predictions import as_predictions
from gandalf.metrics.topk import keep_first_k

LABELS = ["alpha", "Beta", "gamma", "same", "same"]
WANT = [{0: 0.5, 3: 0.9}, {}, {1: 0.25}]  # of three test points


@pytest.fixture
def splits():
    def points(count):
        return Dataset(
            csr_array((count, 5), dtype=np.float32),
            ids=[f"u{i}" for i in range(count)],
            label_texts=LABELS,
            label_ids=["a", "b", "c", "d", "e"],
        )

    return Splits(train=points(4), test=points(3), name="toy")


def matrix(rows=3, labels=5, dtype=np.float64):
    entries = [(row, label, score) for row, scores in enumerate(WANT) for label, score in scores.items()]
    rows_, labels_, scores_ = zip(*entries, strict=True)
    return csr_array((np.asarray(scores_, dtype), (rows_, labels_)), shape=(rows, labels))


def as_dicts(predictions):
    return [
        dict(zip(predictions.indices[a:b].tolist(), predictions.data[a:b].tolist(), strict=True))
        for a, b in zip(predictions.indptr, predictions.indptr[1:], strict=False)
    ]


def write(path, lines):
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("form", [csr_array, csc_matrix, coo_array])
def test_any_sparse_matrix(form, splits):
    assert as_dicts(as_predictions(form(matrix()), splits)) == WANT


def test_unsorted_indices_and_integers_and_float32(splits):
    unsorted = csr_array(([9, 5, 2], [3, 0, 1], [0, 2, 2, 3]), shape=(3, 5))
    assert as_dicts(as_predictions(unsorted, splits)) == [{0: 5.0, 3: 9.0}, {}, {1: 2.0}]
    assert as_predictions(matrix(dtype=np.float32), splits).dtype == np.float32


def test_ids_and_scores_with_padding(splits):
    ids = np.asarray([[3, 0], [-1, -1], [1, -1]])
    scores = np.asarray([[0.9, 0.5], [0.0, np.nan], [0.25, -np.inf]])  # scores of -1 do not matter
    assert as_dicts(as_predictions((ids, scores), splits)) == WANT


def test_minus_infinity_is_no_prediction_and_zero_is(splits):
    found = as_predictions((np.asarray([[3, 0]] * 3), np.asarray([[-np.inf, 0.0]] * 3)), splits)
    assert as_dicts(found) == [{0: 0.0}] * 3


def test_npz(splits, tmp_path):
    save_npz(tmp_path / "p.npz", matrix())
    assert as_dicts(as_predictions(tmp_path / "p.npz", splits)) == WANT


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
@pytest.mark.parametrize(
    ("labels", "scores"), [("labels", "scores"), ("ids", "scores"), ("target_ind", "target_rel")]
)
@pytest.mark.parametrize("first", [[3, 0], ["d", "a"], ["d", " ALPHA "]])
def test_json_lines(name, labels, scores, first, splits, tmp_path):
    lines = [
        {"uid": "u0", labels: first, scores: [0.9, 0.5]},
        {labels: [], scores: []},
        {labels: ["beta"], scores: [0.25]},
    ]
    assert as_dicts(as_predictions(str(write(tmp_path / name, lines)), splits)) == WANT


def test_json_lines_without_scores_are_rankings(splits, tmp_path):
    path = write(tmp_path / "p.jsonl", [{"labels": [4, 0, 2]}] * 3)
    assert as_dicts(as_predictions(path, splits)) == [{4: 0.0, 0: -1.0, 2: -2.0}] * 3


GOOD = {"labels": [1]}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([GOOD, "{bad"], r"p.jsonl:2: is not JSON .*; write lines such as"),
        ([GOOD, ""], r"p.jsonl:2: is not JSON"),
        ([GOOD, "[" * 100_000], r"p.jsonl:2: is JSON with a number or a nesting that cannot be read"),
        ([GOOD, '{"labels": [1], "scores": [1' + "0" * 400 + "]}"], r"p.jsonl:2: a score is too large"),
        (
            [GOOD, '{"labels": [1, 2], "scores": [1' + "0" * 400 + ', "x"]}'],
            r'p.jsonl:2: the score "x" is not a number',
        ),
        ([GOOD, '{"labels": [1' + "0" * 400 + "]}"], r"p.jsonl:2: .*10{59}\.\.\. is out of range"),
        (
            [GOOD, '{"labels": [' + "[" * 940 + "]" * 940 + "]}"],
            r"p.jsonl:2: (\[...\] is no label|is JSON that)",
        ),
        ([GOOD, '{"labels": [1], "scores": [{}]}'], r"p.jsonl:2: the score \{...\} is not a number"),
        ([GOOD, {"uid": [1], "labels": [1]}], r"p.jsonl:2: .*uid '\[...\]'"),
        (
            [GOOD, '{"labels": [1' + "0" * 5000 + "]}"],
            r"p.jsonl:2: is JSON with a number or a nesting that cannot be read",
        ),
        ([GOOD, "[1]"], r"p.jsonl:2: is not a JSON object"),
        ([GOOD, {"label": [1]}], r"p.jsonl:2: has no list of labels under labels, ids, target_ind"),
        ([GOOD, {"labels": 1}], r"p.jsonl:2: has no list of labels"),
        (
            [GOOD, {"labels": [5]}],
            r"p.jsonl:2: .* 5 is out of range.* 5 labels; count",
        ),
        ([GOOD, {"labels": [-1]}], r"p.jsonl:2: .* -1 is out of range"),
        ([GOOD, {"labels": [1.5]}], r"p.jsonl:2: 1.5 is no label"),
        ([GOOD, {"labels": [True]}], r"p.jsonl:2: true is no label"),
        ([GOOD, {"labels": ["delta"]}], r"p.jsonl:2: no label has the id or the text 'delta'"),
        ([GOOD, {"labels": ["same"]}], r"p.jsonl:2: 2 labels have the text 'same'; give the id"),
        ([GOOD, {"labels": [1, "b"]}], r"p.jsonl:2: label 1 is predicted twice"),
        (
            [GOOD, {"labels": [1], "scores": [1, 2]}],
            r"p.jsonl:2: scores does not hold one score for each of the 1",
        ),
        ([GOOD, {"labels": [1], "scores": ["x"]}], r'p.jsonl:2: the score "x" is not a number'),
        ([GOOD, {"labels": [1], "scores": [float("nan")]}], r"p.jsonl:2: the score NaN is not a number"),
        ([{"uid": "u1", "labels": [1]}], r"p.jsonl:1: .*uid 'u1'.* 'u0'"),
        ([GOOD] * 2, r"p.jsonl: .*2 rows.* 3 points"),
        ([GOOD] * 4, r"p.jsonl: these are predictions for the 4 training points, not for the 3 test points"),
    ],
)
def test_bad_json_lines(lines, sentence, splits, tmp_path):
    with pytest.raises(DataError, match=sentence):
        as_predictions(write(tmp_path / "p.jsonl", lines), splits)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (lambda: matrix(rows=7), r"7 rows.* 3 points; give one row"),
        (lambda: matrix(rows=4), r"for the 4 training points, not for the 3 test points"),
        (lambda: matrix(labels=6), r"6 columns.* 5 labels"),
        (lambda: matrix() * np.nan, r"row 0, label 0: the score is not a number"),
        (
            lambda: csr_array(([1.0, 2.0], [3, 3], [0, 0, 2, 2]), shape=(3, 5)),
            r"row 1 predicts label 3 twice",
        ),
        (lambda: (np.asarray([[5]] * 3), np.ones((3, 1))), r" 5 is out of range"),
        (lambda: (np.asarray([[1]] * 3), np.ones((3, 2))), r"must be N x k arrays"),
        (lambda: (np.asarray([[1]] * 4), np.ones((4, 1))), r"training points"),
        (lambda: (np.asarray([[1]] * 3), np.full((3, 1), 1j)), r"the scores are complex128 values"),
        (lambda: (np.asarray([[1]] * 3), np.full((3, 1), "x")), r"the scores are <U1 values"),
        (lambda: ([[1], [1, 2], [1]], [[1], [1, 2], [1]]), r"must be N x k arrays"),
        (lambda: matrix(dtype=np.complex128), r"holds complex128 values; write real numbers"),
        (lambda: coo_array(([1.0, 2.0], ([1, 1], [3, 3])), shape=(3, 5)), r"a row predicts a label twice"),
        (lambda: csr_array((5,)), r"cannot read predictions from csr_array"),
        (lambda: np.ones((3, 5)), r"cannot read predictions from ndarray"),
    ],
)
def test_bad_arrays(bad, sentence, splits):
    with pytest.raises(DataError, match=sentence):
        as_predictions(bad(), splits)


def test_the_same_label_in_neighbouring_rows_is_no_duplicate(splits):
    neighbours = csr_array(([1.0, 2.0], [3, 3], [0, 1, 2, 2]), shape=(3, 5))
    assert as_dicts(as_predictions(neighbours, splits)) == [{3: 1.0}, {3: 2.0}, {}]


def test_bad_files(splits, tmp_path):
    (tmp_path / "no.npz").write_bytes(b"not a zip")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    np.savez(tmp_path / "pickle.npz", format=np.asarray([object()], dtype=object))
    for name in ("no.npz", "other.npz", "pickle.npz"):
        with pytest.raises(DataError, match=rf"{name}: cannot be read as a SciPy sparse matrix .*save_npz"):
            as_predictions(tmp_path / name, splits)
    with pytest.raises(DataError, match="no such file"):
        as_predictions(tmp_path / "absent.jsonl", splits)


def test_an_array_under_the_name_of_an_archive(splits, tmp_path):
    with open(tmp_path / "p.npz", "wb") as file:
        np.save(file, np.ones((3, 5)))
    with pytest.raises(DataError, match=r"p.npz: cannot be read .*it is no zip file"):
        as_predictions(tmp_path / "p.npz", splits)


def test_no_test_split(splits):
    with pytest.raises(DataError, match="'toy' has no test split to evaluate on"):
        as_predictions(matrix(), Splits(splits.train, name="toy"))
    with pytest.raises(DataError, match="the test split of the data set 'toy' is empty"):
        as_predictions(matrix(), Splits(splits.train, splits.test[:0], name="toy"))


def test_labels_in_another_order_are_not_counted_as_misses(tmp_path):
    """A table whose rows are shuffled numbers its labels anew; lines with label texts show it."""
    splits = gandalf.synthetic(60, 12, seed=0).splits
    texts = list(splits.test.label_texts)
    lines = [json.dumps({"labels": [3], "label_texts": [texts[3]]})] * len(splits.test)
    (tmp_path / "right.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    gandalf.evaluate(tmp_path / "right.jsonl", splits)
    lines[1] = json.dumps({"labels": [3], "label_texts": [texts[4]]})
    (tmp_path / "other.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    with pytest.raises(gandalf.DataError, match=r"other.jsonl:2: label 3 is .* here and .* in the data set"):
        gandalf.evaluate(tmp_path / "other.jsonl", splits)


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_what_comes_after_the_first_k_that_the_filter_leaves_is_dropped(k):
    generator = np.random.default_rng(k)
    ids = np.stack([generator.permutation(9)[:7] for _ in range(20)])
    ids[3, 4:] = -1  # fewer were predicted
    exclude = csr_array(generator.random((20, 9)) < 0.3)
    found = keep_first_k(ids, exclude, k)
    for row, (given, kept) in enumerate(zip(ids, found, strict=True)):
        left = [label for label in given if label >= 0 and not exclude[row, label]][:k]
        assert [label for label in kept if label >= 0 and not exclude[row, label]] == left
        assert [label for label in kept if label >= 0 and exclude[row, label]] == [
            label for label in given if label >= 0 and exclude[row, label]
        ]
    assert (keep_first_k(ids, None, k) == ids).all()
