"""Find the k best candidates of every point: filter, then rank; of equal scores the smaller label wins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]

# Cells of one padded block: large enough to hide the cost of NumPy calls, small enough for the cache.
BLOCK_CELLS = 1 << 20


@dataclass(frozen=True)
class PaddedRows:
    """Rows of a sparse matrix as a dense array, padded at the right with score -inf."""

    rows: Ints  # shape: (R,)
    start: Ints  # shape: (R,) position of each row's first entry in the matrix
    scores: Floats  # shape: (R, W)


def top_k(predictions: csr_array, k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
    """Return label ids and scores of the k best candidates of each row, best first.

    Pairs in `exclude` are dropped before the ranking. Rows with fewer than k candidates are padded with id -1
    and score -inf. Column indices must be sorted, as `as_predictions` returns them.
    """
    points = predictions.shape[0]
    labels = predictions.indices
    scores = drop_excluded(predictions, exclude).data
    ids = np.full((points, k), -1, dtype=np.int64)  # shape: (N, k)
    best = np.full((points, k), -np.inf, dtype=scores.dtype)  # shape: (N, k)
    for block in padded_blocks(predictions.indptr, scores):
        width = min(k, block.scores.shape[1])
        columns = _best_columns(block.scores, width)  # shape: (R, width)
        values = np.take_along_axis(block.scores, columns, axis=1)
        # The position of a padded cell may lie beyond the last entry; its id becomes -1 in the next line.
        found = labels[np.minimum(block.start[:, None] + columns, len(labels) - 1)]
        ids[block.rows, :width] = np.where(values > -np.inf, found, -1)
        best[block.rows, :width] = values
    return ids, best


def drop_excluded(predictions: csr_array, exclude: csr_array | None) -> csr_array:
    """Return the candidates with score -inf for the pairs in `exclude`."""
    if exclude is None or exclude.nnz == 0:
        return predictions
    positions = find_pairs(predictions, *stored_pairs(exclude))
    scores = predictions.data.copy()
    scores[positions[positions >= 0]] = -np.inf
    return csr_array((scores, predictions.indices, predictions.indptr), shape=predictions.shape)


def keep_first_k(ids: Ints, exclude: csr_array | None, k: int) -> Ints:
    """Return the ids of N x K places; replace all ids after the first k that are not excluded by -1."""
    if exclude is None or ids.shape[1] <= k:
        return ids
    excluded = _excluded_places(ids, exclude)
    surplus = ~excluded & (np.cumsum(~excluded, axis=1) > k)
    return np.where(surplus, -1, ids)


def drop_excluded_ids(ids: Ints, exclude: csr_array | None) -> Ints:
    """Return the ids of N x K places that are not excluded, in their order, followed by -1."""
    dropped = ids < 0 if exclude is None else (ids < 0) | _excluded_places(ids, exclude)
    order = np.argsort(dropped, axis=1, kind="stable")
    return np.take_along_axis(np.where(dropped, -1, ids), order, axis=1)


def _excluded_places(ids: Ints, exclude: csr_array) -> npt.NDArray[np.bool_]:
    """Mark the places of excluded pairs."""  # shape: (N, K)
    labels = exclude.shape[1]
    pairs = np.repeat(np.arange(len(ids)), np.diff(exclude.indptr)) * labels + exclude.indices
    return np.isin(np.arange(len(ids))[:, None] * labels + ids, pairs)


def stored_pairs(matrix: csr_array) -> tuple[Ints, Ints]:
    """Return the row and column of every stored entry."""
    rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
    return rows, matrix.indices.astype(np.int64)


def find_pairs(matrix: csr_array, rows: Ints, columns: Ints) -> Ints:
    """Return the position of each (row, column) pair among the stored entries, or -1.

    One bisection handles all pairs. This is cheaper than a key for every stored entry, because there are far
    fewer pairs than candidates.
    """
    low, high = matrix.indptr[rows].astype(np.int64), matrix.indptr[rows + 1].astype(np.int64)
    end = high.copy()
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        below = open_ & (matrix.indices[np.minimum(middle, matrix.nnz - 1)] < columns)
        low = np.where(below, middle + 1, low)
        high = np.where(open_ & ~below, middle, high)
    found = low < end
    found[found] = matrix.indices[low[found]] == columns[found]
    return np.where(found, low, -1)


def padded_blocks(indptr: npt.NDArray[np.integer], scores: Floats) -> Iterator[PaddedRows]:
    """Cut the rows into dense blocks of rows with similar widths, so that padding is small."""
    widths = np.diff(indptr)
    uniform = len(widths) > 0 and widths.min() == widths.max()
    order = np.arange(len(widths)) if uniform else np.argsort(widths, kind="stable")
    order = order[np.searchsorted(widths[order], 1) :] if len(order) else order  # skip empty rows
    at = 0
    while at < len(order):
        most = order[at : at + max(1, BLOCK_CELLS // int(widths[order[at]]))]
        fits = np.arange(1, len(most) + 1) * widths[most] <= BLOCK_CELLS  # widths rise, so True, then False
        rows = most[: max(1, int(fits.sum()))]
        start, width = indptr[rows].astype(np.int64), int(widths[rows[-1]])
        if uniform:  # consecutive in memory
            dense = scores[start[0] : start[0] + width * len(rows)].reshape(len(rows), width)
        else:
            dense = _gather(scores, start, widths[rows], width)
        yield PaddedRows(rows, start, dense)
        at += len(rows)


def _gather(scores: Floats, start: Ints, widths: npt.NDArray[np.integer], width: int) -> Floats:
    columns = np.arange(width)
    inside = columns < widths[:, None]
    cells = np.minimum(start[:, None] + columns, len(scores) - 1)
    return np.where(inside, scores[cells], scores.dtype.type(-np.inf))


def _best_columns(scores: Floats, k: int) -> Ints:
    """Return the columns of the k largest values of each row, ties from the left."""  # shape: (R, k)
    rows, width = scores.shape
    if k < width:
        last = np.partition(scores, width - k, axis=1)[:, width - k, None]  # the k-th largest value
        chosen = scores > last
        tied = scores == last
        room = k - chosen.sum(axis=1)
        crowded = tied.sum(axis=1) > room  # rows in which not all tied columns fit
        tied[crowded] &= np.cumsum(tied[crowded], axis=1) <= room[crowded, None]
        columns = np.nonzero(chosen | tied)[1].reshape(rows, k)
    else:
        columns = np.broadcast_to(np.arange(width), (rows, width))
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
