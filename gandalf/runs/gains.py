"""What each kind of label points gains on held-out training points, by short runs of equal length."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import Scores
from gandalf.recipe import Recipe
from gandalf.runs.budget import FEWEST_EPOCHS, Size, fitted, speed
from gandalf.runs.checks import check_points
from gandalf.runs.folder import Place
from gandalf.runs.plan import resolved_device
from gandalf.runs.session import train
from gandalf.runs.validation import test_scores
from gandalf.systems import recipe as recipe_of

SYSTEM = "astec"
SHARE, AT_MOST, FEW = 0.2, 5_000, 60  # points held out; with fewer nothing can be told
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
    scores = {name: _scores(trial, recipe, name, tell) for name in (NONE, *kinds)}
    tried = tuple(_gain(name, scores) for name in scores)
    return Gains(tried, len(cut.held), recipe.training.epochs, _verdict(tried, recipe))


def _short(points: Dataset, minutes: float, runs: int, seed: int) -> Recipe:
    """Return the system's recipe with as many epochs as the minutes allow each run."""
    recipe = recipe_of(SYSTEM)
    recipe = replace(recipe, seed=seed, validation=replace(recipe.validation, share=0.0))
    found = fitted(recipe, Size.of(points), 60 * minutes / runs, speed(resolved_device(recipe.device)))
    if found is None:
        what = f"{minutes:g} minutes are too few for {runs} runs of {FEWEST_EPOCHS:g} epochs"
        raise DataError(what, remedy="allow more")
    return found


def _scores(trial: Splits, recipe: Recipe, name: str, tell: Callable[[str], None] | None) -> Scores:
    started = time.perf_counter()
    own = replace(recipe, targets=replace(recipe.targets, targets=name))
    found = test_scores(train(replace(trial, test=None), own, Place(title=f"trying {name}")).model, trial)
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
