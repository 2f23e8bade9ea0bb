"""Turn soft targets into 0 and 1, for formats that cannot carry probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError

Kept = npt.NDArray[np.bool_]  # shape: (nnz,)
COPIES = 3  # of every point, by `copies`


def is_soft(targets: csr_array) -> bool:
    """Return True if a target is neither 0 nor 1."""
    return bool(np.any(targets.data != 1.0))


def harden_targets(targets: csr_array, how: str, *, threshold: float = 0.5, seed: int = 0) -> csr_array:
    """Return targets of exactly 1.0: choose by `how` which targets to keep, and drop the others.

    `threshold` keeps values of at least `threshold`, and the highest values of every row, so that no
    annotated point loses all its labels. `any` keeps every value. `sample` keeps each value with a
    probability equal to the value, so that the expected target is the soft one; a row of small values may end
    empty. The same seed gives the same targets.
    """
    if how not in HARDENINGS:
        raise DataError(f"unknown way to harden {how!r}", remedy="choose " + " or ".join(HARDENINGS))
    kept = HARDENINGS[how](targets, threshold, np.random.default_rng(seed))
    ends = np.concatenate([[0], np.cumsum(kept)])[targets.indptr]
    ones = np.ones(int(kept.sum()), dtype=np.float32)
    return csr_array((ones, targets.indices[kept], ends), shape=targets.shape)


def harden_points(points: Dataset, how: str, *, seed: int = 0) -> Dataset:
    """Return the points with the targets of `harden_targets`; `how` may also be `copies`.

    `copies` returns every point three times, each time with targets drawn by `sample`, so that a label of
    probability 0.3 is in about one copy of three. Without soft targets it returns the points unchanged, since
    all copies would be the same.
    """
    if how not in POINT_HARDENINGS:
        raise DataError(f"unknown way to harden {how!r}", remedy="choose " + " or ".join(POINT_HARDENINGS))
    if how != "copies":
        return replace(points, targets=harden_targets(points.targets, how, seed=seed))
    if not is_soft(points.targets):
        return points
    drawn = (harden_targets(points.targets, "sample", seed=seed + copy) for copy in range(COPIES))
    first, *others = (replace(points, targets=targets) for targets in drawn)
    return sum(others, start=first)


def _threshold(targets: csr_array, threshold: float, rng: np.random.Generator) -> Kept:
    counts = np.diff(targets.indptr)
    highest = np.zeros(len(counts), dtype=targets.data.dtype)  # shape: (N,)
    filled = np.flatnonzero(counts)
    if len(filled):  # reduceat accepts no empty segments
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
POINT_HARDENINGS = (*HARDENINGS, "copies")
