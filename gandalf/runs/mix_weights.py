"""Fit the weights of a mix on held-out points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.metrics.evaluate import Scores
from gandalf.metrics.propensity import inverse_propensities, propensity_constants
from gandalf.metrics.topk import find_pairs
from gandalf.model import Calibration
from gandalf.runs.validation import HeldAnswers, calibrated_answers
from gandalf.wide.mixing import best_of_mix

TENTHS = 10  # weights are tried in steps of a tenth; held-out points are too few for finer steps
LEAST_GAIN = 0.2  # points of the objective that a part must add to stay in the mix
DEPTH = 5  # of PSP@5
FEW = 500  # held-out points: with fewer the best weights are a matter of luck
RESAMPLES, SEED = 200, 0  # of fewer points, whose best weights are averaged

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedMix:
    """The parts of a mix, the heaviest first, with weights that sum to 1 and figures on held-out points."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    answers: HeldAnswers  # of the mix
    scores: Scores

    @property
    def calibration(self) -> Calibration:
        """Calibration of the mix's scores."""
        return self.answers.calibration

    @property
    def shares(self) -> dict[str, float]:
        """Weight of each part by its name."""
        return dict(zip(self.names, self.weights, strict=True))


def fit_mix(answers: Mapping[str, HeldAnswers]) -> FittedMix:
    """Choose weights by the mean of P@1 and PSP@5 on held-out points; drop parts that add nothing."""
    names, objective = list(answers), MixObjective(list(answers.values()))
    if objective.points < FEW:
        weights = objective.bagged_weights(np.random.default_rng(SEED))
    else:
        weights = _fewest_parts(objective, objective.best_weights(range(len(names))))
    order = sorted(np.flatnonzero(weights).tolist(), key=lambda place: -weights[place])
    return _mix_answers({names[place]: float(weights[place]) for place in order}, answers)


def _fewest_parts(objective: MixObjective, best: Floats) -> Floats:
    """Drop parts one by one, as long as the objective falls by less than LEAST_GAIN."""
    while len(kept := np.flatnonzero(best)) > 1:
        smaller = [objective.best_weights(places) for places in combinations(kept.tolist(), len(kept) - 1)]
        rival = max(smaller, key=objective.value)
        if objective.value(rival) < objective.value(best) - LEAST_GAIN:
            break
        best = rival
    return best


def _mix_answers(weights: Mapping[str, float], answers: Mapping[str, HeldAnswers]) -> FittedMix:
    """Return the mix by these weights, with its answers, calibration and figures."""
    parts, shares = [answers[name] for name in weights], tuple(weights.values())
    lists = [(each.ids, each.probabilities) for each in parts]
    ids, logits = best_of_mix(lists, shares, parts[0].ids.shape[1])
    found = calibrated_answers(parts[0].splits, ids, logits)
    return FittedMix(tuple(weights), shares, found, found.evaluated())


class MixObjective:
    """The objective of any weights, over the labels that any part proposes for a held-out point."""

    def __init__(self, answers: Sequence[HeldAnswers]) -> None:
        held, rest = answers[0].held, answers[0].splits.train
        ids = np.concatenate([each.ids for each in answers], axis=1)  # shape: (H, C)
        ids = np.sort(ids, axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1  # each label once
        self._probabilities = np.stack([_probabilities_of(each, ids) for each in answers])  # (parts, H, C)
        self._probabilities[:, ids < 0] = -1.0
        rows, places = np.nonzero(ids >= 0)
        truth = held.targets.sorted_indices()
        at = find_pairs(truth, rows, ids[rows, places])
        self._true = np.zeros(ids.shape)
        self._true[rows, places] = np.append(truth.data.astype(np.float64), 0.0)[at]
        model = propensity_constants(answers[0].splits.name)
        inverse = inverse_propensities(rest.label_frequencies, len(rest), model.A, model.B)
        self._worth = self._true * inverse[np.maximum(ids, 0)]
        self._most = _most_worth(truth, inverse)  # shape: (H,)
        self._gains: dict[tuple[int, ...], tuple[Floats, Floats]] = {}

    @property
    def points(self) -> int:
        """Number of held-out points H."""
        return len(self._most)

    def value(self, weights: Floats) -> float:
        """Return the mean of P@1 and PSP@5 in percent."""
        first, worth = self.gains(weights)
        return float(50 * first.mean() + 50 * worth.sum() / max(self._most.sum(), 1e-12))

    def gains(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return what each point adds to P@1, and to the numerator of PSP@5."""
        tenths = tuple(round(float(weight) * TENTHS) for weight in weights)
        if tenths not in self._gains:
            mean = np.tensordot(np.array(tenths, dtype=np.float64), self._probabilities, axes=1)  # (H, C)
            top = np.argsort(-mean, axis=1, kind="stable")[:, :DEPTH]
            first = np.take_along_axis(self._true, top[:, :1], axis=1)[:, 0]
            self._gains[tenths] = first, np.take_along_axis(self._worth, top, axis=1).sum(axis=1)
        return self._gains[tenths]

    def bagged_weights(self, rng: np.random.Generator) -> Floats:
        """Return the mean of the best weights of many resamples; a part with less than a tenth gets 0.

        The best weights of 50 points give a part all or nothing by chance.
        """
        tried = np.array(list(self._all_weights(range(len(self._probabilities)))))
        tried = tried[np.argsort((tried > 0).sum(axis=1), kind="stable")]  # among equals, fewer parts win
        first, worth = (np.array(each) for each in zip(*map(self.gains, tried), strict=True))  # (W, H)
        drawn = rng.multinomial(self.points, np.full(self.points, 1 / self.points), RESAMPLES)  # (R, H)
        most = np.maximum(drawn @ self._most, 1e-12)[:, np.newaxis]
        values = drawn @ first.T / self.points + drawn @ worth.T / most  # shape: (R, W)
        mean: Floats = tried[values.argmax(axis=1)].mean(axis=0)
        kept = np.where(mean < 1 / TENTHS, 0.0, mean)
        return np.asarray(kept / kept.sum())

    def best_weights(self, places: Sequence[int]) -> Floats:
        """Return the best weights of the parts at these places; all others get 0."""
        return max(self._all_weights(places), key=self.value)

    def _all_weights(self, places: Sequence[int]) -> Iterator[Floats]:
        """Yield all weights in steps of a tenth of the parts at these places."""
        for tenths in _compositions(len(places), TENTHS):
            weights = np.zeros(len(self._probabilities))
            weights[list(places)] = np.array(tenths) / TENTHS
            yield weights


def _probabilities_of(answers: HeldAnswers, ids: Ints) -> Floats:
    """Return one part's probabilities of these labels; 0 for labels that it does not propose."""
    found = np.zeros(ids.shape)
    probabilities = answers.probabilities
    for row in range(len(ids)):
        known = dict(zip(answers.ids[row].tolist(), probabilities[row].tolist(), strict=True))
        found[row] = [known.get(label, 0.0) for label in ids[row].tolist()]
    return found


def _most_worth(truth: csr_array, inverse: Floats) -> Floats:
    """Return the largest worth that five labels of each point can have; PSP@5 divides by their sum."""
    worth = truth.data * inverse[truth.indices]
    of_points = (worth[start:stop] for start, stop in pairwise(truth.indptr.tolist()))
    return np.array([np.sort(each)[::-1][:DEPTH].sum() for each in of_points])


def _compositions(size: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write `total` as a sum of `size` numbers from 0."""
    if size == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):  # among equals the first part wins, which is the quickest
        for rest in _compositions(size - 1, total - first):
            yield (first, *rest)
