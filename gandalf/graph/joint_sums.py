"""Compute joint sums in blocks of consecutive labels: how often two labels occur on one point.

Sums over parts of the points add up to the sum over all points, so a cluster can compute the parts
separately.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.compiled import compiled
from gandalf.data.sparse_rows import cooccurrence_costs

Floats = npt.NDArray[np.float64]
LabelRange = tuple[int, int]  # labels first, ..., last - 1 of a block
Array = npt.NDArray[Any]
Arrays = tuple[Array, Array, Array]  # indptr, indices, data
Kernel = Callable[..., tuple[Array, Array, Array]]

# Products of one block; they take about 50 MB (an index, a count, a score and copies).
BLOCK_PRODUCTS = 2_000_000
# With at least this many products, loading the compiled loop saves time.
LARGE = 50_000_000
EXACT = 2**24  # float32 represents all integers up to this value


class RowBlock(NamedTuple):
    """Consecutive rows of a sparse matrix, sorted by column."""

    lengths: npt.NDArray[np.int64]  # shape: (rows,)
    columns: npt.NDArray[np.int32]  # shape: (entries,)
    values: npt.NDArray[np.floating[Any] | np.integer[Any]]  # shape: (entries,)


def by_point_and_label(targets: csr_array) -> tuple[csr_array, csr_array]:
    """Return the targets by point and by label, in a type that sums exactly.

    Hard targets are not copied, and their second matrix holds booleans, which saves memory for large sets.
    """
    points = csr_array(targets)
    if not points.has_canonical_format or (points.data == 0).any():
        points = points.copy()
        points.sum_duplicates()
        points.eliminate_zeros()
    if points.nnz < 2**31:  # int32 indices halve the memory traffic
        narrow = points.indices.astype(np.int32, copy=False), points.indptr.astype(np.int32, copy=False)
        points = csr_array((points.data, *narrow), shape=points.shape)
    if points.shape[0] >= EXACT or not (points.data == 1).all():
        points = points.astype(np.float64, copy=False)
        return points, csr_array(points.T)
    ones = csr_array((np.ones(points.nnz, dtype=bool), points.indices, points.indptr), shape=points.shape)
    return points.astype(np.float32, copy=False), csr_array(ones.T)


def cut_blocks(costs: npt.NDArray[np.integer[Any]], budget: int = BLOCK_PRODUCTS) -> list[LabelRange]:
    """Cut the labels into blocks of about `budget` products each."""
    cuts = np.flatnonzero(np.diff(np.cumsum(costs, dtype=np.int64) // budget)) + 1
    return list(pairwise([0, *cuts.tolist(), len(costs)]))


def plan_sums(
    points: csr_array, by_label: csr_array
) -> tuple[npt.NDArray[np.int64], Callable[[LabelRange, Floats], RowBlock]]:
    """Return the number of products of each label, and the function that sums a block.

    The function returns the joint sums of a block that are above `least`. The two arguments are the results
    of `by_point_and_label`.
    """
    costs = cooccurrence_costs(points)
    kernel = compiled(_joint_sums_loop) if costs.sum() >= LARGE else None
    if kernel is None:
        return costs, partial(_sums_by_scipy, points, by_label)
    return costs, partial(_sums_by_kernel, kernel, _arrays(points), _arrays(by_label), costs)


def _sums_by_scipy(points: csr_array, by_label: csr_array, block: LabelRange, least: Floats) -> RowBlock:
    joint = csr_array(by_label[slice(*block)].astype(points.dtype) @ points)
    joint.data[joint.data <= np.repeat(least[slice(*block)], np.diff(joint.indptr))] = 0
    joint.eliminate_zeros()
    joint.sort_indices()
    return RowBlock(np.diff(joint.indptr), joint.indices, joint.data)


def _sums_by_kernel(
    kernel: Kernel,
    points: Arrays,
    by_label: Arrays,
    costs: npt.NDArray[np.int64],
    block: LabelRange,
    least: Floats,
) -> RowBlock:
    room = int(np.minimum(costs[slice(*block)], len(costs)).sum())
    lengths, columns, sums = kernel(by_label, points, block, least, room)
    return RowBlock(lengths, columns.view(f"i{columns.itemsize}"), sums)


def _arrays(matrix: csr_array) -> Arrays:
    """Return the arrays of a matrix that the compiled loop reads."""
    # An empty array means that all targets are 1; its type is the type of the sums.
    values = matrix.data if matrix.dtype == np.float64 else np.empty(0, dtype=np.float32)
    # Unsigned, because numba checks signed indices for negative values, which takes a quarter of the time.
    unsigned = f"u{matrix.indices.itemsize}"
    return matrix.indptr.view(unsigned), matrix.indices.view(unsigned), values


# The loop that numba compiles: joint sums of a block, kept if above `least`.
def _joint_sums_loop(
    labels: Arrays,
    points: Arrays,
    block: tuple[int, int],
    least: Array,
    room: int,
) -> tuple[Array, Array, Array]:
    """Return lengths, sorted columns and joint sums of a block's rows, for sums above least[label].

    `labels` and `points` are (indptr, indices, data) of the targets by label and by point; empty `data` means
    that every target is 1. `room` is an upper bound of the entries of the block.
    """
    (label_start, label_points, label_values), (point_start, point_labels, point_values) = labels, points
    first, last = block
    sums = np.zeros(len(label_start) - 1, dtype=point_values.dtype)
    met = np.empty(len(sums), dtype=point_labels.dtype)
    columns, joint = np.empty(room, dtype=point_labels.dtype), np.empty(room, dtype=point_values.dtype)
    lengths = np.zeros(last - first, dtype=np.int64)
    graded, end = len(point_values) > 0, 0
    for j in range(first, last):
        number = 0
        for a in range(label_start[j], label_start[j + 1]):
            s = label_points[a]
            for b in range(point_start[s], point_start[s + 1]):
                i = point_labels[b]
                if sums[i] == 0:
                    met[number] = i
                    number += 1
                sums[i] += label_values[a] * point_values[b] if graded else 1
        begin = end
        for i in met[:number]:
            if sums[i] > least[j]:
                columns[end] = i
                end += 1
        columns[begin:end].sort()
        for b in range(begin, end):
            joint[b] = sums[columns[b]]
        for i in met[:number]:
            sums[i] = 0
        lengths[j - first] = end - begin
    return lengths, columns[:end].copy(), joint[:end].copy()
