"""Train cheap baselines, popularity and linear classifiers, that every model should beat."""

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
from gandalf.runs.trees import held_answers
from gandalf.runs.validation import DECIDING, HeldAnswers, calibrated_answers, key_figures, pooled
from gandalf.wide.mixing import PROPOSED

POPULARITY, LINEAR = "popularity", "TF-IDF + linear"


@dataclass(frozen=True, eq=False)
class Baseline:
    """A cheap model and its figures on held-out points."""

    name: str
    scores: Scores
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        return {"name": self.name, **key_figures(self.scores), "seconds": round(self.seconds, 3)}


def score_baselines(trials: Sequence[Splits], seed: int) -> tuple[list[Baseline], tuple[str, ...]]:
    """Return the baselines with their figures, and a note for each baseline that could not be trained.

    Each trial has the rest of the training points as `train`, and the held-out points as `test`.
    """
    found, notes = [], []
    for name, answer in ((POPULARITY, _popularity), (LINEAR, _linear)):
        started = time.perf_counter()
        try:
            scores = pooled([answer(splits, seed) for splits in trials]).evaluated()
        except DataError as error:
            notes.append(f"no figures of {name}: {error}")
            continue
        found.append(Baseline(name, scores, time.perf_counter() - started))
    return found, tuple(notes)


def note_if_behind(scores: Scores, baselines: Sequence[Baseline]) -> str | None:
    """Return a sentence if a baseline is ahead of the model, else None."""
    ahead = [
        f"{baseline.name} has {name} {baseline.scores[name]:.1f}, the model {scores[name]:.1f}"
        for baseline in baselines
        for name in DECIDING
        if baseline.scores[name] > scores[name]
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
    return calibrated_answers(splits, ids, scores)


def _linear(splits: Splits, seed: int) -> HeldAnswers:
    """Answer with linear classifiers over words and word pairs, trained without label points."""
    assert splits.test is not None
    recipe = Recipe(seed=seed, trees=LabelTrees(kind="auto", terms="pairs"), targets=Targets(targets="none"))
    rest = Splits(train=splits.train, name=splits.name)
    return held_answers(rest, splits.train, splits.test, recipe)
