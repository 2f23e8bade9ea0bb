"""Choice of label points by short runs on held-out points: `--targets auto`, and what each kind gains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
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
from gandalf.runs.prepare import cut
from gandalf.runs.session import train
from gandalf.runs.validation import TEXTS, Judge, test_scores
from gandalf.systems import recipe as recipe_of

Name = Literal["none", "self", "ratio", "shrunk", "calibrated"]

CANDIDATES: tuple[Name, ...] = ("none", "self", "ratio", "shrunk", "calibrated")
SHRINKING = ("shrunk", "calibrated")  # whose strength may have been given
LIGHT_WEIGHT = 0.3  # of label points, tried with the best targets
# A trial is the recipe itself, only shorter. A lighter model will not do: one that has learnt too little to
# profit from soft targets prefers to go without them (docs/lab/who_gains.md).
SHORT = 0.5  # of the recipe's updates
SHARE, AT_MOST, FEW = 0.2, 5_000, 60  # held-out points to choose by; fewer than FEW tell nothing
DECIDING = (*(f"{family}@{k}" for family in METRICS for k in KS), "MRR")  # figures that have an interval


@dataclass(frozen=True)
class TargetsCandidate:
    """Targets of the label points, and what these count in the loss."""

    targets: Name
    label_weight: float = 1.0

    def __str__(self) -> str:
        return self.targets + ("" if self.label_weight == 1.0 else f" with weight {self.label_weight:g}")


DEFAULT = TargetsCandidate("shrunk")


@dataclass(frozen=True)
class TriedTargets:
    """One candidate: its figures on the held-out points, and how it differs from the default."""

    candidate: TargetsCandidate
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
    best: TargetsCandidate
    tried: tuple[TriedTargets, ...]
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
        place = RunPlace(first_stages=Path(shared))
        scores = {each: _scores(trial, recipe, each, place) for each in map(TargetsCandidate, CANDIDATES)}
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
    check_run(recipe, points)
    if recipe.validation.metric not in DECIDING:
        what = f"targets cannot be chosen by {recipe.validation.metric}, which has no interval"
        raise DataError(what, remedy=f"choose from {', '.join(DECIDING)}")


def _trial(splits: Splits, recipe: Recipe) -> Splits:
    """The run's own training points cut anew: those to choose by as the test split."""
    parts = holdout(cut(splits.train, recipe).rest, SHARE, recipe.seed + 1, at_most=AT_MOST)
    if len(parts.held) < FEW:
        raise DataError(f"only {len(parts.held)} points could be held out to choose by")
    return Splits(train=parts.rest, test=parts.held, name=splits.name)


def _with(recipe: Recipe, chosen: TargetsCandidate) -> Recipe:
    targets: Targets = replace(recipe.targets, **asdict(chosen))
    if chosen.targets not in SHRINKING:
        targets = replace(targets, strength=None)  # of others it says nothing
    targets = replace(targets, teacher=None)
    if chosen.targets == "none":
        targets = replace(targets, keep="both")
    return replace(recipe, targets=targets)


def _scores(trial: Splits, recipe: Recipe, candidate: TargetsCandidate, place: RunPlace) -> Scores:
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


def _tried(candidate: TargetsCandidate, scores: dict[TargetsCandidate, Scores], judge: Judge) -> TriedTargets:
    own, metric = scores[candidate], judge.metric
    parts = {"label_text": own.label_text, "new_text": own.new_text}
    values = {name: part.values[metric] for name, part in parts.items() if part and part.points}
    figures = {metric: own[metric], **values, "PSP@5": own["PSP@5"]}
    is_default = candidate == DEFAULT
    return TriedTargets(candidate, figures, None if is_default else judge.difference(own, scores[DEFAULT]))


def _why(best: TargetsCandidate, scores: dict[TargetsCandidate, Scores], judge: Judge) -> str:
    """The reason in a sentence."""
    if best == DEFAULT:
        return f"{best}: no other is better by more than noise ({judge.by})"
    other = DEFAULT if best.label_weight == 1.0 else replace(best, label_weight=1.0)
    gain = judge.difference(scores[best], scores[other])
    return f"{best}: {gain.difference:+.1f} {judge.by} ({gain.low:+.1f} to {gain.high:+.1f}) against {other}"


SYSTEM = "astec"
NONE = "none"
FIGURES = ("P@1", "PSP@5")  # that decide; the second counts rare labels more
FULL = 0.5  # share of the system's own epochs from which a trial is long enough to be believed


@dataclass(frozen=True)
class Gain:
    """A kind of label points: its figures on the held-out points, and what it gains over none."""

    targets: str
    figures: dict[str, float]
    gained: dict[str, Difference]  # by figure, over no label points; empty for these

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {**asdict(self), "gained": {name: each.as_dict() for name, each in self.gained.items()}}


@dataclass(frozen=True)
class Gains:
    """All kinds side by side, and what they say in a sentence; without kinds, why there are none."""

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
    """Train without label points and with each kind, in so many minutes in all; score held-out points."""
    check_points(points)
    try:
        cut = holdout(points, SHARE, seed, at_most=AT_MOST)
        if len(cut.held) < FEW:
            raise DataError(f"only {counted(len(cut.held), 'point')} could be held out")
        recipe = _short(cut.rest, minutes, 1 + len(kinds), seed)
    except DataError as error:
        return Gains((), 0, 0.0, f"What label points gain was not tried: {error.problem.what}.")
    trial = Splits(train=cut.rest, test=cut.held, name="held-out training points")
    scores = {name: _scores_with(trial, recipe, name, tell) for name in (NONE, *kinds)}
    tried = tuple(_gain(name, scores) for name in scores)
    return Gains(tried, len(cut.held), recipe.training.epochs, _verdict(tried, recipe))


def _short(points: Dataset, minutes: float, runs: int, seed: int) -> Recipe:
    """Return the system's recipe with as many epochs as the minutes allow each run."""
    recipe = recipe_of(SYSTEM)
    recipe = replace(recipe, seed=seed, validation=replace(recipe.validation, share=0.0))
    found = fit_epochs(recipe, Size.of(points), 60 * minutes / runs, speed(resolved_device(recipe.device)))
    if found is None:
        what = f"{minutes:g} minutes are too few for {runs} runs of {FEWEST_EPOCHS:g} epochs"
        raise DataError(what, remedy="allow more")
    return found


def _scores_with(trial: Splits, recipe: Recipe, name: str, tell: Callable[[str], None] | None) -> Scores:
    started = time.perf_counter()
    own = replace(recipe, targets=replace(recipe.targets, targets=name))
    found = test_scores(train(replace(trial, test=None), own, RunPlace(title=f"trying {name}")).model, trial)
    assert found is not None
    if tell is not None:
        figures = ", ".join(f"{figure} {found[figure]:.1f}" for figure in FIGURES)
        tell(f"{name}: {figures} on held-out points, {time.perf_counter() - started:.0f} s")
    return found


def _gain(name: str, scores: Mapping[str, Scores]) -> Gain:
    own = scores[name]
    every = {} if name == NONE else compare(own, scores[NONE]).every
    gained = {figure: every[figure] for figure in FIGURES} if every else {}
    return Gain(name, {figure: own[figure] for figure in (*FIGURES, "C@5")}, gained)


def _verdict(tried: Sequence[Gain], recipe: Recipe) -> str:
    kinds = [each for each in tried if each.gained]
    said = [each for figure in FIGURES if (each := _said(figure, kinds))]
    nothing = "no kind of label points gains more than noise"
    words = [f"On held-out points {' and '.join(said) or nothing}."]
    epochs, usual = recipe.training.epochs, recipe_of(SYSTEM).training.epochs
    if epochs < FULL * usual:
        words.append(f"The runs were short, {epochs:g} of {usual:g} epochs: allow more minutes to be sure.")
    return " ".join(words)


def _said(figure: str, kinds: Sequence[Gain]) -> str:
    """Say what label points change in a figure beyond noise; "" if nothing."""
    best = max(kinds, key=lambda each: each.gained[figure].difference)
    gain = best.gained[figure]
    interval = f"{gain.difference:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
    if gain.low > 0:
        return f"{best.targets} label points change {figure} by {interval}"
    if all(each.gained[figure].high < 0 for each in kinds):
        return f"all kinds of label points cost {figure}, the best of them {interval}"
    return ""
