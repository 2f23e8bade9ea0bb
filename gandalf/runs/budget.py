"""Fit a network into a budget of time: how fast the machine is, how long an epoch takes, what is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from gandalf.data.dataset import Dataset
from gandalf.nets.encoders import encoder_kind
from gandalf.recipe import Recipe
from gandalf.runs.plan import resolved

# Default minutes by the number of points, interpolated on logarithmic scales. A label counts as a quarter
# of a point: its text is read, but the updates of points train its row.
MINUTES = {3_000: 0.6, 12_000: 3.0, 130_000: 12.0, 600_000: 30.0}
MACHINE, PATIENCE = 150e9, 4.0  # speed of the machine for these minutes; at most so many times more on others
PROBE = (256, 512, 8_192)  # points, numbers and labels of the product that measures the speed
# Measured on two cores: operations that Adam needs to move a number of a row, and the share of the measured
# speed that the three products of an update reach.
MOVED, USED = 600, 0.6
STEP_SECONDS, START_SECONDS = 2e-3, 4.0  # to gather words; for vocabulary, graph and loading of libraries
# MiniLM: operations for a token, and the fewest seconds for a text, which its tokens and the way to a GPU
# take. Measured on two cores over titles of 7 to 17 tokens, and on a GPU.
TOKEN_OPERATIONS, TEXT_SECONDS = 27e6, 1 / 20_000
CHARACTERS_PER_TOKEN, MARKS = 4, 2  # in English titles; a mark at the beginning and one at the end
TRANSFORMER_DIM = 384
# Cost of an update with frozen rows of label texts, in updates with free rows: measured 1.0 to 1.4 on sets of
# 5,000 to 18,000 labels.
FROZEN_ROWS = 1.25
SHORTLIST = 5_000  # labels in a shortlist, about
PASSES = 3  # to learn from a text: one forwards, and backwards for twice the cost
FEWEST_EPOCHS = 2.0  # with fewer a network learns too little


@dataclass(frozen=True)
class Size:
    """Size of a training set."""

    points: int
    labels: int
    characters: float = 30.0  # of a text, on average
    other_texts: int = 0  # of labels, beside their names

    @classmethod
    def of(cls, points: Dataset) -> Size:
        """Return the size of a training set."""
        texts = [*(points.texts or ()), *points.all_label_texts]
        others = points.num_label_texts - points.num_labels
        return cls(len(points), points.num_labels, sum(map(len, texts)) / max(len(texts), 1), others)

    @property
    def both(self) -> int:
        """Number of points of an epoch."""
        return self.points + self.labels + self.other_texts

    @property
    def minutes(self) -> float:
        """Minutes of a search by default, on a fast machine."""
        sizes, minutes = np.log(list(MINUTES)), np.log(list(MINUTES.values()))
        return float(np.exp(np.interp(np.log(self.points + self.labels / 4), sizes, minutes)))


class Clock:
    """Measure the time that is left of a budget."""

    def __init__(self, minutes: float, spent: float = 0.0) -> None:
        self.seconds, self._started = 60 * minutes, time.perf_counter() - spent

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left, never below 0."""
        return max(self.seconds - self.spent, 0.0)


def speed(device: str) -> float:
    """Measure the operations a second of a matrix product such as an update has, as the median of several."""
    points, dim, labels = PROBE
    low = torch.bfloat16 if device == "cuda" else torch.float32
    x, rows = (torch.ones(size, dim, device=device, dtype=low) for size in (points, labels))
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        float((x @ rows.T)[0, 0])  # wait for the GPU
        taken.append(time.perf_counter() - started)
    # Not the shortest time: a network never reaches that speed on cores that other work shares.
    return 2 * points * dim * labels / float(np.median(taken))


def patience(operations: float) -> float:
    """Return how many times longer than by `MINUTES` a search may take on a machine of this speed."""
    return min(max(MACHINE / operations, 1.0), PATIENCE)


def search_minutes(asked: float | None, size: Size, operations: float) -> float:
    """Return the minutes of a search: as asked for, or by the size of the data and the speed."""
    return asked or size.minutes * patience(operations)


def epoch_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return the seconds of an epoch at this speed; device and batch of the recipe must be resolved."""
    encoder = recipe.encoder
    labels = min(SHORTLIST, size.labels) if recipe.labels.kind == "shortlist" else size.labels
    numbers = labels * (TRANSFORMER_DIM if encoder_kind(encoder.kind).pretrained else encoder.dim)
    step = (6 * recipe.training.batch * numbers / USED + MOVED * numbers) / operations
    if recipe.head.rows == "frozen":
        step *= FROZEN_ROWS
    reading = 0.0
    if encoder_kind(encoder.kind).pretrained and not encoder.frozen:
        reading = PASSES * reading_seconds(recipe, size, operations)
    return size.both / recipe.training.batch * (step + STEP_SECONDS) + reading


def reading_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return the seconds in which a transformer reads every text once at this speed."""
    return size.both * max(text_tokens(recipe, size) * TOKEN_OPERATIONS / operations, TEXT_SECONDS)


def text_tokens(recipe: Recipe, size: Size) -> float:
    """Return how many tokens a transformer reads of a text, on average."""
    tokens = MARKS + size.characters / CHARACTERS_PER_TOKEN
    return min(tokens, recipe.text.max_length or tokens)


def start_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return the seconds before the first update, in which a frozen transformer reads all texts once."""
    reading = (
        reading_seconds(recipe, size, operations) if encoder_kind(recipe.encoder.kind).pretrained else 0.0
    )
    return START_SECONDS + 3e-5 * size.both + reading


def fit_epochs(recipe: Recipe, size: Size, seconds: float, operations: float) -> Recipe | None:
    """Return the recipe with as many epochs as the seconds allow, or None if those are too few."""
    here = resolved(recipe, size.points, size.labels)
    each = epoch_seconds(here, size, operations) * (1 + recipe.training.last_stretch)
    epochs = (seconds - start_seconds(here, size, operations)) / max(each, 1e-9)
    if epochs < FEWEST_EPOCHS:
        return None
    chosen = round(min(recipe.training.epochs, epochs), 2)
    # Keep the batch of the full length: a smaller batch would make the shorter run as long again.
    return replace(recipe, training=replace(recipe.training, epochs=chosen, batch=here.training.batch))
