"""Name the candidates of a search, fit each into the time that is left, keep trained ones, and report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.data.files import written
from gandalf.data.matching import text_groups
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.model import load_model, save_model
from gandalf.nets.encoders import encoder_kind
from gandalf.recipe import MemorySettings, Recipe
from gandalf.runs.cost import Size, fit_epochs
from gandalf.runs.mix import FittedMix
from gandalf.runs.prepare import split_holdout
from gandalf.runs.remember import MemoryTrial
from gandalf.runs.trees import Baseline
from gandalf.runs.validation import DECIDING, Trained, calibrated_answers, key_figures, objective
from gandalf.settings import to_dict
from gandalf.systems import frozen, linear
from gandalf.systems import recipe as recipe_of

FIRST = "linear"  # the candidate that is trained first and written at once
READER = "frozen"  # its vectors are the keys of a memory: it never learns, so held-out points are new to it
MEMORY = "memory"
MATCHED = 0.1  # share of label texts that are training texts, from which calibrated targets are worth a trial
MANY_LABELS = 20_000  # on a CPU, too many for rows that read label texts
# Shares of the time that is left for a network that others follow: the first share it can be trained in.
TIME_SHARES = (0.7, 0.85, 1.0)
BEGINNINGS = (64, 32)  # tokens that a transformer reads of a text if there is no time for more


@dataclass(frozen=True)
class Candidate:
    """A model to try."""

    name: str
    recipe: Recipe
    rival: str | None = None  # of two rivals only the better may be part of a mix

    @property
    def is_network(self) -> bool:
        """Return True for a network, False for linear classifiers."""
        return is_network(self.recipe)


def is_network(recipe: Recipe) -> bool:
    """Return True if the recipe trains a network."""
    return recipe.trees.kind == "none"


def find_candidates(splits: Splits, device: str, wanted: Sequence[str]) -> list[Candidate]:
    """Return the wanted models to try, the quickest first; by default all that suit data and machine."""
    found = [Candidate(FIRST, linear())]
    if _matched_share(splits) >= MATCHED:
        graph = replace(linear(), targets=replace(linear().targets, targets="calibrated"))
        found.append(Candidate("linear+graph", graph, rival=FIRST))
    found.append(Candidate(READER, replace(frozen(), memory=MemorySettings(kind="fitted"))))
    found.append(Candidate("words", words_recipe(device, splits.train.num_labels)))
    if device == "cuda":
        found.append(Candidate("renee", recipe_of("renee")))
    known = [*(each.name for each in found), MEMORY]
    if unknown := [name for name in wanted if name not in known]:
        names = ", ".join(known)
        raise DataError(f"there is no part {unknown[0]!r} to try", remedy=f"choose from {names}")
    return [each for each in found if not wanted or each.name in wanted]


def _matched_share(splits: Splits) -> float:
    """Return the share of label texts that are also training texts: there the graph can be checked."""
    texts, label_texts = splits.train.need_texts("training")
    of_points, of_labels = text_groups(texts, label_texts)
    return float(np.isin(of_labels, of_points).mean()) if len(of_labels) else 0.0


def words_recipe(device: str, num_labels: int) -> Recipe:
    """Return a network of words; its rows read label texts as far as the machine can bear it."""
    many = device == "cpu" and num_labels > MANY_LABELS
    recipe = recipe_of("astec" if many else "decaf")
    recipe = replace(recipe, text=replace(recipe.text, vectors="distilled"))
    if device == "cpu" and not many:
        recipe = replace(recipe, head=replace(recipe.head, rows="frozen"))
    return recipe


def fit_to_time(recipe: Recipe, size: Size, seconds: float, speed: float, *, last: bool) -> Recipe | None:
    """Return the recipe with as many epochs as the time allows, or None if those are too few.

    A network leaves time for the networks after it, unless it needs all the time; the last one may take all.
    A transformer reads only the beginnings of long texts if there is no time for more.
    """
    pretrained = encoder_kind(recipe.encoder.kind).pretrained
    shorter = BEGINNINGS if pretrained and not recipe.text.max_length else ()
    recipes = [recipe, *(replace(recipe, text=replace(recipe.text, max_length=each)) for each in shorter)]
    found = (
        fit_epochs(each, size, share * seconds, speed)
        for share in TIME_SHARES[-1 if last else 0 :]
        for each in recipes
    )
    return next((each for each in found if each is not None), None)


HELD, FACTS, MODEL = "held.npz", "trained.json", "model"
KEPT = ("seconds", "steps", "details", "points", "label_points")  # of `Trained`, in FACTS


def store_trained(folder: Path, recipe: Recipe, trained: Trained) -> None:
    """Keep a trained candidate, so that a killed search need not train it again."""
    assert trained.held is not None
    save_model(trained.model, folder / MODEL, overwrite=True)
    with written(folder / HELD, "wb") as file:
        np.savez(file, ids=trained.held.ids, scores=trained.held.scores)
    facts = {name: getattr(trained, name) for name in KEPT}
    with written(folder / FACTS) as file:
        json.dump({"recipe": to_dict(recipe), **facts}, file)


def load_trained(folder: Path, recipe: Recipe, splits: Splits) -> Trained | None:
    """Load what `store_trained` kept; return None if there is nothing, or another recipe.

    Epochs and the length of texts may differ, since the budget chose them.
    """
    if not (folder / FACTS).is_file():
        return None
    facts = json.loads((folder / FACTS).read_text("utf-8"))
    asked = json.loads(json.dumps(to_dict(recipe)))
    for table, name in (("training", "epochs"), ("text", "max_length")):
        asked[table][name] = facts["recipe"][table][name]
    if facts["recipe"] != asked:
        return None
    rest, held = split_holdout(splits.train, recipe)
    assert held is not None
    with np.load(folder / HELD) as arrays:
        ids, scores = arrays["ids"], arrays["scores"]
    answers = calibrated_answers(Splits(train=rest, test=held, name=splits.name), ids, scores)
    kept = {name: facts[name] for name in KEPT}
    return Trained(load_model(folder / MODEL), history=[], held=answers, **kept)


@dataclass
class TriedCandidate:
    """A candidate with its figures on the held-out points, or a note why there are none."""

    name: str
    scores: Scores | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for `metrics.json`."""
        return {
            "name": self.name,
            **({} if self.scores is None else key_figures(self.scores)),
            "seconds": round(self.seconds, 3),
            "weight": self.weight,
            "note": self.note,
        }


@dataclass
class SearchResult:
    """The chosen model, why it was chosen, and the candidates and baselines that it was compared with."""

    trained: Trained
    tried: list[TriedCandidate]
    baselines: Sequence[Baseline]
    scores: Scores | None  # of the chosen model on the held-out points
    why: str
    minutes: float
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """The whole comparison, for `metrics.json`."""
        return {
            "chosen": {} if self.scores is None else key_figures(self.scores),
            "why": self.why,
            "minutes": self.minutes,
            "held_out_points": 0 if self.scores is None else self.scores.filtered.points,
            "tried": [each.as_dict() for each in self.tried],
            "baselines": [each.as_dict() for each in self.baselines],
            "notes": list(self.notes),
        }


def why_chosen(mix: FittedMix, tried: Sequence[TriedCandidate]) -> str:
    """Return in a sentence why a mix, or one part alone, was chosen."""
    single = {row.name: row.scores for row in tried if row.scores is not None}
    best = max(single, key=lambda name: objective(single[name]))
    if len(single) == 1:
        return f"{best} alone: no other part was trained"
    if len(mix.names) == 1:
        return f"{mix.names[0]} alone: no mix is better on held-out points by more than a fifth of a point"
    gains = _gains_in_words(mix.scores, single[best])
    return f"{_mix_in_words(mix.shares)}: {gains} against {best} alone, on held-out points"


def why_of_few(shares: Mapping[str, float], held: int, points: int | None) -> str:
    """Return how a mix was made if `held` points are too few to choose by.

    `points` is the number of held-out points of all repeated trials; None if these are too few, too.
    """
    found = f"{_mix_in_words(shares)}, learnt from all points"
    if points is None:
        return f"{found}; the {held} that can be held out are too few to choose by"
    return f"{found}; chosen by repeated trials with {points} held-out points in all"


def why_memory(chosen: MemoryTrial, before: Scores) -> str:
    """Return in a phrase what a memory changes."""
    gains = _gains_in_words(chosen.fitted.scores, before)
    return f"a memory of {chosen.weight:.0%}: {gains} against the same without it"


def _mix_in_words(shares: Mapping[str, float]) -> str:
    words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{next(iter(shares))} alone" if len(shares) == 1 else f"a mix of {words}"


def _gains_in_words(after: Scores, before: Scores) -> str:
    return ", ".join(f"{name} {after[name] - before[name]:+.1f}" for name in DECIDING)
