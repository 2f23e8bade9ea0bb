"""Train a wide model (linear classifiers by omikuji), and the cheap baselines of every run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import write_libsvm
from gandalf.data.harden import harden_points
from gandalf.data.tf_idf import TermKind, TfIdf
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.model.trees import Trees
from gandalf.recipe import LabelTrees, Recipe, Targets, TreesKind
from gandalf.runs.prepare import split_holdout, with_label_points
from gandalf.runs.validation import DECIDING, HeldAnswers, Trained, calibrated_answers, key_figures, pooled
from gandalf.settings import to_dict
from gandalf.wide.mixing import PROPOSED
from gandalf.wide.wide_model import WideModel, need_omikuji, silenced, word_features

ONE_VS_ALL = 1_000_000_000  # most products of features and labels for one-vs-all: some 20 s on two cores
# Most texts and labels for n-grams of characters, which make a classifier ten times as slow.
FEW_TEXTS, FEW_LABELS = 50_000, 2_000
TERM_KINDS: dict[str, tuple[TermKind, ...]] = {
    "words": ("words",),
    "pairs": ("words", "pairs"),
    "characters": ("words", "pairs", "characters"),
}


def train_trees(splits: Splits, recipe: Recipe) -> Trained:
    """Train by a recipe whose targets are chosen; never look at the test split.

    Trees of the rest calibrate the scores on the held-out points. Then trees of all points are trained: this
    takes seconds, and the model gains by the held-out points.
    """
    started = time.perf_counter()
    need_omikuji()
    rest, held = split_holdout(splits.train, recipe)
    answers = None if held is None else held_answers(splits, rest, held, recipe)
    return _train(splits, splits.train, recipe, answers, started)


def trial_trees(splits: Splits, recipe: Recipe) -> Trained:
    """Train on the rest alone and answer the held-out points: the first half of `train_trees`."""
    started = time.perf_counter()
    need_omikuji()
    rest, held = split_holdout(splits.train, recipe)
    assert held is not None
    trial = _train(splits, rest, recipe, None, started)
    assert isinstance(trial.model, Trees)
    answers = _answers(trial.model, splits, rest, held)
    model = replace(trial.model, calibration=answers.calibration)
    return replace(trial, model=model, held=answers, seconds=time.perf_counter() - started)


def trees_of_all_points(trial: Trained, splits: Splits, recipe: Recipe) -> Trained:
    """Train on all points with the trial's answers and calibration: the second half of `train_trees`."""
    return _train(splits, splits.train, recipe, trial.held, time.perf_counter() - trial.seconds)


def held_answers(splits: Splits, rest: Dataset, held: Dataset, recipe: Recipe) -> HeldAnswers:
    """Train trees on the rest; return their answers to the held-out points."""
    augmented = with_label_points(rest, recipe.targets, recipe.seed)
    return _answers(_fit_trees(augmented.points, splits, recipe), splits, rest, held)


def _train(
    splits: Splits, points: Dataset, recipe: Recipe, answers: HeldAnswers | None, started: float
) -> Trained:
    augmented = with_label_points(points, recipe.targets, recipe.seed)
    calibration = None if answers is None else answers.calibration
    model = replace(_fit_trees(augmented.points, splits, recipe), calibration=calibration)
    label_points = int(augmented.is_label.sum())
    return Trained(
        model,
        history=[],
        seconds=time.perf_counter() - started,
        steps=recipe.trees.number,
        details=augmented.details,
        points=len(augmented.points) - label_points,
        label_points=label_points,
        held=answers,
    )


def _answers(trees: Trees, splits: Splits, rest: Dataset, held: Dataset) -> HeldAnswers:
    texts, _ = held.need_texts("validation")
    ids, scores = trees.best(texts, min(PROPOSED, trees.num_labels), held.exclude)
    return calibrated_answers(Splits(train=rest, test=held, name=splits.name), ids, scores)


def _fit_trees(points: Dataset, splits: Splits, recipe: Recipe) -> Trees:
    """Train trees on points whose targets may be soft."""
    texts, label_texts = points.need_texts("training")
    terms = recipe.trees.terms
    if terms == "auto":
        few = len(texts) <= FEW_TEXTS and len(label_texts) <= FEW_LABELS
        terms = "characters" if few else "pairs"
    words, _ = TfIdf.fit([*texts, *splits.train.all_label_texts], recipe.trees.words, TERM_KINDS[terms])
    featured = Dataset(points.targets, features=word_features(words, texts))
    forest = _fit_forest(harden_points(featured, recipe.trees.harden, seed=recipe.seed), recipe)
    config = to_dict(recipe) | {"recipe": to_dict(recipe), "data": splits.about}
    wide = WideModel(words, forest, len(label_texts))
    return Trees(wide, label_texts, splits.train.label_ids, config)


def _fit_forest(points: Dataset, recipe: Recipe) -> Any:  # noqa: ANN401  it has no types
    """Train omikuji's trees on points with hard targets; the library reads them from a file."""
    omikuji = need_omikuji()
    settings = omikuji.Model.default_hyper_param()
    settings.n_trees = recipe.trees.number
    settings.linear_c = recipe.trees.cost
    if _one_vs_all(points, recipe.trees.kind):
        # A root with room for every label is a leaf: one classifier a label, and no branches.
        settings.n_trees, settings.min_branch_size = 1, points.num_labels + 1
    with TemporaryDirectory() as name:
        write_libsvm(Splits(train=points), Path(name))
        with silenced():
            return omikuji.Model.train_on_data(f"{name}/train.txt", settings, n_threads=os.cpu_count() or 1)


def _one_vs_all(points: Dataset, kind: TreesKind) -> bool:
    if kind != "auto":
        return kind == "one-vs-all"
    assert points.features is not None
    return points.features.nnz * points.num_labels <= ONE_VS_ALL


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
