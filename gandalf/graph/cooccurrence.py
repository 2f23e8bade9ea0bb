"""Which labels stand together on a point: counts, and the graph of conditional probabilities they give.

Row j of every matrix here belongs to the label whose *text is the input*; column i is a label it may carry.
The full matrix of counts is far larger than what survives the threshold, so it is made in blocks of labels
on all cores, and each block is thresholded before the next one begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from gandalf.errors import DataError
from gandalf.progress import meter

Floats = npt.NDArray[np.float64]
Block = tuple[int, int]  # labels [first, last)

# Products of one block: bounds its memory to about 100 MB (an index, a count and a score for each).
BLOCK = 4_000_000


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
    return np.bincount(
        targets.indices, weights=targets.data.astype(np.float64), minlength=targets.shape[1]
    ).astype(np.float64)


def counts(targets: csr_array, labels: npt.ArrayLike | None = None) -> csr_array:
    """Joint sums of the given labels (rows, in the order given; all by default) with every label.

    The entry of a label with itself is its frequency. Nothing is dropped: ask for few labels of a large set.
    """
    rows = np.arange(targets.shape[1]) if labels is None else np.asarray(labels, dtype=np.int64)
    points, by_label = _both_ways(targets)
    joint = csr_array(by_label[rows] @ points).astype(np.float64)
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
    threads: int | None = None,
) -> csr_array:
    """Label graph (L x L, float32) of an estimate: entries with a score strictly above `delta`, and itself.

    `top_k` keeps at most that many entries of a row, its diagonal always among them: the largest scores,
    the smaller label where they tie. The result does not depend on the number of threads (default: one
    for each core).
    """
    if not 0 <= delta < 1:
        raise DataError(f"delta is {delta}, but a threshold on a probability lies in [0, 1)")
    if top_k is not None and top_k < 1:
        raise DataError(f"top_k is {top_k}, but a row keeps at least its own label")
    points, by_label = _both_ways(targets)
    frequency = frequencies(points)
    work = _products(points, by_label)

    def rows(block: Block) -> csr_array:
        joint = csr_array(by_label[slice(*block)] @ points)
        return _thresholded(joint, block[0], frequency, estimate, delta, top_k)

    parts = _in_threads(rows, _blocks(work), work, threads)
    return csr_array(vstack(parts, format="csr"))


def _both_ways(targets: csr_array) -> tuple[csr_array, csr_array]:
    # Whole numbers where the targets are 0 or 1, so that counts are exact and half as wide as float64.
    points = csr_array(targets, copy=True)
    points.sum_duplicates()
    points.eliminate_zeros()
    points.data = points.data.astype(np.int32 if (points.data == 1).all() else np.float64)
    return points, csr_array(points.T)


def _products(points: csr_array, by_label: csr_array) -> npt.NDArray[np.int64]:
    """Number of products behind each label's row: the labels of its points, counted with repetition."""
    sizes = np.diff(points.indptr).astype(np.int64)
    before = np.zeros(by_label.nnz + 1, dtype=np.int64)
    np.cumsum(sizes[by_label.indices], out=before[1:])
    return np.diff(before[by_label.indptr])  # shape: (L,)


def _blocks(work: npt.NDArray[np.int64], budget: int = BLOCK) -> list[Block]:
    """Cut the labels where the work passes a multiple of the budget: even blocks, whatever the order."""
    cuts = np.flatnonzero(np.diff(np.cumsum(work) // budget)) + 1
    bounds = [0, *cuts.tolist(), len(work)]
    return list(pairwise(bounds))


def _in_threads(
    rows: Callable[[Block], csr_array], blocks: list[Block], work: npt.NDArray[np.int64], threads: int | None
) -> list[csr_array]:
    with (
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
        meter("label graph", float(work.sum())) as bar,
    ):

        def counted(block: Block) -> csr_array:
            part = rows(block)
            bar.advance(float(work[slice(*block)].sum()))
            return part

        return list(pool.map(counted, blocks))


def _thresholded(
    joint: csr_array,
    first: int,
    frequency: Floats,
    estimate: Estimate,
    delta: float,
    top_k: int | None,
) -> csr_array:
    """Rows of the graph for the labels from `first` on, given their rows of joint sums."""
    labels = np.arange(first, first + joint.shape[0])
    row = np.repeat(labels, np.diff(joint.indptr))
    keep = joint.indices != row
    if estimate.below_ratio:
        keep &= joint.data / frequency[row] > delta
    row, column, together = row[keep], joint.indices[keep], joint.data[keep].astype(np.float64)
    score = estimate.score(together, frequency[row], frequency[column])
    keep = score > delta
    row, column, score = row[keep], column[keep], score[keep]
    if top_k is not None:
        best = _best(row - first, column, score, top_k - 1)
        row, column, score = row[best], column[best], score[best]
    own = _own_targets(frequency[labels], estimate)
    values = np.concatenate([estimate.target(score), own]).astype(np.float32)
    places = np.concatenate([row, labels]) - first, np.concatenate([column, labels])
    part = csr_array((values, places), shape=joint.shape)
    part.sort_indices()
    return part


def _best(
    row: npt.NDArray[np.int64], column: npt.NDArray[np.int32], score: Floats, k: int
) -> npt.NDArray[np.int64]:
    """Where the k best entries of each row stand: largest score, then smallest label."""
    order = np.lexsort((column, -score, row))
    start = np.searchsorted(row[order], row[order])
    return order[np.arange(len(order)) - start < k]


def _own_targets(frequency: Floats, estimate: Estimate) -> Floats:
    """Each label's target for its own text; a label without points is treated as one seen once."""
    if estimate.unit_diagonal:
        return np.ones(len(frequency))
    seen = np.where(frequency > 0, frequency, 1.0)
    return estimate.target(estimate.score(seen, seen, seen))
