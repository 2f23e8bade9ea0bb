"""Turning target probabilities into 0 and 1, for formats that can carry nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError

Kept = npt.NDArray[np.bool_]  # shape: (nnz,)


def is_soft(targets: csr_array) -> bool:
    """Whether some target is neither 0 nor 1."""
    return bool(np.any(targets.data != 1.0))


def harden(targets: csr_array, how: str, *, threshold: float = 0.5, seed: int = 0) -> csr_array:
    """Targets of exactly 1.0 where the target is kept.

    `threshold` keeps values of at least `threshold`, and in every row the highest value (all of them where
    several tie), so that no annotated point is left without a label. `any` keeps every value: a label is
    then whatever the graph's delta let pass. `sample` keeps each value with that very probability, so that
    the expected target is the soft one: 1.0 always stays, a row of small values may end empty, and the same
    seed draws the same targets.
    """
    if how not in HARDENINGS:
        raise DataError(f"unknown way to harden {how!r}", remedy="choose " + " or ".join(HARDENINGS))
    kept = HARDENINGS[how](targets, threshold, np.random.default_rng(seed))
    ends = np.concatenate([[0], np.cumsum(kept)])[targets.indptr]
    ones = np.ones(int(kept.sum()), dtype=np.float32)
    return csr_array((ones, targets.indices[kept], ends), shape=targets.shape)


def _threshold(targets: csr_array, threshold: float, rng: np.random.Generator) -> Kept:
    counts = np.diff(targets.indptr)
    highest = np.zeros(len(counts), dtype=targets.data.dtype)  # shape: (N,)
    filled = np.flatnonzero(counts)
    if len(filled):  # reduceat takes no empty segments
        highest[filled] = np.maximum.reduceat(targets.data, targets.indptr[filled])
    kept: Kept = (targets.data >= threshold) | (targets.data == np.repeat(highest, counts))
    return kept


def _any(targets: csr_array, threshold: float, rng: np.random.Generator) -> Kept:
    return np.ones(len(targets.data), dtype=np.bool_)


def _sample(targets: csr_array, threshold: float, rng: np.random.Generator) -> Kept:
    return rng.random(len(targets.data)) < targets.data


HARDENINGS: dict[str, Callable[[csr_array, float, np.random.Generator], Kept]] = {
    "threshold": _threshold,
    "any": _any,
    "sample": _sample,
}
