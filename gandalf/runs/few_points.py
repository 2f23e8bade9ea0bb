"""End a search with too few held-out points: train on all points, and fit weights by repeated trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gandalf.data.dataset import Splits
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.model import Calibration
from gandalf.recipe import MemorySettings, Recipe
from gandalf.runs.candidates import (
    FIRST,
    READER,
    Candidate,
    SearchResult,
    TriedCandidate,
    is_network,
    why_of_few,
)
from gandalf.runs.cost import Clock
from gandalf.runs.mix import fit_mix
from gandalf.runs.session import run_training
from gandalf.runs.trees import Baseline, score_baselines
from gandalf.runs.validation import HeldAnswers, pooled

if TYPE_CHECKING:
    from gandalf.runs.search import ModelSearch

FEW = 50  # held-out points: with fewer, weights are fitted by repeated trials
FEWEST = 15  # held-out points of all trials together: with fewer, the weights are the default ones
TRIALS = 5
# The candidates and their default weights. Such small sets have hardly a label with two points, and there the
# transformer knows more: on 300 training points of library titles P@1 and PSP@5 were 3 and 4 higher with 70 %
# than with half.
DEFAULT_WEIGHTS = {FIRST: 0.3, READER: 0.7}

Answers = Mapping[str, HeldAnswers]  # by the name of the candidate


@dataclass(frozen=True)
class _Mix:
    """Weights of a mix, and what repeated trials found out about it."""

    shares: dict[str, float]
    calibration: Calibration | None = None
    scores: Scores | None = None
    baselines: Sequence[Baseline] = ()


def search_few_points(search: ModelSearch, held: int) -> SearchResult:
    """Return a mix of models that learn in seconds, from all points; repeated trials fit its weights."""
    search.tell(f"only {counted(held, 'point')} can be held out at once: the weights rest on repeated trials")
    for candidate in search.candidates:
        row = search.add_row(candidate.name)
        if candidate.name in DEFAULT_WEIGHTS or len(search.candidates) == 1:
            _train_on_all_points(search, candidate, row)
        else:
            row.note = f"left out: it needs {FEW} held-out points at once, and there are {held}"
    search.need_a_model()
    mix = _fit_by_trials(search)
    why = why_of_few(mix.shares, held, None if mix.scores is None else mix.scores.filtered.points)
    search.tell(why)
    trained = search.mix(mix.shares, mix.calibration)
    return search.result(trained, mix.baselines, mix.scores, why)


def _train_on_all_points(search: ModelSearch, candidate: Candidate, row: TriedCandidate) -> None:
    before, asked = search.clock.spent, search.recipe
    recipe = replace(candidate.recipe, memory=MemorySettings(), seed=asked.seed, device=asked.device)
    recipe = replace(recipe, validation=replace(asked.validation, share=0.0))
    try:
        if is_network(recipe):
            recipe = replace(recipe, text=search.fit_network(recipe, last=False).text)
        search.keep(candidate.name, recipe, run_training(search.splits, recipe))
    except DataError as error:
        search.leave_out(row, str(error))
        return
    row.seconds = search.clock.spent - before


def _fit_by_trials(search: ModelSearch) -> _Mix:
    """Fit the weights on the held-out points of repeated trials, or return the default weights."""
    trials = repeated_answers(search.splits, _trial_recipes(search), search.clock)
    answers = {name: pooled([each[name] for each in trials]) for name in search.trained if trials}
    points = len(next(iter(answers.values())).held) if answers else 0
    if points < FEWEST:
        weights = {name: DEFAULT_WEIGHTS.get(name, 1.0) for name in search.trained}
        mix = _Mix({name: weight / sum(weights.values()) for name, weight in weights.items()})
    else:
        fitted = fit_mix(answers)
        of_trials = [next(iter(each.values())).splits for each in trials]
        baselines, notes = score_baselines(of_trials, search.recipe.seed)
        search.notes += notes
        mix = _Mix(fitted.shares, fitted.calibration, fitted.scores, baselines)
        for row in search.tried:
            if row.name in answers:
                row.scores = answers[row.name].evaluated()
                adds_nothing = "" if row.name in mix.shares else "adds nothing to the others"
                row.note = row.note or adds_nothing
    for row in search.tried:
        row.weight = mix.shares.get(row.name, 0.0)
    return mix


def _trial_recipes(search: ModelSearch) -> dict[str, Recipe]:
    """Return the recipes for trials: their models are not kept, so they end without the stage all-points."""
    recipes = {name: search.shared(recipe) for name, recipe in search.recipes.items()}
    return {
        name: replace(recipe, training=replace(recipe.training, last_stretch=0.0))
        for name, recipe in recipes.items()
    }


def repeated_answers(splits: Splits, recipes: Mapping[str, Recipe], clock: Clock) -> list[Answers]:
    """Train each recipe in several trials with different held-out points; return the answers of each trial.

    A trial begins only if the clock leaves the time that the trial before it took.
    """
    trials: list[Answers] = []
    took = 0.0
    for number in range(TRIALS):
        if clock.left < took:
            break
        before = time.perf_counter()
        try:
            answers = {
                name: run_training(splits, replace(recipe, seed=recipe.seed + number)).held
                for name, recipe in recipes.items()
            }
        except DataError:  # with this seed no point can be held out, or a label has no point left
            continue
        took = time.perf_counter() - before
        found = {name: held for name, held in answers.items() if held is not None}
        if len(found) == len(recipes):
            trials.append(found)
    return trials
