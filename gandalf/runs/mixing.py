"""Weights of a mix, fitted on held-out points that no part has learnt from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.metrics.evaluate import Scores
from gandalf.metrics.propensity import constants, inverse_propensities
from gandalf.metrics.topk import find_pairs
from gandalf.model import Calibration
from gandalf.runs.trained import HeldAnswers, answers_of
from gandalf.wide.mixing import mixed

TENTHS = 10  # weights are tried in steps of a tenth: held-out points are too few to tell finer ones apart
LEAST_GAIN = 0.2  # points of the objective that a part must add to stay in the mix
DEPTH = 5  # of PSP@5
FEW = 500  # held-out points: with fewer the best weights are a matter of luck, and a mean of many is taken
RESAMPLES, SEED = 200, 0  # of the held-out points, whose best weights are averaged

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """The parts that stay, heaviest first, with weights that sum to 1, and figures on the held points."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    answers: HeldAnswers  # of the mix
    scores: Scores

    @property
    def calibration(self) -> Calibration:
        """How the mix's scores become probabilities."""
        return self.answers.calibration


def fit_mix(answers: Mapping[str, HeldAnswers]) -> Fitted:
    """Choose weights by the mean of P@1 and PSP@5 on the held points; drop parts that add nothing.

    Of few points the weights are the mean of the best ones of many resamples, as in bagging: the best weights
    of 50 points give a part all or nothing by chance.
    """
    names = list(answers)
    judge = _Judge([answers[name] for name in names])
    if judge.points < FEW:
        chosen = zip(names, judge.bagged(np.random.default_rng(SEED)).tolist(), strict=True)
        return _fitted(sorted(((name, weight) for name, weight in chosen if weight), key=_lightness), answers)
    best = judge.best(range(len(names)))
    while len(kept := np.flatnonzero(best)) > 1:
        smaller = [judge.best(places) for places in combinations(kept.tolist(), len(kept) - 1)]
        rival = max(smaller, key=judge.value)
        if judge.value(rival) < judge.value(best) - LEAST_GAIN:
            break
        best = rival
    order = sorted(kept.tolist(), key=lambda place: -best[place])
    return _fitted([(names[place], float(best[place])) for place in order], answers)


def _lightness(chosen: tuple[str, float]) -> float:
    return -chosen[1]


def _fitted(chosen: Sequence[tuple[str, float]], answers: Mapping[str, HeldAnswers]) -> Fitted:
    of_parts = [answers[name] for name, _ in chosen]
    lists = [(each.ids, each.probabilities) for each in of_parts]
    weights = tuple(weight for _, weight in chosen)
    ids, logits = mixed(lists, weights, of_parts[0].ids.shape[1])
    of_mix = answers_of(of_parts[0].splits, ids, logits)
    return Fitted(tuple(name for name, _ in chosen), weights, of_mix, of_mix.evaluated())


class _Judge:
    """The objective of any weights, over the labels that any part proposes for a held point."""

    def __init__(self, answers: Sequence[HeldAnswers]) -> None:
        held, rest = answers[0].held, answers[0].splits.train
        ids = np.concatenate([each.ids for each in answers], axis=1)  # shape: (H, C)
        ids = np.sort(ids, axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1  # each label once
        self._said = np.stack([_spread(each, ids) for each in answers])  # shape: (parts, H, C)
        self._said[:, ids < 0] = -1.0
        rows, places = np.nonzero(ids >= 0)
        truth = held.targets.sorted_indices()
        at = find_pairs(truth, rows, ids[rows, places])
        self._true = np.zeros(ids.shape)
        self._true[rows, places] = np.append(truth.data.astype(np.float64), 0.0)[at]
        model = constants(answers[0].splits.name)
        inverse = inverse_propensities(rest.label_frequencies, len(rest), model.A, model.B)
        self._worth = self._true * inverse[np.maximum(ids, 0)]
        self._most = _most_worth(truth, inverse)  # shape: (H,)
        self._gains: dict[tuple[int, ...], tuple[Floats, Floats]] = {}

    @property
    def points(self) -> int:
        """Number of held points H."""
        return len(self._most)

    def value(self, weights: Floats) -> float:
        """Return the mean of P@1 and PSP@5 in percent."""
        first, worth = self.gains(weights)
        return float(50 * first.mean() + 50 * worth.sum() / max(self._most.sum(), 1e-12))

    def gains(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return what each point adds to P@1 and to the dividend of PSP@5."""
        tenths = tuple(round(float(weight) * TENTHS) for weight in weights)
        if tenths not in self._gains:
            said = np.tensordot(np.array(tenths, dtype=np.float64), self._said, axes=1)  # shape: (H, C)
            top = np.argsort(-said, axis=1, kind="stable")[:, :DEPTH]
            first = np.take_along_axis(self._true, top[:, :1], axis=1)[:, 0]
            self._gains[tenths] = first, np.take_along_axis(self._worth, top, axis=1).sum(axis=1)
        return self._gains[tenths]

    def bagged(self, rng: np.random.Generator) -> Floats:
        """Return the mean of the best weights of many resamples; a part of less than a tenth gets none."""
        count = len(self._said)
        tried = np.array([_at(range(count), shares, count) for shares in _simplex(count, TENTHS)])
        tried = tried[np.argsort((tried > 0).sum(axis=1), kind="stable")]  # of equals the one of fewer parts
        first, worth = (np.array(each) for each in zip(*map(self.gains, tried), strict=True))  # (W, H)
        drawn = rng.multinomial(self.points, np.full(self.points, 1 / self.points), RESAMPLES)  # (R, H)
        most = np.maximum(drawn @ self._most, 1e-12)[:, np.newaxis]
        values = drawn @ first.T / self.points + drawn @ worth.T / most  # shape: (R, W)
        mean: Floats = tried[values.argmax(axis=1)].mean(axis=0)
        kept = np.where(mean < 1 / TENTHS, 0.0, mean)
        return np.asarray(kept / kept.sum())

    def best(self, places: Sequence[int] | range) -> Floats:
        """Return the best weights, 0 but for the parts at these places."""
        count = len(self._said)
        tried = (_at(places, shares, count) for shares in _simplex(len(places), TENTHS))
        return max(tried, key=self.value)


def _spread(answers: HeldAnswers, ids: Ints) -> Floats:
    """Return the probabilities of these labels by one part; 0 for those that it does not propose."""
    found = np.zeros(ids.shape)
    said = answers.probabilities
    for row in range(len(ids)):
        known = dict(zip(answers.ids[row].tolist(), said[row].tolist(), strict=True))
        found[row] = [known.get(label, 0.0) for label in ids[row].tolist()]
    return found


def _most_worth(truth: csr_array, inverse: Floats) -> Floats:
    """Return the largest worth that five labels of each point can have: the divisor of PSP@5 is their sum."""
    worth = truth.data * inverse[truth.indices]
    of_points = (worth[start:stop] for start, stop in pairwise(truth.indptr.tolist()))
    return np.array([np.sort(each)[::-1][:DEPTH].sum() for each in of_points])


def _simplex(size: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to cut `total` into `size` parts, 0 among them."""
    if size == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):  # of equals the first part wins, which is the quickest
        for rest in _simplex(size - 1, total - first):
            yield (first, *rest)


def _at(places: Sequence[int] | range, shares: Sequence[int], count: int) -> Floats:
    weights = np.zeros(count)
    weights[list(places)] = np.array(shares) / TENTHS
    return weights
