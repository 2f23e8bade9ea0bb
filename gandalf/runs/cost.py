"""Forecast the updates, memory and time of a run, before anything is read or trained."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from gandalf.data.dataset import Splits
from gandalf.data.forecast import Forecast, StepCost
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.nets.encoders import encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.recipe import Recipe
from gandalf.runs.budget import (
    MOVED,
    PASSES,
    START_SECONDS,
    STEP_SECONDS,
    TEXT_SECONDS,
    TOKEN_OPERATIONS,
    USED,
    Size,
    search_minutes,
    speed,
    text_tokens,
)
from gandalf.runs.build import encoder_options
from gandalf.runs.plan import block_that_fits, on_device, resolved, resolved_device, run_shape
from gandalf.systems import frozen
from gandalf.systems import recipe as recipe_of
from gandalf.train.machine_memory import available_bytes
from gandalf.train.pairs.kind import pair_kind
from gandalf.train.run_memory import memory_plan


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
