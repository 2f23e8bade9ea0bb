"""Count and draw entries of sparse matrices row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Ints = npt.NDArray[np.int64]

_ROWS = 1 << 18  # rows per call of `bincount`, which bounds its memory


def cooccurrence_costs(targets: csr_array) -> Ints:
    """Return the cost of each label's co-occurrences: over its points, the sum of their numbers of labels."""
    sizes = np.diff(targets.indptr)
    total = np.zeros(targets.shape[1])  # shape: (L,)
    for start in range(0, targets.shape[0], _ROWS):
        here = sizes[start : start + _ROWS]
        labels = targets.indices[targets.indptr[start] : targets.indptr[start + len(here)]]
        total += np.bincount(labels, np.repeat(here, here), minlength=len(total))
    return total.astype(np.int64)


def random_entries(matrix: csr_array, rows: npt.NDArray[np.integer[Any]], rng: np.random.Generator) -> Ints:
    """Draw the column of one stored entry of each given row, uniformly; no row may be empty."""
    start, end = matrix.indptr[rows], matrix.indptr[rows + 1]
    places = start + (rng.random(len(rows)) * (end - start)).astype(np.int64)
    return np.asarray(matrix.indices[places], dtype=np.int64)
