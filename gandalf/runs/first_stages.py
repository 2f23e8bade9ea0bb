"""Encoders that siamese stages left, kept for runs that differ only in what comes after them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from filelock import FileLock

from gandalf.runs.prepare import Material
from gandalf.runs.stages import pair_dropout
from gandalf.settings import to_dict
from gandalf.train.checkpoint import Checkpoints, fingerprint


@contextmanager
def kept(folder: Path, material: Material) -> Iterator[Checkpoints]:
    """Where the encoder of this run's first stage lies, or is to lie; who else wants it waits meanwhile."""
    key = _key(material)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield Checkpoints(folder / key)


def _key(material: Material) -> str:
    """What the stage depends on: settings of its own, the points that take part in it, label texts."""
    recipe, points, texts = material.recipe, material.points, material.texts
    assert texts is not None
    own = np.flatnonzero(~material.made.is_label | recipe.siamese.label_points)
    targets = points.targets[own]
    encoder = replace(recipe.encoder, rate=0.0, words_rate=0.0, frozen=False, dropout=pair_dropout(recipe))
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
    arrays = (targets.data, targets.indices, targets.indptr, points.tokens[own], texts.tokens)
    return fingerprint(settings, *(np.ascontiguousarray(each).data for each in arrays))[:24]
