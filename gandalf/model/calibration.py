"""Turn scores into probabilities by a logistic curve, and fit the curve on held-out points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import expit

from gandalf.errors import DataError
from gandalf.metrics.topk import find_pairs

# Penalty on the mean square change of a logit. It pulls towards the plain sigmoid, which one-vs-all training
# aims at.
RIDGE = 1.0
LEAST_SLOPE = 1e-3  # useless scores get nearly one probability, never the opposite order
_TINY = float(np.finfo(np.float32).tiny)

Floats = npt.NDArray[np.float64]
Bounds = tuple[float | None, float | None]  # lowest and highest value of a number


@dataclass(frozen=True)
class Calibration:
    """Map a score to sigmoid(slope * score + offset); the slope is positive, so the order of labels stays."""

    slope: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.offset) and self.slope > 0):
            raise DataError(f"a calibration cannot have the slope {self.slope} and the offset {self.offset}")

    def __call__(self, scores: npt.NDArray[np.floating[Any]]) -> Floats:
        """Return the probability of each score; 0 for -inf."""
        logits = self.slope * scores.astype(np.float64) + self.offset
        return np.asarray(expit(logits), dtype=np.float64)


def probabilities(scores: npt.NDArray[np.float32], calibration: Calibration) -> npt.NDArray[np.float32]:
    """Return the probabilities of N x k scores, best first, in the same order: positive, or 0 for -inf.

    Near 1 float32 is coarse, and different scores could get one probability. An evaluation of the file
    would then rank the labels differently. So probabilities of different scores stay one step apart.
    """
    found = np.maximum(calibration(scores), _TINY).astype(np.float32)  # shape: (N, k)
    apart = (found[:, 1:] < found[:, :-1]) | (scores[:, 1:] == scores[:, :-1])
    for place in range(1, found.shape[1] if not apart.all() else 0):
        before = found[:, place - 1]
        falls = scores[:, place] < scores[:, place - 1]
        most = np.where(falls, np.nextafter(before, np.float32(0)), before)
        found[:, place] = np.minimum(found[:, place], most)
    found[np.isneginf(scores)] = 0.0
    return found


def fit_calibration(
    ids: npt.NDArray[np.integer[Any]],
    scores: npt.NDArray[np.floating[Any]],
    truth: csr_array,
    exclude: csr_array | None = None,
) -> Calibration:
    """Fit on the k best labels of held-out points: N x k label numbers (-1: no label), scores, and targets.

    Two numbers are fitted to all pairs by likelihood, so a few hundred pairs suffice. Platt's smoothed
    targets and a weak pull towards the plain sigmoid keep the numbers finite if pairs are few or perfectly
    separated. Without any pair the result is the plain sigmoid.
    """
    if ids.shape != scores.shape or len(ids) != truth.shape[0]:
        what = f"ids {ids.shape}, scores {scores.shape} and truth {truth.shape} do not belong together"
        raise DataError(what)
    rows, places = np.nonzero((ids >= 0) & np.isfinite(scores))
    labels = ids[rows, places].astype(np.int64)
    if exclude is not None:
        kept = find_pairs(exclude.sorted_indices(), rows, labels) < 0
        rows, places, labels = rows[kept], places[kept], labels[kept]
    observed = _targets(truth, rows, labels)  # shape: (P,)
    return _fit_logistic(scores[rows, places].astype(np.float64), observed)


def _targets(truth: csr_array, rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> Floats:
    """Return the true target of each pair, or 0."""
    truth = truth.sorted_indices()
    at = find_pairs(truth, rows, labels)
    values = np.append(truth.data.astype(np.float64), 0.0)  # position -1 is the zero at the end
    return np.asarray(values[at])


def _fit_logistic(scores: Floats, observed: Floats) -> Calibration:
    """Fit slope and offset to the observed targets of scores, by likelihood."""
    positives = observed.sum()
    low, high = 1 / (len(observed) - positives + 2), (positives + 1) / (positives + 2)
    smoothed = low + (high - low) * observed

    def loss(weights: Floats) -> tuple[float, Floats]:
        slope, offset = weights
        logits = slope * scores + offset
        change = (logits - scores) / max(len(scores), 1)
        penalty = 0.5 * RIDGE * change @ (logits - scores)
        value = (np.logaddexp(0.0, logits) - smoothed * logits).sum() + penalty
        rest = expit(logits) - smoothed + RIDGE * change
        return float(value), np.array([rest @ scores, rest.sum()])

    slope, offset = minimise(loss, (1.0, 0.0), ((LEAST_SLOPE, None), (None, None)))
    return Calibration(slope, offset)


def minimise(
    loss: Callable[[Floats], tuple[float, Floats]], start: Sequence[float], bounds: Sequence[Bounds]
) -> tuple[float, float]:
    """Return the two numbers that minimise a loss, which returns its value and its gradient."""
    from scipy.optimize import minimize  # imported here because the import takes 0.2 s

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0]), float(found.x[1])
