"""Recognise a run by its checkpoint, and a first stage that several runs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from gandalf.recipe import Baselines, Recipe
from gandalf.runs.prepare import Material
from gandalf.settings import to_dict
from gandalf.train.checkpoint import Checkpoints, fingerprint
from gandalf.train.rates import at_batch


def run_identity(material: Material, asked_block: int | None) -> dict[str, Any]:
    """Return the settings of a run, and a fingerprint of these settings and the data it trains on."""
    config, points, held = comparable_settings(material.recipe), material.points, material.held
    config["labels"]["block"] = asked_block  # a resumed run may choose another by its memory
    matrices = [points.targets] if held is None else [points.targets, held.targets]
    tables = [points.tokens] if held is None else [points.tokens, held.tokens]
    arrays = [each for matrix in matrices for each in (matrix.data, matrix.indices, matrix.indptr)]
    data = (np.ascontiguousarray(array).data for array in (*arrays, *tables))
    return {"fingerprint": fingerprint(config, *data), "config": config}


def comparable_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings without those that older checkpoints lack and that change nothing here."""
    found = to_dict(recipe)
    if recipe.baselines == Baselines():
        del found["baselines"]
    if not recipe.training.last_stretch:
        del found["training"]["last_stretch"]
    if not recipe.targets.own_weight:
        del found["targets"]["own_weight"]
    if recipe.siamese.kind == "none":
        del found["siamese"]["cluster_share"]
    if recipe.siamese.kind != "decoupled":
        del found["siamese"]["softmax_temperature"], found["siamese"]["label_points"]
    if not recipe.siamese.guidance:
        del found["siamese"]["guidance"]
    if _attention_is_the_former(recipe):
        del found["encoder"]["attention"]
    del found["memory"], found["search"], found["trees"]["terms"], found["trees"]["cost"]
    # Formerly no rate grew with the batch, so a run with such rates is another run.
    parts = {"encoder": recipe.encoder.optimiser, "head": recipe.head.optimiser}
    factors = {part: at_batch(1.0, optimiser, recipe.training.batch) for part, optimiser in parts.items()}
    return {**found, "rates": factors} if set(factors.values()) != {1.0} else found


def _attention_is_the_former(recipe: Recipe) -> bool:
    """Return True if the encoder is as it was before the setting `encoder.attention`."""
    encoder = recipe.encoder
    return encoder.kind != "inception" or encoder.attention == "self" or encoder.from_model is not None


@contextmanager
def shared_first_stage(folder: Path, material: Material) -> Iterator[Checkpoints]:
    """Open the place of this run's first stage in a folder for several runs; other runs wait meanwhile."""
    key = _first_stage_key(material)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield Checkpoints(folder / key)


def _first_stage_key(material: Material) -> str:
    """Return a hash of everything that a siamese stage depends on: settings, points and label texts."""
    recipe, points, texts = material.recipe, material.points, material.texts
    assert texts is not None
    rows = np.flatnonzero(~material.augmented.is_label | recipe.siamese.label_points)
    targets = points.targets[rows]
    encoder = replace(recipe.encoder, rate=0.0, words_rate=0.0, frozen=False, dropout=recipe.pair_dropout)
    settings = {
        "seed": recipe.seed,
        "device": recipe.device,
        "text": to_dict(recipe.text),
        "encoder": to_dict(encoder),
        "siamese": to_dict(replace(recipe.siamese, pair_dropout=None)),
        "precision": recipe.training.precision,
        "clip": recipe.training.clip,
        "validation": to_dict(recipe.validation),
    }
    arrays = (targets.data, targets.indices, targets.indptr, points.tokens[rows], texts.tokens)
    return fingerprint(settings, *(np.ascontiguousarray(each).data for each in arrays))[:24]
