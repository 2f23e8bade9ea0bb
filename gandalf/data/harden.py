"""Turning target probabilities into 0 and 1, for formats that can carry nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError

Kept = npt.NDArray[np.bool_]  # shape: (nnz,)
COPIES = 3  # of every point


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


def harden_points(points: Dataset, how: str, *, seed: int = 0) -> Dataset:
    """The points with targets of exactly 1.0, as `harden` makes them; or with `copies`, three times as many.

    `copies` is `sample` three times over: all points, then all again with targets drawn anew, and once more,
    so that a label of probability 0.3 is in about one copy of three. Where no target is soft, points stay as
    they are: copies of the same would say nothing new.
    """
    if how not in POINT_HARDENINGS:
        raise DataError(f"unknown way to harden {how!r}", remedy="choose " + " or ".join(POINT_HARDENINGS))
    if how != "copies":
        return replace(points, targets=harden(points.targets, how, seed=seed))
    if not is_soft(points.targets):
        return points
    first, *others = (
        replace(points, targets=harden(points.targets, "sample", seed=seed + at)) for at in range(COPIES)
    )
    return sum(others, start=first)


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
POINT_HARDENINGS = (*HARDENINGS, "copies")
