"""The calibrated estimate: what the counts *turned out* to mean on labels whose text is a training text.

The paper postulates P(Y_i | X = z_j) = P(Y_i | Y_j). Where z_j, the text of label j, is also the text of
training points, its left side can be observed: the mean target of those points. Pairs of such labels teach a
function from the three counts of a pair to the observed target, and that function serves every label.

Two things matter. Counts are taken with the matched points left out: a point that carries i adds to G_ii,
so a model that saw its own answer in the counts would be wrong wherever it matters. And the function is a
smooth logistic surface, corrected cell by cell as far as the cell's own evidence goes: the surface alone is
too stiff for large sets, cells alone are too noisy for small ones (docs/estimates.md has the comparison).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from gandalf.graph.joint_sums import Floats
from gandalf.graph.matched_pairs import Pairs

COUNT_CAP = 6  # joint counts from here on share a cell
FREQUENCY_EDGES = np.array([1.5, 2.5, 4.5, 8.5, 16.5, 64.5])
DECILES = 10  # cells of the ratio
RIDGE = 1.0  # on standardised coefficients
PIECE = 1 << 16  # pairs scored at once: what they need on the way stays in a cache, not in memory
CELL_PRIOR = 10.0  # how much evidence (sum of p (1 - p)) halves the pull of the surface


@dataclass(frozen=True)
class Calibrated:
    """Logistic surface over the counts of a pair, with a shrunken correction for each cell."""

    offset: float
    slopes: Floats  # of the surface, one for each feature; shape: (F,)
    corrections: Floats  # added to the logit; shape: (cells,)
    unit_diagonal: ClassVar[bool] = True
    below_ratio: ClassVar[bool] = False

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Expected target of the pair on a point whose text is the input label's."""
        score = np.empty(len(joint))
        for start in range(0, len(joint), PIECE):
            piece = slice(start, start + PIECE)
            score[piece] = self._piece(joint[piece], given[piece], other[piece])
        return score

    def _piece(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        logits = self.offset + self.corrections[_cells(joint, given, other)]
        for slope, feature in zip(self.slopes, _features(joint, given, other), strict=True):
            logits += slope * feature
        return np.asarray(expit(logits), dtype=np.float64)

    def target(self, score: Floats) -> Floats:
        """The score itself."""
        return score


def fit_calibrated(pairs: Pairs) -> Calibrated:
    """Fit the surface to the observed targets, then each cell's correction in one step."""
    features = np.stack(list(_features(pairs.joint, pairs.given, pairs.other)), axis=1)  # shape: (P, F)
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    features = (features - mean) / spread
    weights = _logistic(np.column_stack([np.ones(len(features)), features]), pairs.observed)
    slopes = weights[1:] / spread
    offset = float(weights[0] - slopes @ mean)
    surface = Calibrated(offset, slopes, np.zeros(_cell_count()))
    expected = surface.score(pairs.joint, pairs.given, pairs.other)
    cells = _cells(pairs.joint, pairs.given, pairs.other)
    slope = np.bincount(cells, pairs.observed - expected, minlength=_cell_count())
    curvature = np.bincount(cells, expected * (1 - expected), minlength=_cell_count())
    return Calibrated(offset, slopes, slope / (curvature + CELL_PRIOR))


def _features(joint: Floats, given: Floats, other: Floats) -> Iterator[Floats]:
    """What the surface is linear in."""  # shape of each: (P,)
    c, j, i = np.log(joint), np.log(given), np.log(other)
    yield from (c, j, i, c * c, j * j, i * i, c * j, c * i, j * i)
    yield from (joint / given, joint / other, joint / (given + other - joint))
    yield from (corner.astype(np.float64) for corner in (joint == 1, given == 1, other == 1))
    yield from (corner.astype(np.float64) for corner in (joint == given, joint == other))


def _logistic(design: Floats, observed: Floats) -> Floats:
    """Ridge-penalised logistic regression on targets in [0, 1]; the intercept goes free."""
    penalty = np.full(design.shape[1], RIDGE)
    penalty[0] = 1e-6

    from scipy.optimize import minimize  # not above: it takes a fifth of a second

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = design @ weights
        value = np.logaddexp(0.0, logits).sum() - observed @ logits + 0.5 * penalty @ weights**2
        return float(value), design.T @ (expit(logits) - observed) + penalty * weights

    def curvature(weights: Floats) -> Floats:
        expected = expit(design @ weights)
        return np.asarray((design.T * (expected * (1 - expected))) @ design + np.diag(penalty))

    start = np.zeros(design.shape[1])
    start[0] = logit(np.clip(observed.mean(), 1e-6, 1 - 1e-6))
    return np.asarray(minimize(loss, start, jac=True, hess=curvature, method="trust-exact").x)


def _cell_count() -> int:
    levels = len(FREQUENCY_EDGES) + 1
    return COUNT_CAP * levels * levels * DECILES


def _cells(joint: Floats, given: Floats, other: Floats) -> npt.NDArray[np.int64]:
    """Cell of each pair: capped joint count x frequency of j x frequency of i x decile of the ratio."""
    count = np.clip(joint, 1, COUNT_CAP).astype(np.int64) - 1
    levels = len(FREQUENCY_EDGES) + 1
    place = count * levels + np.searchsorted(FREQUENCY_EDGES, given)
    place = place * levels + np.searchsorted(FREQUENCY_EDGES, other)
    decile = np.minimum(joint / given * DECILES, DECILES - 1).astype(np.int64)
    return np.asarray(place * DECILES + decile, dtype=np.int64)
