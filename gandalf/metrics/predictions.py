"""Read predictions of any model as a CSR matrix; the stored entries of a row are its candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix, issparse

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.matrix_files import check_sparse, read_npz
from gandalf.errors import DataError, argument
from gandalf.metrics.prediction_tables import is_prediction_table, read_prediction_table
from gandalf.metrics.ranked_lists import read_ranked_lists

# A sparse matrix of scores; or ids and scores of k places, with id -1 for no prediction; or a file.
Source = csr_array | csr_matrix | tuple[npt.ArrayLike, npt.ArrayLike] | str | Path

NO_TEST_SPLIT = "no-test-split"  # kind of this problem, so that callers can give a better remedy
ONCE = "give each label at most one score for each point"


def as_predictions(source: Source, splits: Splits) -> csr_array:
    """Return predictions for the test points as N x L scores with sorted indices, checked against the data.

    `source` is a SciPy sparse matrix, a pair (ids, scores) of N x k arrays with id -1 for no prediction, or a
    path for `read_predictions`. A score of -inf means no prediction; a score of 0 is a prediction.
    """
    if isinstance(source, str | Path):
        return read_predictions(source, splits)
    matrix: Any = source
    if isinstance(source, tuple) and len(source) == 2:
        matrix = _matrix_of_places(source[0], source[1], splits)
    if not hasattr(matrix, "tocsr") or matrix.ndim != 2:
        what = f"cannot read predictions from {type(source).__name__}"
        raise DataError(what, remedy="give a SciPy CSR matrix, a pair (ids, scores) or the path of a file")
    return _checked_matrix(matrix if issparse(matrix) else matrix.tocsr(), splits, None)


def read_predictions(path: str | Path, splits: Splits) -> csr_array:
    """Read what `gandalf predict -o` writes: a SciPy `.npz` matrix, a CSV or Parquet table, or JSON lines.

    JSON lines and CSV may be compressed; JSON lines have one test point on each line.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(
            "no such file", file=path, remedy="give a .npz, .jsonl, .csv or .parquet file of predictions"
        )
    if path.suffix == ".npz":
        return _checked_matrix(read_npz(path), splits, path)
    if is_prediction_table(path):
        return _checked_matrix(read_prediction_table(path, need_test_points(splits)), splits, path)
    indptr, labels, scores = read_ranked_lists(path, need_test_points(splits))
    _check_rows(len(indptr) - 1, splits, path)
    shape = need_test_points(splits).targets.shape
    return _checked_matrix(csr_array((scores, labels, indptr), shape=shape), splits, path)


def need_test_points(splits: Splits) -> Dataset:
    """Return the test split; raise a DataError if there is none or it is empty."""
    if splits.test is None:
        raise DataError(
            f"the data set {splits.name!r} has no test split to evaluate on",
            remedy="add tst.json.gz, tst_X_Y.txt or test.csv to the folder,"
            f" or name a table with {argument('test')}; gandalf split DATA OUT holds one out",
            kind=NO_TEST_SPLIT,
        )
    if len(splits.test) == 0:
        raise DataError(f"the test split of the data set {splits.name!r} is empty")
    return splits.test


def _matrix_of_places(ids: npt.ArrayLike, scores: npt.ArrayLike, splits: Splits) -> csr_array:
    try:
        ids, scores = np.asarray(ids), np.asarray(scores)  # shape: (N, k)
    except (ValueError, OverflowError) as error:
        raise DataError(f"ids and scores must be N x k arrays ({error})") from error
    if ids.ndim != 2 or ids.shape != scores.shape or not np.issubdtype(ids.dtype, np.integer):
        raise DataError(f"ids {ids.shape} and scores {scores.shape} must be N x k arrays, the ids integers")
    if scores.dtype.kind not in "biuf":
        raise DataError(f"the scores are {scores.dtype} values", remedy="give real numbers")
    test = need_test_points(splits)
    _check_rows(len(ids), splits, None)
    used = ids >= 0
    _check_labels(ids[used], test.num_labels)
    indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return csr_array((scores[used], ids[used], indptr), shape=test.targets.shape)


def _checked_matrix(given: Any, splits: Splits, path: Path | None) -> csr_array:  # noqa: ANN401  any SciPy form
    """Check format, shape, duplicates and NaN; return a canonical floating-point matrix without -inf."""
    check_sparse(given, path)
    _check_shape(given.shape, splits, path)  # before the conversion allocates memory for all rows
    if given.dtype not in (np.float32, np.float64):
        given = given.astype(np.float64)
    matrix = csr_array(given.tocsr())
    if given.format == "coo" and matrix.nnz < given.nnz:  # the conversion adds duplicates up
        raise DataError("a row predicts a label twice", file=path, remedy=ONCE)
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    _check_entries(matrix, path)
    return _without_minus_infinity(matrix)


def _check_shape(shape: tuple[int, ...], splits: Splits, path: Path | None) -> None:
    _check_rows(shape[0], splits, path)
    labels = need_test_points(splits).num_labels
    if shape[1] != labels:
        what = f"the predictions have {shape[1]:,} columns, but the data set has {labels:,} labels"
        remedy = "give one column for each label, in the order of the label file"
        raise DataError(what, remedy=remedy, file=path)


def _check_rows(rows: int, splits: Splits, path: Path | None) -> None:
    points = len(need_test_points(splits))
    if rows == points:
        return
    if rows == len(splits.train):
        what = f"these are predictions for the {rows:,} training points, not for the {points:,} test points"
        raise DataError(what, remedy="predict the test split", file=path)
    what = f"the predictions have {rows:,} rows, but the test split has {points:,} points"
    remedy = "give one row for each test point, in the order of the test split"
    raise DataError(what, remedy=remedy, file=path)


def _check_labels(labels: npt.NDArray[Any], num_labels: int) -> None:
    if labels.size and labels.max() >= num_labels:
        what = f"label number {labels.max()} is out of range: the data set has {num_labels:,} labels"
        raise DataError(what, remedy="count labels from 0, in the order of the label file")


def _check_entries(matrix: csr_array, path: Path | None) -> None:
    bad = np.flatnonzero(np.isnan(matrix.data))
    if len(bad):
        raise DataError(
            f"row {_row_of(matrix, bad[0])}, label {matrix.indices[bad[0]]}: the score is not a number (NaN)",
            file=path,
            remedy="leave the pair out, or score it -inf",
        )
    same = matrix.indices[1:] == matrix.indices[:-1]
    ends = matrix.indptr[1:-1]
    same[ends[(ends > 0) & (ends < matrix.nnz)] - 1] = False  # the two entries are in different rows
    if same.any():
        at = int(np.argmax(same))
        what = f"row {_row_of(matrix, at)} predicts label {matrix.indices[at]} twice"
        raise DataError(what, remedy=ONCE, file=path)


def _row_of(matrix: csr_array, position: int) -> int:
    return int(np.searchsorted(matrix.indptr, position, side="right")) - 1


def _without_minus_infinity(matrix: csr_array) -> csr_array:
    keep = ~np.isneginf(matrix.data)
    if keep.all():
        return matrix
    kept = np.concatenate([[0], np.cumsum(keep)])
    return csr_array((matrix.data[keep], matrix.indices[keep], kept[matrix.indptr]), shape=matrix.shape)
