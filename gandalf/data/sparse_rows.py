"""Compute facts of sparse rows that several rooms need."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]

_ROWS = 1 << 18  # rows per call of `bincount`, which bounds its memory


def products_by_label(targets: csr_array) -> Ints:
    """Return the cost of each label's co-occurrences: the sum of the labels on each of its points."""
    sizes = np.diff(targets.indptr)
    total = np.zeros(targets.shape[1])  # shape: (L,)
    for start in range(0, targets.shape[0], _ROWS):
        here = sizes[start : start + _ROWS]
        labels = targets.indices[targets.indptr[start] : targets.indptr[start + len(here)]]
        total += np.bincount(labels, np.repeat(here, here), minlength=len(total))
    return total.astype(np.int64)


def random_entries(matrix: csr_array, rows: npt.NDArray[np.integer[Any]], rng: np.random.Generator) -> Ints:
    """Draw a random column of each given row, all its entries equally likely; no row may be empty."""
    start, end = matrix.indptr[rows], matrix.indptr[rows + 1]
    places = start + (rng.random(len(rows)) * (end - start)).astype(np.int64)
    return np.asarray(matrix.indices[places], dtype=np.int64)
