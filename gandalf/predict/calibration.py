"""Fit the calibration of a model: a logistic curve on points that the model was not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import expit

from gandalf.errors import DataError
from gandalf.metrics.topk import find_pairs
from gandalf.model import Calibration

__all__ = ["Calibration", "fit_calibration"]

# Penalty on the mean square change of a logit. It pulls towards the plain sigmoid, which one-vs-all training
# aims at.
RIDGE = 1.0
LEAST_SLOPE = 1e-3  # useless scores get nearly one probability, never the opposite order

Floats = npt.NDArray[np.float64]


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
        raise DataError(
            f"ids {ids.shape}, scores {scores.shape} and truth {truth.shape} do not belong together"
        )
    rows, places = np.nonzero((ids >= 0) & np.isfinite(scores))
    labels = ids[rows, places].astype(np.int64)
    if exclude is not None:
        kept = find_pairs(exclude.sorted_indices(), rows, labels) < 0
        rows, places, labels = rows[kept], places[kept], labels[kept]
    observed = _targets(truth, rows, labels)  # shape: (P,)
    return _fitted(scores[rows, places].astype(np.float64), observed)


def _targets(truth: csr_array, rows: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> Floats:
    """Return the true target of each pair, or 0."""
    truth = truth.sorted_indices()
    at = find_pairs(truth, rows, labels)
    values = np.append(truth.data.astype(np.float64), 0.0)  # position -1 is the zero at the end
    return np.asarray(values[at])


def _fitted(scores: Floats, observed: Floats) -> Calibration:
    positives = observed.sum()
    low, high = 1 / (len(observed) - positives + 2), (positives + 1) / (positives + 2)
    smoothed = low + (high - low) * observed

    from scipy.optimize import minimize  # imported here because the import takes 0.2 s

    def loss(weights: Floats) -> tuple[float, Floats]:
        slope, offset = weights
        logits = slope * scores + offset
        change = (logits - scores) / max(len(scores), 1)
        value = (np.logaddexp(0.0, logits) - smoothed * logits).sum() + 0.5 * RIDGE * change @ (
            logits - scores
        )
        rest = expit(logits) - smoothed + RIDGE * change
        return float(value), np.array([rest @ scores, rest.sum()])

    found = minimize(
        loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(LEAST_SLOPE, None), (None, None)]
    )
    return Calibration(float(found.x[0]), float(found.x[1]))
