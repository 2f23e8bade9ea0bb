"""Count labels that occur together on a point, and build the graph of conditional probabilities.

In every matrix here, row j belongs to the label whose *text is the input*, and column i to a possible target.
The full matrix of counts is far larger than the graph. So threads count blocks of labels, and apply the
threshold to each block at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.graph.joint_sums import (
    BLOCK_PRODUCTS,
    Floats,
    LabelRange,
    RowBlock,
    by_point_and_label,
    cut_blocks,
    plan_sums,
)
from gandalf.graph.matched_points import SEEN, MatchedSums, leave_out, matched_sums
from gandalf.progress import meter


class Estimate(Protocol):
    """An estimate of P(i | j) from three counts: of i and j together, of j, and of i.

    The threshold is compared with `score`. `target` turns a score into the value in the graph, in (0, 1].
    """

    @property
    def unit_diagonal(self) -> bool:
        """Return True if a label's own target is 1; otherwise the estimate scores the pair (j, j)."""
        return True

    @property
    def below_ratio(self) -> bool:
        """Return True if no score is above joint / given, so that pairs with a lower ratio need no score."""
        return False

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Score each pair from its joint count and the frequencies of its input label and its target."""
        ...

    def target(self, score: Floats) -> Floats:
        """Return the value in the graph for each score: the score itself."""
        return score


class PairRule(NamedTuple):
    """Rule for the pairs that the graph keeps: estimate, threshold, and most entries of a row."""

    estimate: Estimate
    delta: float
    top_k: int | None


def frequencies(targets: csr_array) -> Floats:
    """Sum the targets of each label; for hard targets this is the number of points."""  # shape: (L,)
    total = np.zeros(targets.shape[1])
    for start in range(0, targets.nnz, BLOCK_PRODUCTS):  # in pieces: `bincount` copies its input to float64
        piece = slice(start, start + BLOCK_PRODUCTS)
        total += np.bincount(targets.indices[piece], targets.data[piece], minlength=len(total))
    return total


def counts_together(targets: csr_array, labels: npt.ArrayLike | None = None) -> csr_array:
    """Return the joint sums of `labels` (rows, in this order; default: all) with every label.

    The entry of a label with itself is its frequency. No entry is dropped, so give few labels of a large set.
    """
    rows = np.arange(targets.shape[1]) if labels is None else np.asarray(labels, dtype=np.int64)
    points, by_label = by_point_and_label(targets)
    joint = csr_array(by_label[rows].astype(points.dtype) @ points).astype(np.float64)
    joint.sort_indices()
    diagonal = joint.indices == np.repeat(rows, np.diff(joint.indptr))
    joint.data[diagonal] = frequencies(targets)[joint.indices[diagonal]]
    return joint


def conditional_graph(
    targets: csr_array,
    estimate: Estimate,
    *,
    delta: float = 0.1,
    top_k: int | None = None,
    matched_points: csr_array | None = None,
    threads: int | None = None,
) -> csr_array:
    """Return the label graph (L x L, float32): the diagonal, and entries with a score strictly above `delta`.

    `top_k` keeps at most that many entries of a row: its diagonal and the largest scores; of equal scores,
    the smaller label. `matched_points` (L x N) marks points to leave out of each label's counts. The
    result does not depend on the number of threads (default: one for each core).
    """
    check_threshold(delta, top_k)
    frequency = frequencies(targets)
    rule = PairRule(estimate, delta, top_k)
    least = np.zeros(len(frequency)) if matched_points is not None else least_joint(rule, frequency)
    costs, joint_sums = plan_sums(*by_point_and_label(targets))

    def build_rows(block: LabelRange) -> RowBlock:
        sums = None
        if matched_points is not None:
            sums = matched_sums(csr_array(matched_points[slice(*block)]), targets, np.arange(*block))
        return graph_rows(joint_sums(block, least), block, frequency, rule, sums)

    return _stack(_build_in_threads(build_rows, costs, threads), len(frequency))


def least_joint(rule: PairRule, frequency: Floats) -> Floats:
    """Return the joint sum that a pair of each label must exceed to pass the threshold."""  # shape: (L,)
    if not rule.estimate.below_ratio:
        return np.zeros(len(frequency))
    # Slightly below delta x given, so that rounding drops no pair that the exact comparison keeps.
    return np.asarray((1 - 1e-9) * rule.delta * frequency)


def graph_rows(
    joint: RowBlock, block: LabelRange, frequency: Floats, rule: PairRule, matched: MatchedSums | None = None
) -> RowBlock:
    """Return the rows of the graph for a block of labels, from their joint sums with all labels.

    `matched` holds the sums of the points to leave out of each label's counts.
    """
    pairs = _pairs_of_block(joint, block, frequency)
    if matched is not None:
        pairs = _leave_out_matched(pairs, block, matched, frequency)
    return _apply_threshold(pairs, np.arange(*block), frequency, rule)


def check_threshold(delta: float, top_k: int | None = None) -> None:
    """Raise a DataError unless 0 <= delta < 1 and top_k is at least 1."""
    if not 0 <= delta < 1:
        raise DataError(f"delta is {delta}, but a threshold on a probability lies in [0, 1)")
    if top_k is not None and top_k < 1:
        raise DataError(f"top-k is {top_k}, but a row keeps at least its own label")


def largest_entries(
    row: npt.NDArray[np.int64], column: npt.NDArray[np.integer[Any]], score: Floats, k: int
) -> npt.NDArray[np.int64]:
    """Return the positions of the k largest entries of each row, the smaller label if equal; rows must
    ascend."""
    order = np.lexsort((column, -score, row))
    rank = np.arange(len(order)) - np.searchsorted(row, row)  # rows ascend before and after the sort
    return np.sort(order[rank < k])


def sample_by_pairs(
    costs: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], generator: np.random.Generator, most: int
) -> npt.NDArray[np.int64]:
    """Draw labels until they have about `most` pairs; return the drawn labels sorted.

    `costs` is `cooccurrence_costs` of the targets.
    """
    drawn = generator.permutation(labels)
    enough = int(np.searchsorted(np.cumsum(costs[drawn]), most)) + 1  # a cost bounds the pairs of a label
    return np.sort(drawn[:enough])


class _Pairs(NamedTuple):
    """Pairs (row, column) of labels with their counts, by row and column."""  # shape of each: (P,)

    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int32]
    joint: Floats
    given: Floats
    other: Floats


def _build_in_threads(
    build_rows: Callable[[LabelRange], RowBlock], costs: npt.NDArray[np.int64], threads: int | None
) -> Iterator[RowBlock]:
    """Yield the rows of all blocks of labels in order, built in threads."""
    blocks = cut_blocks(costs)
    with (
        ThreadPoolExecutor(threads or os.cpu_count()) as pool,
        meter("label graph", float(costs.sum())) as bar,
    ):
        for block, part in zip(blocks, pool.map(build_rows, blocks), strict=True):
            bar.advance(float(costs[slice(*block)].sum()))
            yield part


def _pairs_of_block(joint: RowBlock, block: LabelRange, frequency: Floats) -> _Pairs:
    row, column = np.repeat(np.arange(*block), joint.lengths), joint.columns
    return _Pairs(row, column, joint.values.astype(np.float64), frequency[row], frequency[column])


def _leave_out_matched(pairs: _Pairs, block: LabelRange, matched: MatchedSums, frequency: Floats) -> _Pairs:
    """Leave each label's matched points out of the counts; drop pairs that then no longer occur together."""
    places = pairs.row - block[0], pairs.column.astype(np.int64), pairs.joint
    counts = leave_out(matched, np.arange(*block), places, frequency)
    seen = counts.joint > SEEN
    labels = pairs.row[seen], pairs.column[seen]
    return _Pairs(*labels, counts.joint[seen], counts.given[seen], counts.other[seen])


def _apply_threshold(
    pairs: _Pairs, labels: npt.NDArray[np.int64], frequency: Floats, rule: PairRule
) -> RowBlock:
    """Return the rows of the graph for consecutive labels, from all their pairs."""
    estimate, delta, top_k = rule
    score = estimate.score(pairs.joint, pairs.given, pairs.other)
    kept = (score > delta) & (pairs.column != pairs.row)
    row, column, score = pairs.row[kept], pairs.column[kept], score[kept]
    if top_k is not None:
        best = largest_entries(row, column, score, top_k - 1)
        row, column, score = row[best], column[best], score[best]
    first = labels[0] if len(labels) else 0
    lengths = np.bincount(row - first, minlength=len(labels))
    below = np.bincount(row[column < row] - first, minlength=len(labels))
    diagonal = np.cumsum(lengths) - lengths + below  # position of each label's diagonal entry
    values = estimate.target(score).astype(np.float32)
    return RowBlock(
        lengths + 1,
        np.insert(column, diagonal, labels),
        np.insert(values, diagonal, _diagonal_targets(frequency[labels], estimate)),
    )


def _diagonal_targets(frequency: Floats, estimate: Estimate) -> Floats:
    """Return the diagonal of the graph; a label without points counts as seen once."""
    if estimate.unit_diagonal:
        return np.ones(len(frequency))
    seen = np.where(frequency > 0, frequency, 1.0)
    return estimate.target(estimate.score(seen, seen, seen))


def _stack(parts: Iterable[RowBlock], labels: int) -> csr_array:
    """Stack the rows into one L x L matrix."""
    # The arrays grow in place, to avoid a second copy of the graph in memory.
    columns, values = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    lengths = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        end = len(columns)
        for whole, piece in ((columns, part.columns), (values, part.values)):
            whole.resize(end + len(piece), refcheck=False)
            whole[end:] = piece
        lengths.append(part.lengths)
    # SciPy copies the index arrays if their types differ. int32 is enough below 2**31 entries.
    wide = np.int32 if len(columns) < 2**31 else np.int64
    indptr = np.cumsum(np.concatenate(lengths), dtype=wide)
    return csr_array((values, columns.astype(wide, copy=False), indptr), shape=(labels, labels))
