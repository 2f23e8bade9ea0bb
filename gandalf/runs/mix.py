"""Mix models that exist: ask them about held-out points, and fit their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees
from gandalf.predict.inputs import check_labels
from gandalf.recipe import Recipe, Validation
from gandalf.runs.mix_weights import FittedMix, fit_mix
from gandalf.runs.trees import held_answers
from gandalf.runs.validation import HeldAnswers, key_figures
from gandalf.settings import from_dict
from gandalf.wide.mixing import PROPOSED

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
