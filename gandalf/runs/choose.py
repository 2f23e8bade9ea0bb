"""Choose the targets of label points by short runs on held-out points: `--targets auto`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference
from gandalf.metrics.evaluate import KS, Scores
from gandalf.metrics.ranking import METRICS
from gandalf.recipe import Judged, Recipe, Targets, Training
from gandalf.runs.checks import check_run
from gandalf.runs.folder import RunPlace
from gandalf.runs.prepare import split_holdout
from gandalf.runs.session import run_training
from gandalf.runs.validation import TEXTS, Judge, test_scores

Name = Literal["none", "self", "ratio", "shrunk", "calibrated"]

CANDIDATES: tuple[Name, ...] = ("none", "self", "ratio", "shrunk", "calibrated")
WITH_STRENGTH = ("shrunk", "calibrated")  # targets that have the setting targets.strength
LIGHT_WEIGHT = 0.3  # of label points, tried with the best targets
# A trial is the recipe itself, only shorter. A smaller model learns too little to profit from soft targets,
# so it would choose to go without them (docs/lab/who_gains.md).
SHORT = 0.5  # share of the recipe's updates
SHARE, AT_MOST, FEW = 0.2, 5_000, 60  # held-out points to choose by: share, most, least
WITH_INTERVAL = (*(f"{family}@{k}" for family in METRICS for k in KS), "MRR")  # figures


@dataclass(frozen=True)
class TargetsCandidate:
    """Targets of the label points and their weight in the loss."""

    targets: Name
    label_weight: float = 1.0

    def __str__(self) -> str:
        return self.targets + ("" if self.label_weight == 1.0 else f" with weight {self.label_weight:g}")


DEFAULT = TargetsCandidate("shrunk")


@dataclass(frozen=True)
class TriedTargets:
    """A candidate with its figures on the held-out points."""

    candidate: TargetsCandidate
    figures: dict[str, float]  # the deciding figure on all points, known and new texts; PSP@5
    difference: Difference | None  # to the default, on the texts that decide; None for the default

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        difference = None if self.difference is None else self.difference.as_dict()
        return {**asdict(self.candidate), "figures": self.figures, "difference": difference}


@dataclass(frozen=True)
class Choice:
    """The recipe with its targets chosen, the candidates, and the reason in a sentence."""

    recipe: Recipe
    best: TargetsCandidate
    tried: tuple[TriedTargets, ...]
    texts: Judged  # points that decided; "all" if the points that should decide were too few
    why: str

    @property
    def table(self) -> dict[str, Any]:
        """The whole comparison, for `metrics.json`."""
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

    The choice rests on points held out of those that the run will train on, so neither its validation share
    nor the test split has a say. Each candidate makes graph, calibration and propensities from the rest. The
    default stays unless another candidate is better by more than the noise of a paired bootstrap: on few
    points the best candidate would otherwise be a matter of luck.
    """
    _check(splits.train, recipe)
    try:
        trial = _hold_out_again(splits, recipe)
    except DataError as error:
        why = f"{DEFAULT} targets, by default: {error.problem.what}"
        return Choice(with_targets(recipe, DEFAULT), DEFAULT, (), recipe.validation.texts, why)
    with TemporaryDirectory() as shared:  # a siamese stage without label points is the same for all
        place = RunPlace(first_stages=Path(shared))
        scores = {
            each: _score_candidate(trial, recipe, each, place) for each in map(TargetsCandidate, CANDIDATES)
        }
        judge = Judge.of(scores[DEFAULT], recipe.validation)
        best = judge.best(scores, DEFAULT)
        if best.targets != "none" and recipe.trees.kind == "none":  # trees have no weights of points
            light = replace(best, label_weight=LIGHT_WEIGHT)
            scores[light] = _score_candidate(trial, recipe, light, place)
            best = judge.best({each: scores[each] for each in (best, light)}, best)
    tried = tuple(_tried(each, scores, judge) for each in scores)
    return Choice(with_targets(recipe, best), best, tried, judge.texts, _why(best, scores, judge))


def _check(points: Dataset, recipe: Recipe) -> None:
    """Refuse at once what would fail after the trials."""
    check_run(recipe, points)
    if recipe.validation.metric not in WITH_INTERVAL:
        what = f"targets cannot be chosen by {recipe.validation.metric}, which has no interval"
        raise DataError(what, remedy=f"choose from {', '.join(WITH_INTERVAL)}")


def _hold_out_again(splits: Splits, recipe: Recipe) -> Splits:
    """Split the points that the run will train on; the held-out ones are the test split of the trials."""
    parts = hold_out_points(split_holdout(splits.train, recipe)[0], SHARE, recipe.seed + 1, at_most=AT_MOST)
    if len(parts.held) < FEW:
        raise DataError(f"only {len(parts.held)} points could be held out to choose by")
    return Splits(train=parts.rest, test=parts.held, name=splits.name)


def with_targets(recipe: Recipe, chosen: TargetsCandidate) -> Recipe:
    """Return the recipe with these targets, and without settings that they do not have."""
    targets: Targets = replace(recipe.targets, **asdict(chosen), teacher=None)
    if chosen.targets not in WITH_STRENGTH:
        targets = replace(targets, strength=None)
    if chosen.targets == "none":
        targets = replace(targets, keep="both")
    return replace(recipe, targets=targets)


def _score_candidate(trial: Splits, recipe: Recipe, candidate: TargetsCandidate, place: RunPlace) -> Scores:
    """Train the recipe with these targets in a shorter run; return its figures on the held-out points."""
    short = replace(with_targets(recipe, candidate), training=_shorter(recipe))
    return score_trial(trial, short, replace(place, title=f"trying {candidate}"))


def score_trial(trial: Splits, recipe: Recipe, place: RunPlace) -> Scores:
    """Train on the rest of a trial without validation; return the figures on its held-out points."""
    recipe = replace(recipe, validation=replace(recipe.validation, share=0.0))
    found = test_scores(run_training(replace(trial, test=None), recipe, place).model, trial)
    assert found is not None
    return found


def _shorter(recipe: Recipe) -> Training:
    """Return the training with half the updates; trees have no updates."""
    training = recipe.training
    if recipe.trees.kind != "none":
        return training
    steps = None if training.steps is None else max(1, round(SHORT * training.steps))
    return replace(training, epochs=SHORT * training.epochs, steps=steps)


def _tried(candidate: TargetsCandidate, scores: dict[TargetsCandidate, Scores], judge: Judge) -> TriedTargets:
    found, metric = scores[candidate], judge.metric
    subsets = {"label_text": found.label_text, "new_text": found.new_text}
    values = {name: each.values[metric] for name, each in subsets.items() if each and each.points}
    figures = {metric: found[metric], **values, "PSP@5": found["PSP@5"]}
    is_default = candidate == DEFAULT
    return TriedTargets(candidate, figures, None if is_default else judge.difference(found, scores[DEFAULT]))


def _why(best: TargetsCandidate, scores: dict[TargetsCandidate, Scores], judge: Judge) -> str:
    """Return in a sentence why these targets were chosen."""
    if best == DEFAULT:
        return f"{best}: no other is better by more than noise ({judge.by})"
    other = DEFAULT if best.label_weight == 1.0 else replace(best, label_weight=1.0)
    gain = judge.difference(scores[best], scores[other])
    return f"{best}: {gain.difference:+.1f} {judge.by} ({gain.low:+.1f} to {gain.high:+.1f}) against {other}"
