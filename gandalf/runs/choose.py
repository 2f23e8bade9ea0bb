"""`--targets auto`: which label points to train with, decided on held-out training points by short runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference
from gandalf.metrics.evaluate import KS, Scores
from gandalf.metrics.ranking import METRICS
from gandalf.recipe import Judged, Recipe, Targets, Training
from gandalf.runs.checks import check_points, check_recipe
from gandalf.runs.folder import Place
from gandalf.runs.prepare import cut
from gandalf.runs.session import train
from gandalf.runs.validation import TEXTS, Judge, test_scores

Name = Literal["none", "self", "ratio", "shrunk", "calibrated"]

CANDIDATES: tuple[Name, ...] = ("none", "self", "ratio", "shrunk", "calibrated")
SHRINKING = ("shrunk", "calibrated")  # whose strength may have been given
LIGHT_WEIGHT = 0.3  # of label points, tried with the best targets
# A trial is the recipe itself, only shorter. A lighter model will not do: one that has learnt too little to
# profit from soft targets prefers to go without them (docs/lab/who_gains.md).
SHORT = 0.5  # of the recipe's updates
SHARE, AT_MOST, FEW = 0.2, 5_000, 60  # points held out to choose by; with fewer nothing can be told
DECIDING = (*(f"{family}@{k}" for family in METRICS for k in KS), "MRR")  # figures that have an interval


@dataclass(frozen=True)
class Candidate:
    """Targets of the label points, and what these count in the loss."""

    targets: Name
    label_weight: float = 1.0

    def __str__(self) -> str:
        return self.targets + ("" if self.label_weight == 1.0 else f" with weight {self.label_weight:g}")


DEFAULT = Candidate("shrunk")


@dataclass(frozen=True)
class Tried:
    """One candidate: its figures on the held-out points, and how it differs from the default."""

    candidate: Candidate
    figures: dict[str, float]  # the deciding figure on all points and on the two kinds of text, and PSP@5
    difference: Difference | None  # to the default, on the texts that decide; None for the default itself

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        difference = None if self.difference is None else self.difference.as_dict()
        return {**asdict(self.candidate), "figures": self.figures, "difference": difference}


@dataclass(frozen=True)
class Choice:
    """The recipe with its targets chosen, the table they were chosen from, and the reason in a sentence."""

    recipe: Recipe
    best: Candidate
    tried: tuple[Tried, ...]
    texts: Judged  # that decided: all, where there were too few of those that were to
    why: str

    @property
    def table(self) -> dict[str, Any]:
        """Everything that was looked at, for `metrics.json`."""
        return {
            "chosen": asdict(self.best),
            "why": self.why,
            "metric": self.recipe.validation.metric,
            "texts": self.texts,
            "by": f"{self.recipe.validation.metric} on {TEXTS[self.texts]}",
            "tried": [each.as_dict() for each in self.tried],
        }


def choose(splits: Splits, recipe: Recipe) -> Choice:
    """Choose targets and weight of the label points, for new texts unless the recipe says otherwise.

    The points to choose by are cut from the training points that the run itself will train on: neither its
    own validation share nor the test split has a say. For each candidate graph, calibration and
    propensities are made anew from what is left. The default stays unless another is better by more than
    the noise of a paired bootstrap: on few points whatever comes first would else be luck.
    """
    _check(splits.train, recipe)
    try:
        trial = _trial(splits, recipe)
    except DataError as error:
        why = f"{DEFAULT} targets, by default: {error.problem.what}"
        return Choice(_with(recipe, DEFAULT), DEFAULT, (), recipe.validation.texts, why)
    with TemporaryDirectory() as shared:  # a siamese stage knows no label points: one does for all
        place = Place(first_stages=Path(shared))
        scores = {each: _scores(trial, recipe, each, place) for each in map(Candidate, CANDIDATES)}
        judge = Judge.of(scores[DEFAULT], recipe.validation)
        best = judge.best(scores, DEFAULT)
        if best.targets != "none" and recipe.trees.kind == "none":  # trees know no weights
            light = replace(best, label_weight=LIGHT_WEIGHT)
            scores[light] = _scores(trial, recipe, light, place)
            best = judge.best({each: scores[each] for each in (best, light)}, best)
    tried = tuple(_tried(each, scores, judge) for each in scores)
    return Choice(_with(recipe, best), best, tried, judge.texts, _why(best, scores, judge))


def _check(points: Dataset, recipe: Recipe) -> None:
    """Refuse before any work what would fail after it."""
    check_recipe(recipe)
    check_points(points)
    if recipe.validation.metric not in DECIDING:
        what = f"targets cannot be chosen by {recipe.validation.metric}, which has no interval"
        raise DataError(what, remedy=f"choose from {', '.join(DECIDING)}")


def _trial(splits: Splits, recipe: Recipe) -> Splits:
    """The run's own training points cut anew: those to choose by as the test split."""
    parts = holdout(cut(splits.train, recipe).rest, SHARE, recipe.seed + 1, at_most=AT_MOST)
    if len(parts.held) < FEW:
        raise DataError(f"only {len(parts.held)} points could be held out to choose by")
    return Splits(train=parts.rest, test=parts.held, name=splits.name)


def _with(recipe: Recipe, chosen: Candidate) -> Recipe:
    targets: Targets = replace(recipe.targets, **asdict(chosen))
    if chosen.targets not in SHRINKING:
        targets = replace(targets, strength=None)  # of others it says nothing
    targets = replace(targets, teacher=None)
    if chosen.targets == "none":
        targets = replace(targets, keep="both")
    return replace(recipe, targets=targets)


def _scores(trial: Splits, recipe: Recipe, candidate: Candidate, place: Place) -> Scores:
    """The recipe with these targets, in a shorter run, scored on the held-out points."""
    short = replace(
        _with(recipe, candidate),
        training=_shorter(recipe),
        validation=replace(recipe.validation, share=0.0),
    )
    titled = replace(place, title=f"trying {candidate}")
    found = test_scores(train(replace(trial, test=None), short, titled).model, trial)
    assert found is not None
    return found


def _shorter(recipe: Recipe) -> Training:
    """Half the updates, where there are any: trees have none."""
    training = recipe.training
    if recipe.trees.kind != "none":
        return training
    steps = None if training.steps is None else max(1, round(SHORT * training.steps))
    return replace(training, epochs=SHORT * training.epochs, steps=steps)


def _tried(candidate: Candidate, scores: dict[Candidate, Scores], judge: Judge) -> Tried:
    own, metric = scores[candidate], judge.metric
    parts = {"label_text": own.label_text, "new_text": own.new_text}
    values = {name: part.values[metric] for name, part in parts.items() if part and part.points}
    figures = {metric: own[metric], **values, "PSP@5": own["PSP@5"]}
    is_default = candidate == DEFAULT
    return Tried(candidate, figures, None if is_default else judge.difference(own, scores[DEFAULT]))


def _why(best: Candidate, scores: dict[Candidate, Scores], judge: Judge) -> str:
    """The reason in a sentence."""
    if best == DEFAULT:
        return f"{best}: no other is better by more than noise ({judge.by})"
    other = DEFAULT if best.label_weight == 1.0 else replace(best, label_weight=1.0)
    gain = judge.difference(scores[best], scores[other])
    return f"{best}: {gain.difference:+.1f} {judge.by} ({gain.low:+.1f} to {gain.high:+.1f}) against {other}"
