"""Answers on held-out points where these are few: several models of a recipe, each without other points."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.predict.calibration import fit_calibration
from gandalf.recipe import Recipe
from gandalf.runs.budget import Clock
from gandalf.runs.run import train
from gandalf.runs.trained import HeldAnswers
from gandalf.runs.validation import PLACES

REPEATS = 5


def repeated_answers(splits: Splits, recipes: Mapping[str, Recipe], clock: Clock) -> dict[str, HeldAnswers]:
    """Return what each recipe says of points held out by several seeds; nothing if none can be held out.

    A repeat is only begun if the clock leaves the time that the one before it took.
    """
    rounds: list[dict[str, HeldAnswers]] = []
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
            rounds.append(found)
    return {name: pooled([each[name] for each in rounds]) for name in recipes} if rounds else {}


def pooled(repeats: Sequence[HeldAnswers]) -> HeldAnswers:
    """Return the answers of models that were trained alike, each on its own held points, as of one model."""
    one = repeats[0]
    held = reduce(add, (each.held for each in repeats))
    ids, scores = (np.concatenate([getattr(each, name) for each in repeats]) for name in ("ids", "scores"))
    calibration = fit_calibration(ids[:, :PLACES], scores[:, :PLACES], held.targets, held.exclude)
    return HeldAnswers(replace(one.splits, test=held), ids, scores, calibration)
