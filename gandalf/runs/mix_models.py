"""`gandalf mix`: one model of several that exist, with weights fitted on training points of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe, Validation
from gandalf.runs.mixing import Fitted, fit_mix
from gandalf.runs.trained import HeldAnswers
from gandalf.runs.trees import held_answers
from gandalf.runs.yardsticks import FIGURES
from gandalf.settings import from_dict
from gandalf.wide.mixing import PROPOSED

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
