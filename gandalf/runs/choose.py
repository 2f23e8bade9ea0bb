"""Choose the targets of label points by short runs on held-out points, and measure what they gain."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import KS, Scores
from gandalf.metrics.ranking import METRICS
from gandalf.recipe import Judged, Recipe, Targets, Training
from gandalf.runs.checks import check_points, check_run
from gandalf.runs.cost import FEWEST_EPOCHS, Size, fit_epochs, speed
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import resolved_device
from gandalf.runs.prepare import split_holdout
from gandalf.runs.session import run_training
from gandalf.runs.validation import DECIDING, TEXTS, Judge, key_figures, test_scores
from gandalf.systems import recipe as recipe_of

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


SYSTEM = "astec"
NONE = "none"
LONG_ENOUGH = 0.5  # share of the system's epochs from which a trial can be trusted


@dataclass(frozen=True)
class Gain:
    """A kind of label points with its figures on the held-out points, and its gain over no label points."""

    targets: str
    figures: dict[str, float]
    gained: dict[str, Difference]  # by figure; empty for no label points

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {**asdict(self), "gained": {name: each.as_dict() for name, each in self.gained.items()}}


@dataclass(frozen=True)
class Gains:
    """The gains of all kinds, and a verdict in a sentence; without kinds, the reason."""

    tried: tuple[Gain, ...]
    held: int
    epochs: float
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "tried": [each.as_dict() for each in self.tried]}


def label_point_gains(
    points: Dataset,
    kinds: Sequence[str],
    minutes: float = 1.0,
    *,
    seed: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Gains:
    """Train without label points and with each kind, in `minutes` in all; score held-out points."""
    check_points(points)
    try:
        parts = hold_out_points(points, SHARE, seed, at_most=AT_MOST)
        if len(parts.held) < FEW:
            raise DataError(f"only {counted(len(parts.held), 'point')} could be held out")
        recipe = _short_recipe(parts.rest, minutes, 1 + len(kinds), seed)
    except DataError as error:
        return Gains((), 0, 0.0, f"What label points gain was not tried: {error.problem.what}.")
    trial = Splits(train=parts.rest, test=parts.held, name="held-out training points")
    scores = {name: _score_kind(trial, recipe, name, tell) for name in (NONE, *kinds)}
    tried = tuple(_gain(name, scores) for name in scores)
    return Gains(tried, len(parts.held), recipe.training.epochs, _verdict(tried, recipe))


def _short_recipe(points: Dataset, minutes: float, runs: int, seed: int) -> Recipe:
    """Return the system's recipe with as many epochs as the minutes allow each run."""
    recipe = replace(recipe_of(SYSTEM), seed=seed)
    found = fit_epochs(recipe, Size.of(points), 60 * minutes / runs, speed(resolved_device(recipe.device)))
    if found is None:
        what = f"{minutes:g} minutes are too few for {runs} runs of {FEWEST_EPOCHS:g} epochs"
        raise DataError(what, remedy="allow more")
    return found


def _score_kind(trial: Splits, recipe: Recipe, name: str, tell: Callable[[str], None] | None) -> Scores:
    started = time.perf_counter()
    recipe = replace(recipe, targets=replace(recipe.targets, targets=name))
    found = score_trial(trial, recipe, RunPlace(title=f"trying {name}"))
    if tell is not None:
        figures = ", ".join(f"{figure} {found[figure]:.1f}" for figure in DECIDING)
        tell(f"{name}: {figures} on held-out points, {time.perf_counter() - started:.0f} s")
    return found


def _gain(name: str, scores: Mapping[str, Scores]) -> Gain:
    differences = {} if name == NONE else compare(scores[name], scores[NONE]).every
    gained = {figure: differences[figure] for figure in DECIDING} if differences else {}
    return Gain(name, key_figures(scores[name]), gained)


def _verdict(tried: Sequence[Gain], recipe: Recipe) -> str:
    kinds = [each for each in tried if each.gained]
    changes = [each for figure in DECIDING if (each := _change_in_words(figure, kinds))]
    nothing = "no kind of label points gains more than noise"
    words = [f"On held-out points {' and '.join(changes) or nothing}."]
    epochs, usual = recipe.training.epochs, recipe_of(SYSTEM).training.epochs
    if epochs < LONG_ENOUGH * usual:
        words.append(f"The runs were short, {epochs:g} of {usual:g} epochs: allow more minutes to be sure.")
    return " ".join(words)


def _change_in_words(figure: str, kinds: Sequence[Gain]) -> str:
    """Return how label points change a figure beyond noise; "" if they do not."""
    best = max(kinds, key=lambda each: each.gained[figure].difference)
    gain = best.gained[figure]
    interval = f"{gain.difference:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
    if gain.low > 0:
        return f"{best.targets} label points change {figure} by {interval}"
    if all(each.gained[figure].high < 0 for each in kinds):
        return f"all kinds of label points cost {figure}, the best of them {interval}"
    return ""
