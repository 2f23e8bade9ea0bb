"""What a run will cost: updates, memory and time, here and on one GPU, before anything is read or trained.

By the plan of memory that a run makes for itself, and by counting operations. Times are right to a factor of
three (`tests/lab/test_benchmarks.py` holds them against stored runs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from gandalf.nets.encoders import encoder_kind
from gandalf.recipe import Recipe
from gandalf.runs.budget import (
    CHARACTERS_PER_TOKEN,
    MARKS,
    MOVED,
    STEP_SECONDS,
    TEXT_SECONDS,
    TOKEN_OPERATIONS,
    USED,
    Size,
    speed,
)
from gandalf.runs.build import encoder_options
from gandalf.runs.plan import block_that_fits, on_device, resolved_device, run_shape
from gandalf.train.machine_memory import available_bytes
from gandalf.train.memory import memory_plan
from gandalf.train.pairs.kind import pair_kind

# Rows made of label texts: an update takes so many times one with free rows (docs/reference/systems.md).
ROWS_MADE = {"table": 1.0, "gated": 1.5, "attention": 2.6}
LEARNT = 3  # to learn from a text is to read it forwards, and backwards for twice that


@dataclass(frozen=True)
class Machine:
    """How fast a machine is, as far as a run's time depends on it."""

    name: str
    device: Literal["cpu", "cuda"]
    operations: float  # a second, in an update's products
    moving: float  # operations that it takes to move a number of a row
    step: float  # seconds of an update, whatever its size
    text: float  # least seconds in which a transformer reads a text
    memory: int | None  # bytes


# One H200 by its log (docs/lab/gpu_log.md): plain steps of 131,073 to 1.3 million labels of 768 numbers, with
# 1,024 to 4,096 points, are met to a tenth; 6 ms of everything else; 80 us to learn from a title with MiniLM.
H200 = Machine("one H200", "cuda", 600e12, 9_300.0, 6e-3, 80e-6 / LEARNT, 139 << 30)


@lru_cache(maxsize=1)
def here() -> Machine:
    """Measure this machine by a short matrix product."""
    device = resolved_device("auto")
    fast = speed(device)
    return Machine(
        "here", device, fast * USED, MOVED * USED, STEP_SECONDS, TEXT_SECONDS, available_bytes(device)
    )


@dataclass(frozen=True)
class Cost:
    """A run's updates, the most memory it needs at once, and its seconds."""

    steps: int
    memory: int
    seconds: float


def cost(recipe: Recipe, size: Size, words: int, machine: Machine) -> Cost:
    """Return what a run of the recipe costs on a set of this size, with so many words, on a machine."""
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
    step = ROWS_MADE[recipe.head.kind] * (products + machine.step)
    learnt = steps * shape.batch * _read_seconds(found, size, machine)
    if encoder_kind(recipe.encoder.kind).pretrained:
        learnt = learnt * LEARNT if not recipe.encoder.frozen else size.both * learnt / (steps * shape.batch)
    pair_steps, pair_seconds = _pairs(found, size, shape.dim, machine)
    return Cost(steps + pair_steps, memory_plan(shape).total, steps * step + learnt + pair_seconds)


def _vocabulary(recipe: Recipe, words: int) -> int:
    """Return the size of the word table: a transformer has its own."""
    if not encoder_kind(recipe.encoder.kind).pretrained:
        return min(words, recipe.text.max_tokens)
    options = encoder_options(recipe.encoder, recipe.text.max_length)
    return int(options["config"]["vocab_size"])


def _pairs(recipe: Recipe, size: Size, dim: int, machine: Machine) -> tuple[int, float]:
    """Return updates and seconds of the stage on pairs: each update reads points and labels."""
    stage = recipe.siamese
    if stage.kind == "none":
        return 0, 0.0
    pairs = size.labels if pair_kind(stage.kind).draws_labels else size.points
    batch = min(stage.pair_batch, pairs)
    steps = math.ceil(pairs / batch * stage.pair_epochs)
    texts = pair_kind(stage.kind).texts(batch, size.labels)
    reading = LEARNT * texts * _read_seconds(recipe, size, machine)
    return steps, steps * (machine.step + 6 * batch * texts * dim / machine.operations + reading)


def _read_seconds(recipe: Recipe, size: Size, machine: Machine) -> float:
    """Return how long a transformer reads a text; other encoders are part of an update."""
    if not encoder_kind(recipe.encoder.kind).pretrained:
        return 0.0
    tokens = MARKS + size.characters / CHARACTERS_PER_TOKEN
    tokens = min(tokens, recipe.text.max_length or tokens)
    return max(tokens * TOKEN_OPERATIONS * USED / machine.operations, machine.text)
