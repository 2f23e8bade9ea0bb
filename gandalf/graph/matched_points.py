"""Find the matched points of a label, whose text is the label text, and count pairs without them.

The matched points show the targets of the label text. Counts that *predict* these targets must leave the
matched points out, because a matched point with label i adds to the frequency of i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEEN = 1e-9  # smaller joint sums count as 0, because sums of soft targets have rounding errors


@dataclass(frozen=True)
class MatchedSums:
    """Sums of the targets of R labels' matched points. Sums over parts of the points add up."""

    num_points: Ints  # matched points of each label; shape: (R,)
    self_frequency: Floats  # sum of their targets of the label itself; shape: (R,)
    frequencies: csr_array  # sums of their targets of all labels; shape: (R, L)
    joint: csr_array  # their joint sums of the label itself with all labels; shape: (R, L)

    def __add__(self, other: MatchedSums) -> MatchedSums:
        return MatchedSums(
            self.num_points + other.num_points,
            self.self_frequency + other.self_frequency,
            csr_array(self.frequencies + other.frequencies),
            csr_array(self.joint + other.joint),
        )


@dataclass(frozen=True)
class PairCounts:
    """Counts of pairs (j, i), all without the matched points of j."""  # shape of each: (P,)

    joint: Floats
    given: Floats
    other: Floats
    matched_sum: Floats  # sum of the targets of i on the matched points of j


def matched_points(of_points: Ints, of_labels: Ints) -> csr_array:
    """Return a matrix (labels x points) with 1 if text numbers are equal."""
    order = np.argsort(of_points, kind="stable")
    first = np.searchsorted(of_points[order], of_labels)
    last = np.searchsorted(of_points[order], of_labels, side="right")
    indptr = np.concatenate([[0], np.cumsum(last - first)])
    places = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], last - first)
    # Use the index type of the targets; otherwise SciPy copies them to a wider type for each product.
    wide = np.int32 if indptr[-1] < 2**31 else np.int64
    indices, indptr = order[places].astype(wide), indptr.astype(wide)
    ones = np.ones(len(indices), dtype=np.float32)
    return csr_array((ones, indices, indptr), shape=(len(of_labels), len(of_points)))


def matched_sums(matched: csr_array, targets: csr_array, labels: Ints) -> MatchedSums:
    """Sum the targets of the matched points of `labels`, the rows of `matched`."""
    rows = csr_array(targets[matched.indices])  # the rows of matched points alone: cheap for any N
    if not (rows.data == 1).all():
        # Joint sums of soft targets are float64; in float32 differences would not become 0.
        rows, matched = rows.astype(np.float64), matched.astype(np.float64)
    places = np.arange(matched.nnz, dtype=matched.indices.dtype)
    holder = np.repeat(np.arange(len(labels)), np.diff(matched.indptr))
    # Only matched points with the label itself are in its joint counts and its frequency.
    self_target = entries_at(rows, places, labels[holder]).astype(rows.dtype)
    frequencies, joint = (
        csr_array(csr_array((weight, places, matched.indptr), shape=(len(labels), matched.nnz)) @ rows)
        for weight in (matched.data, self_target)
    )
    self_frequency = np.asarray(np.bincount(holder, self_target, minlength=len(labels)), dtype=np.float64)
    return MatchedSums(np.diff(matched.indptr).astype(np.int64), self_frequency, frequencies, joint)


def leave_out(
    sums: MatchedSums, labels: Ints, pairs: tuple[Ints, Ints, Floats], frequency: Floats
) -> PairCounts:
    """Count pairs (row, other label, joint) without the matched points of `labels`, the rows of `sums`."""
    row, column, joint = pairs
    matched_sum = entries_at(sums.frequencies, row, column)
    return PairCounts(
        joint=joint - entries_at(sums.joint, row, column),
        given=(frequency[labels] - sums.self_frequency)[row],
        other=frequency[column] - matched_sum,
        matched_sum=matched_sum,
    )


def entries_at(matrix: csr_array, rows: npt.NDArray[np.integer], columns: npt.NDArray[np.integer]) -> Floats:
    """Return the entries of a sparse matrix at the given places."""
    if not len(rows):
        return np.empty(0)  # without places SciPy returns a matrix, not an array
    return np.asarray(csr_matrix(matrix)[rows, columns], dtype=np.float64).ravel()
