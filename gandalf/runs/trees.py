"""A run that trains label trees: the same cut and label points, then omikuji in place of the loop."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gandalf.data.bag_of_words import BagOfWords
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import write_libsvm
from gandalf.data.harden import harden_points
from gandalf.model.calibration import Calibration
from gandalf.model.trees import Trees, need_omikuji, silenced, word_features
from gandalf.predict.calibration import fit_calibration
from gandalf.recipe import Recipe
from gandalf.runs.material import augmented, run_cut
from gandalf.runs.trained import Trained
from gandalf.runs.validation import PLACES
from gandalf.settings import to_dict


def train_trees(splits: Splits, recipe: Recipe) -> Trained:
    """Train by the recipe, whose targets are chosen by now; the test split is not looked at.

    Scores are calibrated by trees that have not seen the held points. Then all points are learnt from anew:
    it takes seconds, and every twentieth point is worth more in a tree than its time.
    """
    started = time.perf_counter()
    need_omikuji()
    parts = run_cut(splits.train, recipe)
    calibration = None if parts.held is None else _calibration(splits, parts.rest, parts.held, recipe)
    made = augmented(splits.train, recipe.targets, recipe.seed)
    model = replace(_trees(made.points, splits, recipe), calibration=calibration)
    details = {} if made.graph is None else {"targets_used": made.graph.estimate, **made.graph.details}
    labels = int(made.is_label.sum())
    seconds = time.perf_counter() - started
    return Trained(model, [], seconds, recipe.trees.number, details, len(made.points) - labels, labels)


def _calibration(splits: Splits, rest: Dataset, held: Dataset, recipe: Recipe) -> Calibration | None:
    """What scores mean on held points, by trees of the rest."""
    made = augmented(rest, recipe.targets, recipe.seed)
    texts, _ = held.need_texts("validation")
    trees = _trees(made.points, splits, recipe)
    ids, scores = trees.best(texts, min(PLACES, trees.num_labels), held.exclude)
    return fit_calibration(ids, scores, held.targets, held.exclude)


def _trees(points: Dataset, splits: Splits, recipe: Recipe) -> Trees:
    """Trees of points whose targets may be soft."""
    texts, label_texts = points.need_texts("training")
    words, _ = BagOfWords.fit([*texts, *label_texts], recipe.trees.words)
    featured = Dataset(points.targets, features=word_features(words, texts))
    forest = _forest(harden_points(featured, recipe.trees.harden, seed=recipe.seed), recipe)
    about = {"name": splits.name, "points": len(splits.train), "labels": splits.train.num_labels}
    config = to_dict(recipe) | {"recipe": to_dict(recipe), "data": about}
    return Trees(words, forest, label_texts, splits.train.label_ids, config)


def _forest(points: Dataset, recipe: Recipe) -> Any:  # noqa: ANN401  it has no types
    """Trees from points, which the library reads from a file."""
    omikuji = need_omikuji()
    settings = omikuji.Model.default_hyper_param()
    settings.n_trees = recipe.trees.number
    with TemporaryDirectory() as name:
        write_libsvm(Splits(train=points), Path(name))
        with silenced():
            return omikuji.Model.train_on_data(f"{name}/train.txt", settings, n_threads=os.cpu_count() or 1)
