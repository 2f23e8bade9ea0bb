"""Measure what each kind of label points gains on held-out points, in a few minutes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import Difference, compare
from gandalf.metrics.evaluate import Scores
from gandalf.recipe import Recipe
from gandalf.runs.budget import FEWEST_EPOCHS, Size, fit_epochs, speed
from gandalf.runs.checks import check_points
from gandalf.runs.choose import AT_MOST, FEW, SHARE, score_trial
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import resolved_device
from gandalf.runs.validation import DECIDING, key_figures
from gandalf.systems import recipe as recipe_of

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
