"""Calibrated estimate: learn from matched labels which target the counts of a pair stand for.

The paper postulates P(Y_i | X = z_j) = P(Y_i | Y_j). If z_j, the text of label j, is also the text of
training points, the left side can be observed: it is the mean target of these points. The pairs of such
labels train a function from the three counts of a pair to the observed target. The function is then used for
all labels.

The counts leave out the matched points, because a matched point with label i adds to G_ii, so the counts
would contain the answer. The function is a smooth logistic surface plus a correction for each cell, which is
larger if the cell has more evidence. The surface alone is too stiff for large sets, and cells alone are too
noisy for small ones (docs/lab/estimates.md compares them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from gandalf.data.sentences import counted
from gandalf.graph.cooccurrence import Estimate
from gandalf.graph.estimates.shrunk import Shrunk, build_shrunk
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import CountablePoints, LabelGraph, TargetKind, build_from_sums, score_pairs
from gandalf.graph.matched_pairs import Matches, Pairs

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions

# With fewer texts or pairs, a calibration would fit noise.
MIN_TEXTS, MIN_PAIRS = 50, 500

COUNT_CAP = 6  # joint counts of this value or more share a cell
FREQUENCY_EDGES = np.array([1.5, 2.5, 4.5, 8.5, 16.5, 64.5])
LEVELS = len(FREQUENCY_EDGES) + 1
DECILES = 10  # cells of the ratio
CELLS = COUNT_CAP * LEVELS * LEVELS * DECILES
RIDGE = 1.0  # on standardised coefficients
PIECE = 1 << 16  # pairs scored at once, so that intermediate values stay in the cache
CELL_PRIOR = 10.0  # evidence (sum of p (1 - p)) that halves the pull of the surface
FOLDS = 5  # folds of texts in the diagnosis


@dataclass(frozen=True)
class Calibrated(Estimate):
    """Logistic surface over the counts of a pair, with a shrunken correction for each cell."""

    offset: float
    slopes: Floats  # of the surface, one for each feature; shape: (F,)
    corrections: Floats  # added to the logit; shape: (cells,)

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Return the expected target of each pair on a point whose text is the input label's."""
        score = np.empty(len(joint))
        for start in range(0, len(joint), PIECE):
            piece = slice(start, start + PIECE)
            score[piece] = self._score_piece(joint[piece], given[piece], other[piece])
        return score

    def _score_piece(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        logits = self.offset + self.corrections[_cells(joint, given, other)]
        for slope, feature in zip(self.slopes, _features(joint, given, other), strict=True):
            logits += slope * feature
        return np.asarray(expit(logits), dtype=np.float64)


def fit_calibrated(pairs: Pairs) -> Calibrated:
    """Fit the surface to the observed targets, then each cell's correction in one step."""
    features = np.stack(list(_features(pairs.joint, pairs.given, pairs.other)), axis=1)  # shape: (P, F)
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    features = (features - mean) / spread
    weights = _logistic(np.column_stack([np.ones(len(features)), features]), pairs.observed)
    slopes = weights[1:] / spread
    offset = float(weights[0] - slopes @ mean)
    surface = Calibrated(offset, slopes, np.zeros(CELLS))
    expected = surface.score(pairs.joint, pairs.given, pairs.other)
    cells = _cells(pairs.joint, pairs.given, pairs.other)
    slope = np.bincount(cells, pairs.observed - expected, minlength=CELLS)
    curvature = np.bincount(cells, expected * (1 - expected), minlength=CELLS)
    return Calibrated(offset, slopes, slope / (curvature + CELL_PRIOR))


def _features(joint: Floats, given: Floats, other: Floats) -> Iterator[Floats]:
    """Yield the features that the surface is linear in."""  # shape of each: (P,)
    c, j, i = np.log(joint), np.log(given), np.log(other)
    yield from (c, j, i, c * c, j * j, i * i, c * j, c * i, j * i)
    yield from (joint / given, joint / other, joint / (given + other - joint))
    yield from (corner.astype(np.float64) for corner in (joint == 1, given == 1, other == 1))
    yield from (corner.astype(np.float64) for corner in (joint == given, joint == other))


def _logistic(design: Floats, observed: Floats) -> Floats:
    """Fit a ridge-penalised logistic regression to targets in [0, 1]; the intercept has no penalty."""
    penalty = np.full(design.shape[1], RIDGE)
    penalty[0] = 1e-6

    from scipy.optimize import minimize  # the import takes a fifth of a second

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


def _cells(joint: Floats, given: Floats, other: Floats) -> npt.NDArray[np.int64]:
    """Return the cell of each pair: capped joint count x frequencies of j and i x decile of the ratio."""
    count = np.clip(joint, 1, COUNT_CAP).astype(np.int64) - 1
    place = count * LEVELS + np.searchsorted(FREQUENCY_EDGES, given)
    place = place * LEVELS + np.searchsorted(FREQUENCY_EDGES, other)
    decile = np.minimum(joint / given * DECILES, DECILES - 1).astype(np.int64)
    return np.asarray(place * DECILES + decile, dtype=np.int64)


def too_few_to_calibrate(matches: Matches) -> str:
    """Return the reason why a calibrated estimate cannot be fitted, or "" if it can."""
    if matches.texts < MIN_TEXTS:
        many = "are also training texts" if matches.texts > 1 else "is also a training text"
        found = f"only {counted(matches.texts, 'label text')}" if matches.texts else "no label text"
        return f"{found} {many}, and a calibration needs {MIN_TEXTS}"
    if len(matches.pairs) < MIN_PAIRS:
        return (
            f"labels whose text is a training text make only {len(matches.pairs)} pairs that occur together, "
            f"and a calibration needs {MIN_PAIRS}"
        )
    return ""


def _build(points: CountablePoints, options: GraphOptions) -> LabelGraph:
    if not points.has_texts:
        return _fall_back(points, options, "the data set has no texts to match labels with points")
    matches = points.matches(options.seed)
    why = too_few_to_calibrate(matches)
    if why:
        return _fall_back(points, options, why)
    details: dict[str, float | str] = {"matched_labels": matches.labels, "pairs": len(matches.pairs)}
    estimate = fit_calibrated(matches.pairs)
    # The fit used counts without a label's matched points, so the graph must use them, too.
    return build_from_sums("calibrated", estimate, points, options, details, matches)


def _fall_back(points: CountablePoints, options: GraphOptions, why: str) -> LabelGraph:
    graph = build_shrunk(points, options)
    return replace(graph, details={**graph.details, "fallback": f"shrunk instead of calibrated: {why}"})


def _cross_fitted(pairs: Pairs, shrunk: Shrunk, seed: int) -> Floats:
    """Score each pair by a fit to the pairs of the other folds."""
    fold = _folds(pairs.text, seed)
    score = np.empty(len(pairs))
    for number in range(FOLDS):
        held_out = fold == number
        score[held_out] = score_pairs(fit_calibrated(pairs[~held_out]), pairs[held_out])
    return score


def _folds(texts: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Draw a fold for each pair, by text, so that labels that share a text stay together."""
    _, number = np.unique(texts, return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(int(number.max(initial=-1)) + 1) % FOLDS
    return np.asarray(drawn[number], dtype=np.int64)


KIND = TargetKind(
    "the observed meaning of counts, learnt on labels whose text is a training text",
    _build,
    needs="texts",
    options=("strength",),
    score_pairs=_cross_fitted,
)
