"""Sets on which a choice of targets can be told, and candidates whose quality is decreed."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.recipe import Recipe
from gandalf.runs import choose as auto
from gandalf.settings import override
from gandalf.systems import recipe

WORDS = 12  # of a label; a text of its points holds two of them


def asked(*settings: str, system: str = "astec") -> Recipe:
    """A recipe that is small and short: these sets are learnt in a few steps."""
    small = ["encoder.dim=64", "training.steps=400", "training.batch=128", "text.min_count=1"]
    return override(recipe(system), ["targets.targets=auto", "device=cpu", *small, *settings])


def made_up(points: int = 900, labels: int = 180, moved: int = 0) -> Splits:
    """Points that say two words of their label; a label's text has all of them.

    `moved`: it has those of another label instead, so that every label point teaches what is wrong.
    """
    rng = np.random.default_rng(0)
    of = rng.integers(labels, size=points)
    said = [rng.choice(WORDS, size=2, replace=False) for _ in of]
    texts = [f"{_word(label, one)} {_word(label, two)}" for label, (one, two) in zip(of, said, strict=True)]
    named = np.roll(np.arange(labels), moved)
    label_texts = [" ".join(_word(label, word) for word in range(WORDS)) for label in named]
    targets = csr_array((np.ones(points, np.float32), (np.arange(points), of)), shape=(points, labels))
    ids = [f"point {number}" for number in range(points)]
    return Splits(Dataset(targets, texts, label_texts, ids=ids), name="made-up")


def _word(label: int, word: int) -> str:
    """Letters alone: a word with digits would be taken apart."""
    number = label * WORDS + word
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(4))


def answered(trial, share, seed=5):
    """Scores of one who knows all labels of a share of the points, and nothing of the others."""
    right = np.random.default_rng(seed).random(len(trial.test)) < share
    known = csr_array(trial.test.targets.multiply(right[:, None]))
    known.eliminate_zeros()
    return gandalf.evaluate(known, trial)


@functools.cache
def topics() -> Splits:
    """Points of several labels each, so that labels that occur together make a graph."""
    splits = gandalf.synthetic(1500, 200, seed=2).splits
    ids = [f"point {number}" for number in range(len(splits.train))]
    return replace(splits, train=replace(splits.train, ids=ids))


def hasten(monkeypatch) -> None:
    """Hardly any training, where it does not matter what is chosen."""
    monkeypatch.setattr(auto, "SHORT", 3 / 400)


def faked(monkeypatch, quality):
    """Let candidates know a share of the points that `quality` gives; note which are tried."""
    tried = []

    def scores(trial, recipe, candidate, place):
        tried.append(candidate)
        return answered(trial, quality(candidate), seed=len(tried))

    monkeypatch.setattr(auto, "_score_candidate", scores)
    return tried


def best_of(qualities, otherwise=0.5):
    return lambda candidate: qualities.get(str(candidate), otherwise)
