"""Candidates of a search: what came of each, and trained ones on disk for a search that resumes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.data.files import written
from gandalf.metrics.evaluate import Scores
from gandalf.model import Part, load_model, save_model
from gandalf.recipe import Recipe
from gandalf.runs.mix import Fitted
from gandalf.runs.prepare import cut
from gandalf.runs.remember import Trial
from gandalf.runs.trees import FIGURES, Yardstick
from gandalf.runs.validation import Trained, answers_of
from gandalf.settings import to_dict

Say = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """A model to try."""

    name: str
    recipe: Recipe
    rival: str | None = None  # of two rivals only the better may be part of a mix


@dataclass
class Tried:
    """What came of a candidate: figures on the held-out points, or why there are none."""

    name: str
    scores: Scores | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers."""
        figures = {} if self.scores is None else {name: self.scores[name] for name in FIGURES}
        return {
            "name": self.name,
            **figures,
            "seconds": round(self.seconds, 3),
            "weight": self.weight,
            "note": self.note,
        }


@dataclass
class SearchResult:
    """What a search gives: the model, how it was chosen, and what it is measured against."""

    trained: Trained
    tried: list[Tried]
    yardsticks: list[Yardstick]
    scores: Scores | None  # of the chosen model on the held-out points
    why: str
    minutes: float
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """Return everything that was looked at, for `metrics.json`."""
        chosen = {} if self.scores is None else {name: self.scores[name] for name in FIGURES}
        return {
            "chosen": chosen,
            "why": self.why,
            "minutes": self.minutes,
            "held_out_points": 0 if self.scores is None else self.scores.filtered.points,
            "tried": [each.as_dict() for each in self.tried],
            "baselines": [each.as_dict() for each in self.yardsticks],
            "notes": list(self.notes),
        }


@dataclass
class Teller:
    """Who is told of a search while it goes on."""

    say: Say = lambda line: None
    first: Callable[[Part], None] = lambda part: None  # is given the first usable model


def why_chosen(best: Fitted, tried: list[Tried]) -> str:
    """Return the reason in a sentence."""
    single = {row.name: row.scores for row in tried if row.scores is not None}
    alone = max(single, key=lambda name: single[name]["P@1"] + single[name]["PSP@5"])
    figures = {name: best.scores[name] - single[alone][name] for name in FIGURES[:2]}
    if len(single) == 1:
        return f"{alone} alone: no other part was trained"
    if len(best.names) == 1:
        return f"{best.names[0]} alone: no mix is better on held-out points by more than a fifth of a point"
    mix = ", ".join(f"{name} {weight:.0%}" for name, weight in zip(best.names, best.weights, strict=True))
    gains = ", ".join(f"{name} {gain:+.1f}" for name, gain in figures.items())
    return f"a mix of {mix}: {gains} against {alone} alone, on held-out points"


def why_of_few(names: Sequence[str], weights: Sequence[float], held: int, points: int | None) -> str:
    """Return how a mix was made where `held` points are too few to choose by; trials had `points` in all."""
    shares = ", ".join(f"{name} {weight:.0%}" for name, weight in zip(names, weights, strict=True))
    found = f"{names[0]} alone" if len(names) == 1 else f"a mix of {shares}"
    if points is None:
        return f"{found}, learnt from all points; the {held} that can be held out are too few to choose by"
    return f"{found}, learnt from all points; chosen by repeated trials with {points} held-out points in all"


def why_memory(chosen: Trial, before: Scores) -> str:
    """Return what a memory adds in a phrase."""
    after = chosen.fitted.scores
    gains = ", ".join(f"{name} {after[name] - before[name]:+.1f}" for name in FIGURES[:2])
    return f"a memory of {chosen.weight:.0%}: {gains} against the same without it"


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
