"""A trained candidate of a search on disk, so that a search that is killed need not train it again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.data.files import written
from gandalf.model import load_model, save_model
from gandalf.recipe import Recipe
from gandalf.runs.prepare import cut
from gandalf.runs.trained import Trained, answers_of
from gandalf.settings import to_dict

HELD, FACTS, MODEL = "held.npz", "trained.json", "model"


def store_trained(folder: Path, recipe: Recipe, trained: Trained) -> None:
    """Keep a trained candidate, so that a search that is killed need not train it again."""
    assert trained.held is not None
    save_model(trained.model, folder / MODEL, overwrite=True)
    with written(folder / HELD, "wb") as file:
        np.savez(file, ids=trained.held.ids, scores=trained.held.scores)
    facts = {
        "recipe": to_dict(recipe),
        "seconds": trained.seconds,
        "steps": trained.steps,
        "details": trained.details,
        "points": trained.points,
        "label_points": trained.label_points,
    }
    with written(folder / FACTS) as file:
        json.dump(facts, file)


def stored_trained(folder: Path, recipe: Recipe, splits: Splits) -> Trained | None:
    """Return what `store_trained` kept of the same recipe.

    Epochs and the length of texts may differ, since the budget chose them.
    """
    if not (folder / FACTS).is_file():
        return None
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    asked = json.loads(json.dumps(to_dict(recipe)))
    for room, name in (("training", "epochs"), ("text", "max_length")):
        asked[room][name] = facts["recipe"][room][name]
    if facts["recipe"] != asked:
        return None
    parts = cut(splits.train, recipe)
    assert parts.held is not None
    with np.load(folder / HELD) as arrays:
        ids, scores = arrays["ids"], arrays["scores"]
    answers = answers_of(Splits(train=parts.rest, test=parts.held, name=splits.name), ids, scores)
    return Trained(
        load_model(folder / MODEL),
        [],
        facts["seconds"],
        facts["steps"],
        facts["details"],
        facts["points"],
        facts["label_points"],
        held=answers,
    )
