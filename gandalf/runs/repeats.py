"""Answers on held-out points where these are few: several trials, each of which holds out other points."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.runs.budget import Clock
from gandalf.runs.session import train
from gandalf.runs.trained import HeldAnswers

REPEATS = 5


def repeated_answers(
    splits: Splits, recipes: Mapping[str, Recipe], clock: Clock
) -> list[dict[str, HeldAnswers]]:
    """Return the answers of each recipe in each trial; an empty list if no point can be held out.

    A trial is only begun if the clock leaves the time that the trial before it took.
    """
    trials: list[dict[str, HeldAnswers]] = []
    took = 0.0
    for number in range(REPEATS):
        if clock.left < took:
            break
        before = time.perf_counter()
        try:
            answers = {
                name: train(splits, replace(recipe, seed=recipe.seed + number)).held
                for name, recipe in recipes.items()
            }
        except DataError:  # of other points none could be held out, or a label had none left
            continue
        took = time.perf_counter() - before
        found = {name: held for name, held in answers.items() if held is not None}
        if len(found) == len(recipes):
            trials.append(found)
    return trials
