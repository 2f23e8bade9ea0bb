"""Forecast the updates, memory and time of a run, and fit a network into a budget of time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.forecast import Forecast, StepCost
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.nets.encoders import encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.recipe import Recipe
from gandalf.runs.build import encoder_options
from gandalf.runs.plan import block_that_fits, on_device, resolved, resolved_device, run_shape
from gandalf.systems import frozen
from gandalf.systems import recipe as recipe_of
from gandalf.train.machine_memory import available_bytes
from gandalf.train.pairs.kind import pair_kind
from gandalf.train.run_memory import memory_plan

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


@dataclass(frozen=True)
class Machine:
    """Speed and memory of a machine, as far as a run depends on them."""

    name: str
    device: Literal["cpu", "cuda"]
    operations: float  # a second, in the products of an update
    moving: float  # operations to move a number of a row
    step: float  # seconds of an update besides products and rows
    text: float  # fewest seconds in which a transformer reads a text
    memory: int | None  # bytes


# One H200 by its log (docs/lab/gpu_log.md): plain steps of 131,073 to 1.3 million labels of 768 numbers, with
# 1,024 to 4,096 points, are met to a tenth; 6 ms of everything else; 80 us to learn from a title with MiniLM.
H200 = Machine("one H200", "cuda", 600e12, 9_300.0, 6e-3, 80e-6 / PASSES, 139 << 30)


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """Measure this machine by a short matrix product."""
    device = resolved_device("auto")
    fast = speed(device)
    return Machine(
        "here", device, fast * USED, MOVED * USED, STEP_SECONDS, TEXT_SECONDS, available_bytes(device)
    )


@dataclass(frozen=True)
class Cost:
    """Updates, peak memory in bytes, and seconds of a run."""

    steps: int
    memory: int
    seconds: float


def cost(recipe: Recipe, size: Size, words: int, machine: Machine) -> Cost:
    """Return the cost of a run on a machine, for a set of this size with so many different words."""
    precise = replace(recipe, training=replace(recipe.training, precision="bfloat16"))
    found = on_device(precise, machine.device, size.points, size.labels)
    shape = run_shape(found, _vocabulary(found, words), size.labels)
    shape = replace(
        shape, block=shape.block if shape.shortlist else block_that_fits(shape, machine.memory, None)
    )
    epoch = math.ceil(size.both / found.training.batch)  # updates, as a run counts them
    steps = recipe.training.steps or max(1, round(recipe.training.epochs * epoch))
    met = shape.block if shape.shortlist else size.labels
    products = met * shape.dim * (6 * shape.batch + machine.moving) / machine.operations
    step = head_kind(recipe.head.kind).slower * (products + machine.step)
    learnt = steps * shape.batch * _read_seconds(found, size, machine)
    if encoder_kind(recipe.encoder.kind).pretrained:
        learnt = learnt * PASSES if not recipe.encoder.frozen else size.both * learnt / (steps * shape.batch)
    pair_steps, pair_seconds = _pairs(found, size, shape.dim, machine)
    return Cost(steps + pair_steps, memory_plan(shape).total, steps * step + learnt + pair_seconds)


def _vocabulary(recipe: Recipe, words: int) -> int:
    """Return the size of the word table; a transformer has a vocabulary of its own."""
    if not encoder_kind(recipe.encoder.kind).pretrained:
        return min(max(words, 1), recipe.text.max_tokens)  # texts may hold no word at all
    options = encoder_options(recipe.encoder, recipe.text.max_length)
    return int(options["config"]["vocab_size"])


def _pairs(recipe: Recipe, size: Size, dim: int, machine: Machine) -> tuple[int, float]:
    """Return updates and seconds of the siamese stage, whose updates read points and labels."""
    stage = recipe.siamese
    if stage.kind == "none":
        return 0, 0.0
    pairs = size.labels if pair_kind(stage.kind).draws_labels else size.points
    batch = min(stage.pair_batch, pairs)
    steps = math.ceil(pairs / batch * stage.pair_epochs)
    texts = pair_kind(stage.kind).texts(batch, size.labels)
    reading = PASSES * texts * _read_seconds(recipe, size, machine)
    return steps, steps * (machine.step + 6 * batch * texts * dim / machine.operations + reading)


def _read_seconds(recipe: Recipe, size: Size, machine: Machine) -> float:
    """Return the seconds in which a transformer reads a text; 0 for other encoders."""
    if not encoder_kind(recipe.encoder.kind).pretrained:
        return 0.0
    return max(text_tokens(recipe, size) * TOKEN_OPERATIONS * USED / machine.operations, machine.text)


SYSTEM = "astec"
_TRAINING = "training"  # rows and assumptions of a forecast that begin so are replaced here


def with_runs(found: Forecast, splits: Splits) -> Forecast:
    """Return the forecast with the costs of a run as the run itself plans them; without texts, as it is."""
    if not splits.train.texts:
        return found
    runs, assumption = _runs(splits)
    kept = [each for each in found.costs if not each.step.startswith(_TRAINING)]
    graph = [each for each in kept if each.step == "graph"]
    others = [each for each in kept if each.step != "graph"]
    assumptions = [each for each in found.assumptions if not each.startswith(_TRAINING)]
    return replace(found, costs=(*graph, *runs, *others), assumptions=(assumption, *assumptions))


def _runs(splits: Splits) -> tuple[list[StepCost], str]:
    """Return the costs of a search and of one system, and what they assume."""
    size, recipe = Size.of(splits.train), recipe_of(SYSTEM)
    texts = [*(splits.train.texts or ()), *splits.train.all_label_texts]
    words = len({word for text in texts for word in split_words(text)})
    one, there = (cost(recipe, size, words, machine) for machine in (this_machine(), H200))
    most = max(one.memory, _memory(frozen(), size, words))
    minutes = search_minutes(None, size, speed(resolved_device("auto")))
    rows = [
        StepCost("train DATA OUT", 60 * minutes, most, "at most: it tries several models in this time"),
        StepCost(f"train --system {SYSTEM}", one.seconds + START_SECONDS, one.memory),
        StepCost(f"train --system {SYSTEM}, one H200", there.seconds + START_SECONDS, there.memory),
    ]
    epochs, batch = recipe.training.epochs, resolved(recipe, size.points, size.labels).training.batch
    length = f"{one.steps:,} updates ({epochs:g} epochs, batch {batch})"
    return rows, f"train: the run's own plan; {SYSTEM} makes {length}"


def _memory(recipe: Recipe, size: Size, words: int) -> int:
    """Return the memory of a part of the search; 0 if its transformer is not installed."""
    try:
        return cost(recipe, size, words, this_machine()).memory
    except DataError:
        return 0
