"""What a run takes on this machine: device, precision, block of labels, memory and time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

import torch

from gandalf.data.lengths import LEAST
from gandalf.data.sentences import counted
from gandalf.errors import DataError, argument
from gandalf.nets.encoders import build_encoder, encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.recipe import Device, Recipe
from gandalf.runs.build import encoder_options
from gandalf.train.kernels import choice
from gandalf.train.machine_memory import format_bytes
from gandalf.train.parallel.ranks import Ranks
from gandalf.train.precision import DTYPES, state_dtype
from gandalf.train.rates import RATED_FOR
from gandalf.train.run_memory import (
    SMALLEST_BLOCK,
    RunShape,
    activation_values,
    fits,
    memory_plan,
    rank_bytes,
)

MANY_LABELS = 20_000  # on a CPU, more than these are met by shortlist
SCORES = {"cpu": 1 << 23, "cuda": 1 << 27}  # of a batch against a block: what fits a cache, what fills a card
USUAL_BLOCK = 4_096  # labels, at least, if memory allows
MANY_POINTS = 50_000  # training points and labels: from here on a GPU is given larger batches
SMALLEST_BATCH, BATCH, LARGE_BATCH = 32, RATED_FOR, 1_024
UPDATES = 300  # at least these, where a smaller batch can give them


def resolved(recipe: Recipe, num_points: int, num_labels: int) -> Recipe:
    """The recipe with every `auto` about hardware replaced by what it means here."""
    return on_device(recipe, resolved_device(recipe.device), num_points, num_labels)


def on_device(recipe: Recipe, device: Literal["cpu", "cuda"], num_points: int, num_labels: int) -> Recipe:
    """Return the recipe as it is on a device, which need not be here if the precision is given."""
    precision = recipe.training.precision
    if precision == "auto":
        precision = "bfloat16" if _has_bfloat16(device) else "float32"
    kind = recipe.labels.kind
    if kind == "auto":
        kind = "shortlist" if device == "cpu" and num_labels > MANY_LABELS else "every"
    batch = recipe.training.batch or _batch(recipe, device, num_points + num_labels)
    block = recipe.labels.block or max(SCORES[device] // batch, USUAL_BLOCK)
    return replace(
        recipe,
        device=device,
        labels=replace(recipe.labels, kind=kind, block=min(block, num_labels)),
        training=replace(recipe.training, precision=precision, batch=batch),
    )


def _batch(recipe: Recipe, device: str, epoch: int) -> int:
    """Return the points of an update: fewer for small sets, so that the run has enough updates.

    `epoch` is the number of points in an epoch. Only bags of words were measured with small batches.
    """
    if device == "cuda" and epoch > MANY_POINTS:
        return LARGE_BATCH
    if not encoder_kind(recipe.encoder.kind).small_batches or recipe.siamese.kind != "none":
        return BATCH
    most = recipe.training.epochs * epoch / UPDATES
    return max(SMALLEST_BATCH, min(BATCH, 1 << int(math.log2(max(most, 1.0)))))


def check_kernel(recipe: Recipe) -> None:
    """Refuse fused kernels that a resolved recipe cannot have, before any work is done."""
    head, why = recipe.head, None
    if recipe.siamese.alone:
        why = "there is no stage that trains rows"
    elif head.kind != "table":
        why = f"rows are not a plain table (head.kind={head.kind})"
    elif recipe.labels.kind == "shortlist":
        why = choice.BY_SHORTLIST
    rows, products = DTYPES[head.row_precision], DTYPES[recipe.training.precision]
    choice.check_kernel(head.kernel, rows, torch.device(recipe.device), products, why)


def resolved_device(name: Device) -> Literal["cpu", "cuda"]:
    """Return the device that a setting means here, or refuse one that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("PyTorch finds no CUDA device here", remedy=f"use {argument('device', 'cpu')}")
    return name


def _has_bfloat16(device: str) -> bool:
    """Whether matrix products in bfloat16 are done by the hardware, not emulated."""
    if device == "cuda":
        return torch.cuda.get_device_capability()[0] >= 8
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


POINTS, WORDS = 8, 16  # what one point keeps depends on neither; batch norms want some points


def run_shape(recipe: Recipe, vocabulary: int, labels: int) -> RunShape:
    """The numbers that decide how much memory the run takes."""
    with torch.device("meta"):  # shapes without numbers
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), vocabulary)
    block, shortlist = recipe.labels.block or labels, recipe.labels.kind == "shortlist"
    if shortlist:
        met = recipe.training.batch * (recipe.labels.hard + 4) + recipe.labels.random
        block = min(met, labels)
    rows = DTYPES[recipe.head.row_precision]
    return RunShape(
        labels=labels,
        dim=encoder.dim,
        batch=recipe.training.batch,
        micro_batch=recipe.training.micro_batch,
        block=block,
        encoder_parameters=sum(each.numel() for each in encoder.parameters()),
        activations=_activations(recipe),
        states=2 if recipe.head.optimiser == "adamw" else 1,
        bytes_per_row_value=rows.itemsize,
        bytes_per_row_state=state_dtype(rows).itemsize,
        row_values=head_kind(recipe.head.kind).row_values * encoder.dim,
        shortlist=shortlist,
    )


def fit_blocks(
    recipe: Recipe, shape: RunShape, ranks: Ranks, asked: int | None, before: int | None = None
) -> tuple[Recipe, RunShape, str]:
    """The run with blocks of labels that fit on every rank, and what it will take, in words.

    Blocks that were asked for stay. A run that is resumed keeps those it had `before` where they fit.
    """
    free = rank_bytes(recipe.device, ranks.local_world)
    own = shape.block if asked or shape.shortlist else block_that_fits(shape, free, before)
    each = ranks.values_of_all((own, free))  # by all of them, whatever each was asked for
    found = replace(shape, block=min(block for block, _ in each))
    if not shape.shortlist:
        recipe = replace(recipe, labels=replace(recipe.labels, block=found.block))
    return recipe, found, plan_in_words(found, [size for _, size in each], shape.block)


def block_that_fits(shape: RunShape, free: int | None, before: int | None = None) -> int:
    """The block of `before` if it fits, or the first half of the usual one that leaves memory to spare.

    Where none leaves any, the first that fits at all; where none does, the usual: it is not the blocks.
    """
    if free is None or (before and memory_plan(replace(shape, block=before)).total <= free):
        return before or shape.block
    blocks = [shape.block]
    while blocks[-1] > SMALLEST_BLOCK:
        blocks.append(max(blocks[-1] // 2, SMALLEST_BLOCK))
    shapes = [replace(shape, block=block) for block in blocks]
    spared = (each.block for each in shapes if fits(each, free))
    fitting = (each.block for each in shapes if memory_plan(each).total <= free)
    return next(chain(spared, fitting), shape.block)


def plan_in_words(shape: RunShape, free: Sequence[int | None], usual: int) -> str:
    """What a run of this shape will take, and what is free where that is known: the least of all ranks."""
    met = f"{counted(min(shape.block, shape.labels), 'label')} at a time"
    fewer = f" in place of {usual:,}, for which there is no room" if shape.block < usual else ""
    known = [size for size in free if size is not None]
    there = f"; {format_bytes(min(known))} are free" if known else ""
    return f"{memory_plan(shape)}; {met}{fewer}{there}"


def _activations(recipe: Recipe) -> int:
    """Values for each point that the encoder keeps for the way back, counted on shapes alone where it can be.

    A transformer looks into its mask, and shapes have no numbers to look at.
    """
    device = "cpu" if encoder_kind(recipe.encoder.kind).pretrained else "meta"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), WORDS)
        return activation_values(
            encoder, torch.ones(POINTS, recipe.text.max_length or LEAST, dtype=torch.int64)
        )


def rank_shape(shape: RunShape, world: int) -> RunShape:
    """What one rank of a run of this shape holds: its labels, and activations of its points."""
    points = -(-shape.batch // world)
    return replace(
        shape,
        labels=-(-shape.labels // world),
        micro_batch=min(shape.micro_batch or points, points) if world > 1 else shape.micro_batch,
    )
