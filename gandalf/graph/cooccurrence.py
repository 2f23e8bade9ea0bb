"""Which labels stand together on a point: counts, and the graph of conditional probabilities they give.

Row j of every matrix here belongs to the label whose *text is the input*; column i is a label it may carry.
The full matrix of counts is far larger than what survives the threshold, so it is made in blocks of labels
on all cores, and each block is thresholded before the next one begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.sparse_rows import products_by_label
from gandalf.errors import DataError
from gandalf.graph.kernels import Arrays, Kernel, compiled
from gandalf.graph.own_points import SEEN, leave_out
from gandalf.progress import meter

Floats = npt.NDArray[np.float64]
Block = tuple[int, int]  # labels [first, last)

# Products of one block: bounds its memory to some 50 MB (an index, a count, a score and copies of them).
BLOCK = 2_000_000
# Products from which it pays to load the compiled loop.
LARGE = 50_000_000


class Estimate(Protocol):
    """An estimate of P(i | j) from three numbers: how often i and j stand together, how often j, how often i.

    `score` is compared with the threshold; `target` turns a score into the value that stands in the graph,
    in (0, 1]. `below_ratio` promises score <= joint / given, so that hopeless pairs need not be scored.
    """

    @property
    def unit_diagonal(self) -> bool:
        """Whether a label's own target is 1; otherwise it is what the estimate says of the pair (j, j)."""

    @property
    def below_ratio(self) -> bool:
        """Whether the score is never above joint / given."""

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Score of each pair from its joint count and the frequencies of its input label and its target."""

    def target(self, score: Floats) -> Floats:
        """Value in the graph for each score."""


def frequencies(targets: csr_array) -> Floats:
    """Sum of each label's targets: its number of points where targets are 0 or 1."""  # shape: (L,)
    total = np.zeros(targets.shape[1])
    for start in range(0, targets.nnz, BLOCK):  # `bincount` widens what it is given: a piece at a time
        piece = slice(start, start + BLOCK)
        total += np.bincount(targets.indices[piece], targets.data[piece], minlength=len(total))
    return total


def counts(targets: csr_array, labels: npt.ArrayLike | None = None) -> csr_array:
    """Joint sums of the given labels (rows, in the order given; all by default) with every label.

    The entry of a label with itself is its frequency. Nothing is dropped: ask for few labels of a large set.
    """
    rows = np.arange(targets.shape[1]) if labels is None else np.asarray(labels, dtype=np.int64)
    points, by_label = _both_ways(targets)
    joint = csr_array(by_label[rows].astype(points.dtype) @ points).astype(np.float64)
    joint.sort_indices()
    own = joint.indices == np.repeat(rows, np.diff(joint.indptr))
    joint.data[own] = frequencies(targets)[joint.indices[own]]
    return joint


def conditional_graph(
    targets: csr_array,
    estimate: Estimate,
    *,
    delta: float = 0.1,
    top_k: int | None = None,
    own: csr_array | None = None,
    threads: int | None = None,
) -> csr_array:
    """Label graph (L x L, float32) of an estimate: entries with a score strictly above `delta`, and itself.

    `top_k` keeps at most that many entries of a row, its diagonal always among them: the largest scores,
    the smaller label where they tie. `own` (L x N, see `own_points`) names points to leave out of each
    label's counts. The result does not depend on the number of threads (default: one for each core).
    """
    check_threshold(delta, top_k)
    frequency = frequencies(targets)
    # A little below delta x given, lest rounding drop a pair that the exact comparison would keep.
    prune = estimate.below_ratio and own is None
    least = (1 - 1e-9) * delta * frequency if prune else np.zeros(len(frequency))
    work, joint_sums = _plan(targets)
    keep = _Keep(estimate, delta, top_k)

    def rows(block: Block) -> _Rows:
        pairs = _pairs(joint_sums(block, least), block, frequency)
        if own is not None:
            pairs = _left_out(pairs, block, own, targets, frequency)
        return _thresholded(pairs, np.arange(*block), frequency, keep)

    return _stacked(_in_threads(rows, _blocks(work), work, threads), len(frequency))


def check_threshold(delta: float, top_k: int | None = None) -> None:
    """Refuse a threshold that is no probability below 1, and a row of no entries."""
    if not 0 <= delta < 1:
        raise DataError(f"delta is {delta}, but a threshold on a probability lies in [0, 1)")
    if top_k is not None and top_k < 1:
        raise DataError(f"top-k is {top_k}, but a row keeps at least its own label")


def largest_entries(
    row: npt.NDArray[np.int64], column: npt.NDArray[np.integer[Any]], score: Floats, k: int
) -> npt.NDArray[np.int64]:
    """Where the k largest entries of each row stand, the smaller label first where they tie; rows ascend."""
    order = np.lexsort((column, -score, row))
    rank = np.arange(len(order)) - np.searchsorted(row, row)  # the sort leaves the rows in place
    return np.sort(order[rank < k])


class _Rows(NamedTuple):
    """Consecutive rows of a sparse matrix, sorted by column."""

    lengths: npt.NDArray[np.int64]  # shape: (rows,)
    columns: npt.NDArray[np.int32]  # shape: (entries,)
    values: npt.NDArray[np.floating[Any] | np.integer[Any]]  # shape: (entries,)


class _Pairs(NamedTuple):
    """Pairs (row, column) of labels and their counts, by row and column."""  # shape of each: (P,)

    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int32]
    joint: Floats
    given: Floats
    other: Floats


class _Keep(NamedTuple):
    estimate: Estimate
    delta: float
    top_k: int | None


def _both_ways(targets: csr_array) -> tuple[csr_array, csr_array]:
    """Targets by point and by label, in numbers wide enough for exact sums.

    Large sets are 0 or 1: those are not copied, and the second matrix holds bits.
    """
    points = csr_array(targets)
    if not points.has_canonical_format or (points.data == 0).any():
        points = points.copy()
        points.sum_duplicates()
        points.eliminate_zeros()
    if points.nnz < 2**31:  # half the memory to walk through
        narrow = points.indices.astype(np.int32, copy=False), points.indptr.astype(np.int32, copy=False)
        points = csr_array((points.data, *narrow), shape=points.shape)
    if points.shape[0] >= 2**24 or not (points.data == 1).all():  # float32 counts to 2^24
        points = points.astype(np.float64, copy=False)
        return points, csr_array(points.T)
    ones = csr_array((np.ones(points.nnz, dtype=bool), points.indices, points.indptr), shape=points.shape)
    return points.astype(np.float32, copy=False), csr_array(ones.T)


def _blocks(work: npt.NDArray[np.integer[Any]], budget: int = BLOCK) -> list[Block]:
    """Cut the labels where their work passes a multiple of the budget."""
    cuts = np.flatnonzero(np.diff(np.cumsum(work, dtype=np.int64) // budget)) + 1
    return list(pairwise([0, *cuts.tolist(), len(work)]))


def _plan(targets: csr_array) -> tuple[npt.NDArray[np.int64], Callable[[Block, Floats], _Rows]]:
    """Products behind each row, and the function that gives the joint sums above `least` of a block."""
    points, by_label = _both_ways(targets)
    work = products_by_label(points)
    kernel = compiled() if work.sum() >= LARGE else None
    if kernel is None:
        return work, partial(_by_scipy, points, by_label)
    return work, partial(_by_kernel, kernel, _arrays(points), _arrays(by_label), work)


def _by_scipy(points: csr_array, by_label: csr_array, block: Block, least: Floats) -> _Rows:
    joint = csr_array(by_label[slice(*block)].astype(points.dtype) @ points)
    joint.data[joint.data <= np.repeat(least[slice(*block)], np.diff(joint.indptr))] = 0
    joint.eliminate_zeros()
    joint.sort_indices()
    return _Rows(np.diff(joint.indptr), joint.indices, joint.data)


def _by_kernel(
    kernel: Kernel, points: Arrays, by_label: Arrays, work: npt.NDArray[np.int64], block: Block, least: Floats
) -> _Rows:
    room = int(np.minimum(work[slice(*block)], len(work)).sum())
    lengths, columns, sums = kernel(by_label, points, block, least, room)
    return _Rows(lengths, columns.view(f"i{columns.itemsize}"), sums)


def _arrays(matrix: csr_array) -> Arrays:
    """What the compiled loop reads of a matrix."""
    # Targets that are all 1 need not be read: an empty array stands for them, its type that of the sums.
    values = matrix.data if matrix.dtype == np.float64 else np.empty(0, dtype=np.float32)
    # Unsigned, because a signed index is checked for counting from the end: a quarter of the time.
    unsigned = f"u{matrix.indices.itemsize}"
    return matrix.indptr.view(unsigned), matrix.indices.view(unsigned), values


def _in_threads(
    rows: Callable[[Block], _Rows],
    blocks: list[Block],
    work: npt.NDArray[np.int64],
    threads: int | None,
) -> Iterator[_Rows]:
    """Rows of the blocks in order, made side by side."""
    with (
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
        meter("label graph", float(work.sum())) as bar,
    ):
        for block, part in zip(blocks, pool.map(rows, blocks), strict=True):
            bar.advance(float(work[slice(*block)].sum()))
            yield part


def _pairs(joint: _Rows, block: Block, frequency: Floats) -> _Pairs:
    row, column = np.repeat(np.arange(*block), joint.lengths), joint.columns
    return _Pairs(row, column, joint.values.astype(np.float64), frequency[row], frequency[column])


def _left_out(pairs: _Pairs, block: Block, own: csr_array, targets: csr_array, frequency: Floats) -> _Pairs:
    """The pairs as they are without each label's own points; those that stand together nowhere else go."""
    places = pairs.row - block[0], pairs.column.astype(np.int64), pairs.joint
    found = leave_out(csr_array(own[slice(*block)]), targets, np.arange(*block), places, frequency)
    seen = found.joint > SEEN
    labels = pairs.row[seen], pairs.column[seen]
    return _Pairs(*labels, found.joint[seen], found.given[seen], found.other[seen])


def _thresholded(pairs: _Pairs, labels: npt.NDArray[np.int64], frequency: Floats, keep: _Keep) -> _Rows:
    """Rows of the graph for consecutive labels, given all their pairs."""
    estimate, delta, top_k = keep
    score = estimate.score(pairs.joint, pairs.given, pairs.other)
    kept = (score > delta) & (pairs.column != pairs.row)
    row, column, score = pairs.row[kept], pairs.column[kept], score[kept]
    if top_k is not None:
        best = largest_entries(row, column, score, top_k - 1)
        row, column, score = row[best], column[best], score[best]
    first = labels[0] if len(labels) else 0
    lengths = np.bincount(row - first, minlength=len(labels))
    below = np.bincount(row[column < row] - first, minlength=len(labels))
    own = np.cumsum(lengths) - lengths + below  # where each label's own entry goes
    values = estimate.target(score).astype(np.float32)
    return _Rows(
        lengths + 1,
        np.insert(column, own, labels),
        np.insert(values, own, _own_targets(frequency[labels], estimate)),
    )


def _own_targets(frequency: Floats, estimate: Estimate) -> Floats:
    """Each label's target for its own text; a label without points is treated as one seen once."""
    if estimate.unit_diagonal:
        return np.ones(len(frequency))
    seen = np.where(frequency > 0, frequency, 1.0)
    return estimate.target(estimate.score(seen, seen, seen))


def _stacked(parts: Iterable[_Rows], labels: int) -> csr_array:
    """One L x L matrix of the rows as they come."""
    # Grown in place, so that the parts never stand in memory beside the whole.
    columns, values = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    lengths = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        end = len(columns)
        for whole, piece in ((columns, part.columns), (values, part.values)):
            whole.resize(end + len(piece), refcheck=False)
            whole[end:] = piece
        lengths.append(part.lengths)
    # Both kinds of index must be of one type, or SciPy copies; an int32 holds all but enormous graphs.
    wide = np.int32 if len(columns) < 2**31 else np.int64
    indptr = np.cumsum(np.concatenate(lengths), dtype=wide)
    return csr_array((values, columns.astype(wide, copy=False), indptr), shape=(labels, labels))
