"""What a model must beat on held-out points: the most frequent labels, and a plain linear model of words."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.recipe import LabelTrees, Recipe, Targets
from gandalf.runs.trees import held_answers
from gandalf.wide.mixing import PROPOSED

POPULARITY, LINEAR = "popularity", "TF-IDF + linear"
FIGURES = ("P@1", "PSP@5", "C@5")  # those that are printed


@dataclass(frozen=True, eq=False)
class Yardstick:
    """A model that costs next to nothing, and what it reaches on held-out points."""

    name: str
    scores: Scores
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {
            "name": self.name,
            **{name: self.scores[name] for name in FIGURES},
            "seconds": round(self.seconds, 3),
        }


def yardsticks(splits: Splits, seed: int) -> tuple[list[Yardstick], tuple[str, ...]]:
    """Return what the yardsticks reach on the test split of `splits`, and notes on those left out.

    `splits` are held-out training points: the rest as `train`, the held points as `test`.
    """
    assert splits.test is not None
    started = time.perf_counter()
    found = [Yardstick(POPULARITY, _popularity(splits.train, splits.test, splits), 0.0)]
    found = [replace(found[0], seconds=time.perf_counter() - started)]
    recipe = Recipe(seed=seed, trees=LabelTrees(kind="auto", terms="pairs"), targets=Targets(targets="none"))
    try:
        started = time.perf_counter()
        answers = held_answers(
            Splits(train=splits.train, name=splits.name), splits.train, splits.test, recipe
        )
        found.append(Yardstick(LINEAR, answers.evaluated(), time.perf_counter() - started))
    except DataError as error:
        return found, (f"no figures of {LINEAR}: {error}",)
    return found, ()


def beaten(scores: Scores, rivals: list[Yardstick]) -> str | None:
    """Return a sentence if a yardstick is ahead of the model, else None."""
    ahead = [
        f"{rival.name} has {name} {rival.scores[name]:.1f}, the model {scores[name]:.1f}"
        for rival in rivals
        for name in FIGURES[:2]
        if rival.scores[name] > scores[name]
    ]
    if not ahead:
        return None
    remedy = "gandalf train without --system searches for a better one"
    return f"a cheap model is ahead on held-out points: {'; '.join(ahead)}; {remedy}"


def _popularity(rest: Dataset, held: Dataset, splits: Splits) -> Scores:
    """Return the figures of the most frequent labels, the same for every point but for its filter."""
    spare = 0 if held.exclude is None else int(np.diff(held.exclude.indptr).max(initial=0))
    order = np.argsort(-rest.label_frequencies, kind="stable")[: PROPOSED + spare]
    scores = np.linspace(1.0, 0.5, len(order), dtype=np.float32)
    ids = np.tile(order.astype(np.int64), (len(held), 1))  # shape: (H, k)
    return evaluate((ids, np.tile(scores, (len(held), 1))), splits)
