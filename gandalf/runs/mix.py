"""A mix of models: weights fitted on held-out points, for parts just trained or models that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.metrics.propensity import constants, inverse_propensities
from gandalf.metrics.topk import find_pairs
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe, Validation
from gandalf.runs.trees import FIGURES, held_answers
from gandalf.runs.validation import HeldAnswers, answers_of
from gandalf.settings import from_dict
from gandalf.wide.mixing import PROPOSED, best_of_mix

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
    ids, logits = best_of_mix(lists, weights, of_parts[0].ids.shape[1])
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


MOST = 6  # parts: every further one makes the weights to try twice as many and more
TOO_KIND = (
    "the weights are fitted on points that the models may have learnt from, and are too kind to models that "
    "memorise; for fair weights let gandalf train mix the parts itself"
)


@dataclass(frozen=True)
class Held:
    """Which training points are held: a share drawn by a seed, and no more than so many."""

    share: float
    seed: int
    at_most: int | None


@dataclass(frozen=True, eq=False)
class Mixed:
    """A mix, or the one part that is as good alone, and what was looked at."""

    model: Part
    fitted: Fitted
    alone: dict[str, Scores]  # figures of each part on the held points
    points: int  # that were held
    seen: bool  # True if a part may have learnt from these points

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        weights = dict(zip(self.fitted.names, self.fitted.weights, strict=True))
        rows = [
            {"name": name, "weight": weights.get(name, 0.0), **_figures(scores)}
            for name, scores in self.alone.items()
        ]
        points = {"held_out_points": self.points, "may_have_been_seen": self.seen}
        return {"parts": rows, "mix": _figures(self.fitted.scores), **points}


def mix_models(
    models: Mapping[str, Part], splits: Splits, share: float | None = None, seed: int | None = None
) -> Mixed:
    """Return a mix of models by name, with weights fitted on training points; the test split is not read.

    Points that all networks held out of their training are taken if there are any, and trees are trained
    again without these points to be asked. Else it is a share of all points.
    """
    parts = _parts(models)
    for part in parts.values():
        check_labels(splits, part)
    asked = held_points(parts, splits, share, seed)
    answers = asked.answers
    fitted = fit_mix(answers)
    model = _model(parts, fitted, splits)
    alone = {name: each.evaluated() for name, each in answers.items()}
    return Mixed(model, fitted, alone, len(asked.held), asked.seen)


@dataclass(frozen=True, eq=False)
class Asked:
    """What models say of held training points, and whether they may have learnt from these points."""

    splits: Splits  # the rest as `train`, the held points as `test`
    answers: dict[str, HeldAnswers]
    seen: bool

    @property
    def held(self) -> Dataset:
        """The held points."""
        assert self.splits.test is not None
        return self.splits.test


def held_points(
    parts: Mapping[str, Part], splits: Splits, share: float | None = None, seed: int | None = None
) -> Asked:
    """Ask models about training points that no network has learnt from, or, if there are none, any share."""
    unseen = _unseen(parts, splits) if share is None and seed is None else None
    usual = Validation()
    held = unseen or Held(usual.share if share is None else share, seed or 0, usual.at_most)
    cut = holdout(splits.train, held.share, held.seed, at_most=held.at_most)
    points = Splits(train=cut.rest, test=cut.held, name=splits.name)
    fair = unseen is not None
    answers = {name: _answers(part, points, splits, fair) for name, part in parts.items()}
    return Asked(points, answers, not fair)


def _parts(models: Mapping[str, Part]) -> dict[str, Part]:
    """Return the models, each mix as its parts, or refuse models that cannot be mixed."""
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


def _unseen(parts: Mapping[str, Part], splits: Splits) -> Held | None:
    """Return the points that all networks held out of their training, or None if any learnt from them.

    Trees learn from all points in the end, but are trained in seconds: they are asked without these points.
    """
    if any(isinstance(part, ModelWithMemory) for part in parts.values()):
        return None  # a memory holds all points
    recipes = {name: _recipe_on(part, splits) for name, part in parts.items()}
    networks = [name for name, part in parts.items() if not isinstance(part, Trees)]
    found = {_held_by(recipes[name]) for name in networks or list(recipes)}
    if None in recipes.values() or len(found) != 1:
        return None
    return found.pop()


def _recipe_on(part: Part, splits: Splits) -> Recipe | None:
    """Return the recipe of a part that was trained on this data, as far as its config tells."""
    if part.config.get("data") != splits.about:
        return None
    try:
        recipe = from_dict(Recipe, part.config["recipe"])
    except (KeyError, TypeError, DataError):
        return None
    return None if recipe.targets.targets == "auto" else recipe


def _held_by(recipe: Recipe | None) -> Held | None:
    """Return what a recipe holds out for good."""
    if recipe is None or not recipe.validation.share or recipe.training.last_stretch:
        return None
    return Held(recipe.validation.share, recipe.seed, recipe.validation.at_most)


def _answers(part: Part, points: Splits, splits: Splits, fair: bool) -> HeldAnswers:
    """Return what a part says of the held points; `fair`: trees are trained again without these points."""
    assert points.test is not None
    own = part.calibration or Calibration()  # which the mix will use
    recipe = _recipe_on(part, splits)
    if fair and isinstance(part, Trees) and recipe is not None:
        train = Splits(train=splits.train, name=splits.name)
        return replace(held_answers(train, points.train, points.test, recipe), calibration=own)
    texts, _ = points.test.need_texts("mixing models")
    ids, scores = part.best(texts, min(PROPOSED, part.num_labels), points.test.exclude)
    return HeldAnswers(points, ids, scores, own)


def _model(parts: Mapping[str, Part], fitted: Fitted, splits: Splits) -> Part:
    """Return the mix, or its only part as it is."""
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


def _figures(scores: Scores) -> dict[str, float]:
    return {name: scores[name] for name in FIGURES}
