"""Fit the weights of a mix on held-out points, and mix models that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.metrics.propensity import inverse_propensities, propensity_constants
from gandalf.metrics.topk import find_pairs
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe, Validation
from gandalf.runs.trees import held_answers
from gandalf.runs.validation import HeldAnswers, calibrated_answers, key_figures
from gandalf.settings import from_dict
from gandalf.wide.mixing import PROPOSED, best_of_mix

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


MOST = 6  # parts: each further part at least doubles the weights to try
TOO_KIND = (
    "the weights are fitted on points that the models may have learnt from, and are too kind to models that "
    "memorise; for fair weights let gandalf train mix the parts itself"
)


@dataclass(frozen=True)
class HoldoutOptions:
    """Which training points are held out."""

    share: float
    seed: int
    at_most: int | None


@dataclass(frozen=True, eq=False)
class Mixed:
    """A mix, or the one part that is as good alone, and the figures of all parts."""

    model: Part
    fitted: FittedMix
    alone: dict[str, Scores]  # figures of each part on the held-out points
    points: int  # number of held-out points
    seen: bool  # True if a part may have learnt from these points

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        rows = [
            {"name": name, "weight": self.fitted.shares.get(name, 0.0), **key_figures(scores)}
            for name, scores in self.alone.items()
        ]
        points = {"held_out_points": self.points, "may_have_been_seen": self.seen}
        return {"parts": rows, "mix": key_figures(self.fitted.scores), **points}


def mix_models(
    models: Mapping[str, Part], splits: Splits, share: float | None = None, seed: int | None = None
) -> Mixed:
    """Return a mix of models by name, with weights fitted on training points; never read the test split.

    The weights are fitted on points that all networks held out of their training, if there are any. Trees
    are trained again without these points, to answer them. Otherwise a share of all points is held out.
    """
    parts = _parts_of(models)
    for part in parts.values():
        check_labels(splits, part)
    found = answer_held_out_points(parts, splits, share, seed)
    fitted = fit_mix(found.answers)
    alone = {name: each.evaluated() for name, each in found.answers.items()}
    return Mixed(_build_mix(parts, fitted, splits), fitted, alone, len(found.held), found.seen)


@dataclass(frozen=True, eq=False)
class PartAnswers:
    """Answers of several parts to the same held-out points."""

    splits: Splits  # the rest as `train`, the held-out points as `test`
    answers: dict[str, HeldAnswers]
    seen: bool  # True if a part may have learnt from these points

    @property
    def held(self) -> Dataset:
        """The held-out points."""
        assert self.splits.test is not None
        return self.splits.test


def answer_held_out_points(
    parts: Mapping[str, Part], splits: Splits, share: float | None = None, seed: int | None = None
) -> PartAnswers:
    """Return the parts' answers to points that no network learnt from, or else to a share of all points."""
    unseen = _unseen_points(parts, splits) if share is None and seed is None else None
    default = Validation()
    options = unseen or HoldoutOptions(default.share if share is None else share, seed or 0, default.at_most)
    parted = hold_out_points(splits.train, options.share, options.seed, at_most=options.at_most)
    points = Splits(train=parted.rest, test=parted.held, name=splits.name)
    fair = unseen is not None
    answers = {name: _answer(part, points, splits, fair) for name, part in parts.items()}
    return PartAnswers(points, answers, seen=not fair)


def _parts_of(models: Mapping[str, Part]) -> dict[str, Part]:
    """Return the models, with the parts of a mix in place of the mix; refuse models that cannot be mixed."""
    found: dict[str, Part] = {}
    for name, model in models.items():
        if isinstance(model, Mix):
            found |= {f"{name}-{own}": part for own, part in zip(model.names, model.parts, strict=True)}
        else:
            found[name] = model
    if not 2 <= len(found) <= MOST:
        what = f"{len(found)} models are to be mixed, and a mix has 2 to {MOST}"
        raise DataError(what, remedy="name more models" if len(found) < 2 else "leave some out")
    (first, one), *others = found.items()
    for name, other in others:
        _refuse_other_labels(first, one, name, other)
    return found


def _refuse_other_labels(first: str, one: Part, name: str, other: Part) -> None:
    remedy = "mix models that were trained on the same labels"
    if one.num_labels != other.num_labels:
        what = f"{first} has {one.num_labels:,} labels, and {name} {other.num_labels:,}"
        raise DataError(what, remedy=remedy)
    for number, (text, rival) in enumerate(zip(one.label_texts, other.label_texts, strict=True)):
        if text != rival:
            what = f"label {number:,} is {text[:60]!r} in {first}, and {rival[:60]!r} in {name}"
            raise DataError(what, remedy=remedy)


def _unseen_points(parts: Mapping[str, Part], splits: Splits) -> HoldoutOptions | None:
    """Return which points all networks held out of their training; None if there are no such points.

    Trees learn from all points in the end, but it takes seconds to train them without these points.
    """
    if any(isinstance(part, ModelWithMemory) for part in parts.values()):
        return None  # a memory holds all points
    recipes = {name: _recipe_on(part, splits) for name, part in parts.items()}
    networks = [name for name, part in parts.items() if not isinstance(part, Trees)]
    found = {_holdout_of(recipes[name]) for name in networks or list(recipes)}
    if None in recipes.values() or len(found) != 1:
        return None
    return found.pop()


def _recipe_on(part: Part, splits: Splits) -> Recipe | None:
    """Return the recipe of a part if its config says that it was trained on this data, else None."""
    if part.config.get("data") != splits.about:
        return None
    try:
        recipe = from_dict(Recipe, part.config["recipe"])
    except (KeyError, TypeError, DataError):
        return None
    return None if recipe.targets.targets == "auto" else recipe


def _holdout_of(recipe: Recipe | None) -> HoldoutOptions | None:
    """Return which points a recipe holds out and never learns from."""
    if recipe is None or not recipe.validation.share or recipe.training.last_stretch:
        return None
    return HoldoutOptions(recipe.validation.share, recipe.seed, recipe.validation.at_most)


def _answer(part: Part, points: Splits, splits: Splits, fair: bool) -> HeldAnswers:
    """Return a part's answers to the held-out points; `fair`: train trees again without these points."""
    assert points.test is not None
    calibration = part.calibration or Calibration()  # the mix will use it, too
    recipe = _recipe_on(part, splits)
    if fair and isinstance(part, Trees) and recipe is not None:
        train = Splits(train=splits.train, name=splits.name)
        return replace(held_answers(train, points.train, points.test, recipe), calibration=calibration)
    texts, _ = points.test.need_texts("mixing models")
    ids, scores = part.best(texts, min(PROPOSED, part.num_labels), points.test.exclude)
    return HeldAnswers(points, ids, scores, calibration)


def _build_mix(parts: Mapping[str, Part], fitted: FittedMix, splits: Splits) -> Part:
    """Return the mix, or its only part."""
    chosen = tuple(parts[name] for name in fitted.names)
    if len(chosen) == 1:
        return chosen[0]
    config = {
        "system": "mix",
        "data": splits.about,
        "parts": {name: parts[name].config.get("recipe") for name in fitted.names},
    }
    labels = (chosen[0].label_texts, chosen[0].label_ids)
    return Mix(fitted.names, chosen, fitted.weights, *labels, config, fitted.calibration)
