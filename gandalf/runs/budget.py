"""How long a search may take, and how long a network needs on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from gandalf.data.dataset import Dataset
from gandalf.nets.encoders import encoder_kind
from gandalf.recipe import Recipe
from gandalf.runs.plan import resolved

# Minutes by default for so many points, straight between them on a logarithmic scale. A label counts as a
# quarter of a point: its text is read, but it is met by other points' updates.
MINUTES = {3_000: 0.6, 12_000: 3.0, 130_000: 12.0, 600_000: 30.0}
MACHINE, PATIENCE = 150e9, 4.0  # speed of the machine they are for; how much longer a slower one may take
PROBE = (256, 512, 8_192)  # points, numbers, labels of the product that tells how fast the machine is
# What an update costs beside its three products, in operations of that speed: a number of a row that Adam
# moves, and the share of the products' speed that is reached. Measured on two cores.
MOVED, USED = 600, 0.6
STEP_SECONDS, START_SECONDS = 2e-3, 4.0  # gathering words; vocabulary, graph, loading of libraries
# MiniLM: operations of that speed for a token, and the fewest seconds for a text, which its tokens and the
# way to a GPU take. Measured on two cores over titles of 7 to 17 tokens, and on a GPU.
TOKEN_OPERATIONS, TEXT_SECONDS = 27e6, 1 / 20_000
CHARACTERS_PER_TOKEN, MARKS = 4, 2  # of English titles; a text begins and ends with a mark
TRANSFORMER_DIM = 384
# Times what an update with free rows takes where rows hold label texts that are read once an epoch: 1.0 to
# 1.4 of what was planned, on sets of 5,000 to 18,000 labels.
FROZEN_ROWS = 1.25
SHORTLIST = 5_000  # labels that a batch meets by shortlist, about
FEWEST_EPOCHS = 2.0  # with fewer a network has hardly begun


@dataclass(frozen=True)
class Size:
    """How much there is to learn from."""

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
        """What a search may take if nobody says otherwise, on a machine that is fast enough."""
        sizes, minutes = np.log(list(MINUTES)), np.log(list(MINUTES.values()))
        return float(np.exp(np.interp(np.log(self.points + self.labels / 4), sizes, minutes)))


class Clock:
    """The time that is left of a budget."""

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
    """Return the operations a second of a matrix product, as an update makes it, the median of several."""
    points, dim, labels = PROBE
    low = torch.bfloat16 if device == "cuda" else torch.float32
    x, rows = (torch.ones(size, dim, device=device, dtype=low) for size in (points, labels))
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        float((x @ rows.T)[0, 0])  # a GPU is done when a number has come back
        taken.append(time.perf_counter() - started)
    # Not the shortest: on cores that other work shares, a network is never given that speed.
    return 2 * points * dim * labels / float(np.median(taken))


def patience(operations: float) -> float:
    """Return how many times longer than by `MINUTES` a search takes on a machine of this speed."""
    return min(max(MACHINE / operations, 1.0), PATIENCE)


def search_minutes(asked: float | None, size: Size, operations: float) -> float:
    """Return what a search may take: what was asked for, or what the data needs at this speed."""
    return asked or size.minutes * patience(operations)


def epoch_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return what an epoch of the recipe, whose device and batch are resolved, takes at this speed."""
    encoder = recipe.encoder
    labels = min(SHORTLIST, size.labels) if recipe.labels.kind == "shortlist" else size.labels
    numbers = labels * (TRANSFORMER_DIM if encoder_kind(encoder.kind).pretrained else encoder.dim)
    step = (6 * recipe.training.batch * numbers / USED + MOVED * numbers) / operations
    if recipe.head.rows == "frozen":
        step *= FROZEN_ROWS
    reading = 0.0
    if encoder_kind(encoder.kind).pretrained and not encoder.frozen:
        reading = 3 * reading_seconds(recipe, size, operations)  # forwards, and backwards for twice that
    return size.both / recipe.training.batch * (step + STEP_SECONDS) + reading


def reading_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return what the transformer takes to read every text once, at this speed."""
    tokens = MARKS + size.characters / CHARACTERS_PER_TOKEN
    if recipe.text.max_length:  # 0: as the texts need it
        tokens = min(tokens, recipe.text.max_length)
    return size.both * max(tokens * TOKEN_OPERATIONS / operations, TEXT_SECONDS)


def start_seconds(recipe: Recipe, size: Size, operations: float) -> float:
    """Return what comes before the first update: a frozen transformer reads all texts once."""
    reading = (
        reading_seconds(recipe, size, operations) if encoder_kind(recipe.encoder.kind).pretrained else 0.0
    )
    return START_SECONDS + 3e-5 * size.both + reading


def fitted(recipe: Recipe, size: Size, seconds: float, operations: float) -> Recipe | None:
    """Return the recipe with as many epochs as the seconds allow, or None if those are too few."""
    here = resolved(recipe, size.points, size.labels)
    each = epoch_seconds(here, size, operations) * (1 + recipe.training.last_stretch)
    epochs = (seconds - start_seconds(here, size, operations)) / max(each, 1e-9)
    if epochs < FEWEST_EPOCHS:
        return None
    chosen = round(min(recipe.training.epochs, epochs), 2)
    # The batch is that of the full length: a smaller one would make a shorter run as long again.
    return replace(recipe, training=replace(recipe.training, epochs=chosen, batch=here.training.batch))
