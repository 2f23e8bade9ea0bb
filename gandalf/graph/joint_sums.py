"""Joint sums in blocks of consecutive labels: how often two labels occur on one point.

Sums over parts of the points add up to the sum over all points, so parts may be counted apart.
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
from gandalf.data.sparse_rows import products_by_label

Floats = npt.NDArray[np.float64]
Block = tuple[int, int]  # labels [first, last)
Array = npt.NDArray[Any]
Arrays = tuple[Array, Array, Array]  # indptr, indices, data
Kernel = Callable[..., tuple[Array, Array, Array]]

# Products of one block: some 50 MB of memory (an index, a count, a score and copies of them).
BLOCK_PRODUCTS = 2_000_000
# From so many products on, loading the compiled loop pays.
LARGE = 50_000_000
EXACT = 2**24  # float32 counts exactly up to here


class Rows(NamedTuple):
    """Consecutive rows of a sparse matrix, sorted by column."""

    lengths: npt.NDArray[np.int64]  # shape: (rows,)
    columns: npt.NDArray[np.int32]  # shape: (entries,)
    values: npt.NDArray[np.floating[Any] | np.integer[Any]]  # shape: (entries,)


def both_ways(targets: csr_array) -> tuple[csr_array, csr_array]:
    """Return the targets by point and by label, in numbers wide enough for exact sums.

    Large sets have targets of 0 or 1: these are not copied, and the second matrix holds booleans.
    """
    points = csr_array(targets)
    if not points.has_canonical_format or (points.data == 0).any():
        points = points.copy()
        points.sum_duplicates()
        points.eliminate_zeros()
    if points.nnz < 2**31:  # halves the memory to read
        narrow = points.indices.astype(np.int32, copy=False), points.indptr.astype(np.int32, copy=False)
        points = csr_array((points.data, *narrow), shape=points.shape)
    if points.shape[0] >= EXACT or not (points.data == 1).all():
        points = points.astype(np.float64, copy=False)
        return points, csr_array(points.T)
    ones = csr_array((np.ones(points.nnz, dtype=bool), points.indices, points.indptr), shape=points.shape)
    return points.astype(np.float32, copy=False), csr_array(ones.T)


def blocks(work: npt.NDArray[np.integer[Any]], budget: int = BLOCK_PRODUCTS) -> list[Block]:
    """Cut the labels where their work passes a multiple of the budget."""
    cuts = np.flatnonzero(np.diff(np.cumsum(work, dtype=np.int64) // budget)) + 1
    return list(pairwise([0, *cuts.tolist(), len(work)]))


def plan(
    points: csr_array, by_label: csr_array
) -> tuple[npt.NDArray[np.int64], Callable[[Block, Floats], Rows]]:
    """Return the products behind each row, and the function that sums a block.

    That function returns the block's joint sums above `least`. Give the targets by point and by label, as
    `both_ways` returns them.
    """
    work = products_by_label(points)
    kernel = compiled(_joint_rows) if work.sum() >= LARGE else None
    if kernel is None:
        return work, partial(_by_scipy, points, by_label)
    return work, partial(_by_kernel, kernel, _arrays(points), _arrays(by_label), work)


def _by_scipy(points: csr_array, by_label: csr_array, block: Block, least: Floats) -> Rows:
    joint = csr_array(by_label[slice(*block)].astype(points.dtype) @ points)
    joint.data[joint.data <= np.repeat(least[slice(*block)], np.diff(joint.indptr))] = 0
    joint.eliminate_zeros()
    joint.sort_indices()
    return Rows(np.diff(joint.indptr), joint.indices, joint.data)


def _by_kernel(
    kernel: Kernel, points: Arrays, by_label: Arrays, work: npt.NDArray[np.int64], block: Block, least: Floats
) -> Rows:
    room = int(np.minimum(work[slice(*block)], len(work)).sum())
    lengths, columns, sums = kernel(by_label, points, block, least, room)
    return Rows(lengths, columns.view(f"i{columns.itemsize}"), sums)


def _arrays(matrix: csr_array) -> Arrays:
    """Return the arrays of a matrix that the compiled loop reads."""
    # An empty array stands for targets that are all 1; its type is that of the sums.
    values = matrix.data if matrix.dtype == np.float64 else np.empty(0, dtype=np.float32)
    # numba checks every signed index for counting from the end, which takes a quarter of the time.
    unsigned = f"u{matrix.indices.itemsize}"
    return matrix.indptr.view(unsigned), matrix.indices.view(unsigned), values


# The one loop worth compiling: joint sums of a block, kept only above `least`.
def _joint_rows(
    labels: Arrays,
    points: Arrays,
    block: tuple[int, int],
    least: Array,
    room: int,
) -> tuple[Array, Array, Array]:
    """Return lengths, sorted columns and joint sums above least[label] of the rows of labels [first, last).

    `labels` and `points` are (indptr, indices, data) of both directions; empty `data` means that every
    target is 1. `room` bounds the entries of the block.
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
