"""`--targets auto`: which label points to train with, decided on held-out training points by short runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import Scores
from gandalf.recipe import Judged, Recipe, Targets, Validation
from gandalf.runs.material import cut
from gandalf.runs.run import test_scores, train
from gandalf.runs.validation import judged
from gandalf.systems import recipe as recipe_of

Name = Literal["none", "self", "ratio", "shrunk", "calibrated"]

CANDIDATES: tuple[Name, ...] = ("none", "self", "ratio", "shrunk", "calibrated")
DEFAULT: Name = "shrunk"
LIGHT_WEIGHT = 0.3  # of label points, tried with the best targets
# The light model: a bag of words with short vectors, and no longer than it takes to tell candidates apart.
SYSTEM, DIM, EPOCHS, STEPS = "astec", 128, 8.0, 3_000
SHARE, AT_MOST, FEW = 0.2, 5_000, 60  # points held out to choose by; with fewer nothing can be told


@dataclass(frozen=True)
class Tried:
    """One candidate: its figures on the held-out points, and how it differs from the default."""

    targets: str
    label_weight: float
    figures: dict[str, float]  # the deciding figure of all points and of the two kinds of text, and PSP@5
    difference: Difference | None  # to the default, on the points that decide; None for the default itself

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        difference = None if self.difference is None else asdict(self.difference)
        return {**asdict(self), "difference": difference}


@dataclass(frozen=True)
class Choice:
    """The recipe with its targets chosen, the table they were chosen from, and the reason in a sentence."""

    recipe: Recipe
    tried: tuple[Tried, ...]
    why: str

    @property
    def table(self) -> dict[str, Any]:
        """Everything that was looked at, for `metrics.json`."""
        return {"why": self.why, "tried": [each.as_dict() for each in self.tried]}


def choose(splits: Splits, recipe: Recipe) -> Choice:
    """Choose targets and weight of the label points, for new texts unless the recipe says otherwise.

    The points to choose by are cut from the training points that the run itself will train on: neither its
    own validation share nor the test split has a say. For each candidate graph, calibration and
    propensities are made anew from what is left. The default stays unless another is better by more than
    the noise of a paired bootstrap: on few points whatever comes first would else be luck.
    """
    rest = cut(splits.train, recipe).rest
    try:
        parts = holdout(rest, SHARE, recipe.seed + 1, at_most=AT_MOST)
    except DataError as error:
        return _by_default(recipe, str(error))
    if len(parts.held) < FEW:
        return _by_default(recipe, f"only {len(parts.held)} points could be held out to choose by")
    trial = Splits(train=parts.rest, test=parts.held, name=splits.name)
    scores = {name: _scores(trial, recipe, name) for name in CANDIDATES}
    best, tried = _judge({(name, 1.0): each for name, each in scores.items()}, recipe.validation)
    if best[0] != "none":
        light = {(best[0], LIGHT_WEIGHT): _scores(trial, recipe, best[0], LIGHT_WEIGHT)}
        known = {(name, 1.0): scores[name] for name in dict.fromkeys((best[0], DEFAULT))}
        best, more = _judge(known | light, recipe.validation, start=best)
        tried += [each for each in more if each.label_weight != 1.0]
    return Choice(_with(recipe, *best), tuple(tried), _why(best, tried, recipe.validation))


def _by_default(recipe: Recipe, why: str) -> Choice:
    return Choice(_with(recipe, DEFAULT, 1.0), (), f"{DEFAULT} targets, by default: {why}")


def _with(recipe: Recipe, targets: Name, weight: float) -> Recipe:
    chosen: Targets = replace(recipe.targets, targets=targets, label_weight=weight)
    if targets == "none":
        chosen = replace(chosen, keep="both")
    return replace(recipe, targets=chosen)


def _scores(trial: Splits, recipe: Recipe, targets: Name, weight: float = 1.0) -> Scores:
    """A light model trained with these targets, scored on the held-out points."""
    light = recipe_of(SYSTEM)
    light = replace(
        _with(replace(light, targets=recipe.targets), targets, weight),
        seed=recipe.seed,
        device=recipe.device,
        text=replace(recipe.text, kind="words"),
        encoder=replace(light.encoder, dim=DIM),
        training=replace(light.training, steps=_steps(trial.train)),
        validation=replace(recipe.validation, share=0.0),
    )
    found = test_scores(train(replace(trial, test=None), light).model, trial)
    assert found is not None
    return found


def _steps(points: Dataset) -> int:
    batch = 256
    return min(STEPS, math.ceil(EPOCHS * (len(points) + points.num_labels) / batch))


def _judge(
    scores: dict[tuple[Name, float], Scores], options: Validation, start: tuple[Name, float] = (DEFAULT, 1.0)
) -> tuple[tuple[Name, float], list[Tried]]:
    """The candidate that beats the one to start from by more than noise, and most so; else that one."""
    base, best, lead = scores[start], start, 0.0
    tried = []
    for (name, weight), each in scores.items():
        difference = None if (name, weight) == start else _difference(each, base, options)
        tried.append(Tried(name, weight, _figures(each, options.metric), difference))
        if difference is not None and difference.low > 0 and difference.difference > lead:
            best, lead = (name, weight), difference.difference
    return best, tried


def _difference(one: Scores, other: Scores, options: Validation) -> Difference:
    found = compare(one, other)
    parts = {"new": found.new_text, "label": found.label_text, "all": found.every}
    part = parts[_deciding(one, options.texts)] or found.every
    if options.metric not in part:
        raise DataError(f"targets cannot be chosen by {options.metric!r}", remedy=f"try {', '.join(part)}")
    return part[options.metric]


def _deciding(scores: Scores, texts: Judged) -> Judged:
    """The kind of texts that decides, or all of them where there are too few of that kind."""
    return "all" if judged(scores, texts) is scores.filtered else texts


def _figures(scores: Scores, metric: str) -> dict[str, float]:
    parts = {"label_text": scores.label_text, "new_text": scores.new_text}
    found = {name: part.values[metric] for name, part in parts.items() if part is not None and part.points}
    return {metric: scores[metric], **found, "PSP@5": scores["PSP@5"]}


def _why(best: tuple[Name, float], tried: list[Tried], options: Validation) -> str:
    name, weight = best
    texts = {"new": "new texts", "label": "texts of labels", "all": "all texts"}[options.texts]
    said = name if weight == 1.0 else f"{name} with weight {weight:g}"
    if best == (DEFAULT, 1.0):
        return f"{said}: no other is better by more than noise ({options.metric} on {texts})"
    found = next(each for each in tried if (each.targets, each.label_weight) == best)
    assert found.difference is not None
    gain = found.difference
    return (
        f"{said}: {gain.difference:+.1f} {options.metric} on {texts} "
        f"({gain.low:+.1f} to {gain.high:+.1f}) against what would have been taken else"
    )
