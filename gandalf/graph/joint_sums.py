"""Joint sums of labels in blocks of consecutive labels: how often two labels stand on one point.

Sums over parts of the points add up to the sum over all of them, so parts may be counted apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.sparse_rows import products_by_label
from gandalf.graph.kernels import Arrays, Kernel, compiled

Floats = npt.NDArray[np.float64]
Block = tuple[int, int]  # labels [first, last)

# Products of one block: bounds its memory to some 50 MB (an index, a count, a score and copies of them).
BLOCK = 2_000_000
# Products from which it pays to load the compiled loop.
LARGE = 50_000_000
EXACT = 2**24  # float32 counts so far


class Rows(NamedTuple):
    """Consecutive rows of a sparse matrix, sorted by column."""

    lengths: npt.NDArray[np.int64]  # shape: (rows,)
    columns: npt.NDArray[np.int32]  # shape: (entries,)
    values: npt.NDArray[np.floating[Any] | np.integer[Any]]  # shape: (entries,)


def both_ways(targets: csr_array) -> tuple[csr_array, csr_array]:
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
    if points.shape[0] >= EXACT or not (points.data == 1).all():
        points = points.astype(np.float64, copy=False)
        return points, csr_array(points.T)
    ones = csr_array((np.ones(points.nnz, dtype=bool), points.indices, points.indptr), shape=points.shape)
    return points.astype(np.float32, copy=False), csr_array(ones.T)


def blocks(work: npt.NDArray[np.integer[Any]], budget: int = BLOCK) -> list[Block]:
    """Cut the labels where their work passes a multiple of the budget."""
    cuts = np.flatnonzero(np.diff(np.cumsum(work, dtype=np.int64) // budget)) + 1
    return list(pairwise([0, *cuts.tolist(), len(work)]))


def plan(
    points: csr_array, by_label: csr_array
) -> tuple[npt.NDArray[np.int64], Callable[[Block, Floats], Rows]]:
    """Products behind each row, and the function that gives the joint sums above `least` of a block.

    The targets are given by point and by label, see `both_ways`.
    """
    work = products_by_label(points)
    kernel = compiled() if work.sum() >= LARGE else None
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
    """What the compiled loop reads of a matrix."""
    # Targets that are all 1 need not be read: an empty array stands for them, its type that of the sums.
    values = matrix.data if matrix.dtype == np.float64 else np.empty(0, dtype=np.float32)
    # Unsigned, because a signed index is checked for counting from the end: a quarter of the time.
    unsigned = f"u{matrix.indices.itemsize}"
    return matrix.indptr.view(unsigned), matrix.indices.view(unsigned), values
