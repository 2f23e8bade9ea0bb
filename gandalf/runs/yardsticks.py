"""What a model must beat on held-out points: the most frequent labels, and a plain linear model of words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.recipe import LabelTrees, Recipe, Targets
from gandalf.runs.trained import HeldAnswers, answers_of, pooled
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


def yardsticks(trials: Sequence[Splits], seed: int) -> tuple[list[Yardstick], tuple[str, ...]]:
    """Return what the yardsticks reach on the held points of all trials, and notes on those left out.

    Each trial has the rest of the training points as `train`, and the held points as `test`.
    """
    found, notes = [], []
    for name, answer in ((POPULARITY, _popularity), (LINEAR, _linear)):
        started = time.perf_counter()
        try:
            scores = pooled([answer(splits, seed) for splits in trials]).evaluated()
        except DataError as error:
            notes.append(f"no figures of {name}: {error}")
            continue
        found.append(Yardstick(name, scores, time.perf_counter() - started))
    return found, tuple(notes)


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


def _popularity(splits: Splits, seed: int) -> HeldAnswers:
    """Answer with the most frequent labels, the same for every point but for its filter."""
    rest, held = splits.train, splits.test
    assert held is not None
    spare = 0 if held.exclude is None else int(np.diff(held.exclude.indptr).max(initial=0))
    order = np.argsort(-rest.label_frequencies, kind="stable")[: PROPOSED + spare]
    scores = np.tile(np.linspace(1.0, 0.5, len(order), dtype=np.float32), (len(held), 1))
    ids = np.tile(order.astype(np.int64), (len(held), 1))  # shape: (H, k)
    return answers_of(splits, ids, scores)


def _linear(splits: Splits, seed: int) -> HeldAnswers:
    """Answer with linear classifiers over words and word pairs, learnt from the training points alone."""
    assert splits.test is not None
    recipe = Recipe(seed=seed, trees=LabelTrees(kind="auto", terms="pairs"), targets=Targets(targets="none"))
    rest = Splits(train=splits.train, name=splits.name)
    return held_answers(rest, splits.train, splits.test, recipe)
