"""Plan a run on this machine: device, precision, batch, blocks of labels, memory."""

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

MANY_LABELS = 20_000  # on a CPU, with more labels a batch meets a shortlist
SCORES = {"cpu": 1 << 23, "cuda": 1 << 27}  # of a batch and a block: they fit a CPU's cache, they fill a GPU
USUAL_BLOCK = 4_096  # labels of a block, at least, if memory allows
MANY_POINTS = 50_000  # training points and labels: with more, a GPU gets larger batches
SMALLEST_BATCH, BATCH, LARGE_BATCH = 32, RATED_FOR, 1_024
UPDATES = 300  # fewest updates of a run, as far as a smaller batch allows them


def resolved(recipe: Recipe, num_points: int, num_labels: int) -> Recipe:
    """Return the recipe with device, precision, batch and labels chosen for this machine."""
    return on_device(recipe, resolved_device(recipe.device), num_points, num_labels)


def on_device(recipe: Recipe, device: Literal["cpu", "cuda"], num_points: int, num_labels: int) -> Recipe:
    """Return the recipe for a device; with a given precision, the device need not be in this machine."""
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
    """Refuse fused kernels that a resolved recipe cannot use."""
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
    """Return the device that a setting means on this machine; refuse a GPU that is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("PyTorch finds no CUDA device here", remedy=f"use {argument('device', 'cpu')}")
    return name


def _has_bfloat16(device: str) -> bool:
    """Return True if the hardware multiplies matrices in bfloat16, rather than emulate it."""
    if device == "cuda":
        return torch.cuda.get_device_capability()[0] >= 8
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


POINTS, WORDS = (
    8,
    16,
)  # to count what a point keeps, which depends on neither; batch norms want several points


def run_shape(recipe: Recipe, vocabulary: int, labels: int) -> RunShape:
    """Return the sizes that decide how much memory the run takes."""
    with torch.device("meta"):  # tensors have shapes, but no memory
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
    """Choose blocks of labels that fit on every rank; return recipe, shape and the plan in words.

    A block size that was `asked` for stays. A resumed run keeps the block size `before` if it fits.
    """
    free = rank_bytes(recipe.device, ranks.local_world)
    own = shape.block if asked or shape.shortlist else block_that_fits(shape, free, before)
    of_ranks = ranks.values_of_all((own, free))  # all ranks must call this, even with a given block size
    found = replace(shape, block=min(block for block, _ in of_ranks))
    if not shape.shortlist:
        recipe = replace(recipe, labels=replace(recipe.labels, block=found.block))
    return recipe, found, plan_in_words(found, [size for _, size in of_ranks], shape.block)


def block_that_fits(shape: RunShape, free: int | None, before: int | None = None) -> int:
    """Return the block size `before` if it fits, else the first halving of the usual one with room to spare.

    Otherwise return the first block size that fits at all, or the usual one if none fits: then a smaller
    block would not help.
    """
    if free is None or (before and memory_plan(replace(shape, block=before)).total <= free):
        return before or shape.block
    blocks = [shape.block]
    while blocks[-1] > SMALLEST_BLOCK:
        blocks.append(max(blocks[-1] // 2, SMALLEST_BLOCK))
    shapes = [replace(shape, block=block) for block in blocks]
    roomy = (each.block for each in shapes if fits(each, free))
    fitting = (each.block for each in shapes if memory_plan(each).total <= free)
    return next(chain(roomy, fitting), shape.block)


def plan_in_words(shape: RunShape, free: Sequence[int | None], usual: int) -> str:
    """Return the memory that a run of this shape will take, and the least memory that is free on a rank."""
    block = f"{counted(min(shape.block, shape.labels), 'label')} at a time"
    fewer = f" in place of {usual:,}, for which there is no room" if shape.block < usual else ""
    known = [size for size in free if size is not None]
    available = f"; {format_bytes(min(known))} are free" if known else ""
    return f"{memory_plan(shape)}; {block}{fewer}{available}"


def _activations(recipe: Recipe) -> int:
    """Return how many values the encoder keeps of each point until the backward pass.

    Shapes alone tell it, except for a transformer, which reads the values of its mask.
    """
    device = "cpu" if encoder_kind(recipe.encoder.kind).pretrained else "meta"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), WORDS)
        return activation_values(
            encoder, torch.ones(POINTS, recipe.text.max_length or LEAST, dtype=torch.int64)
        )


def rank_shape(shape: RunShape, world: int) -> RunShape:
    """Return the shape of one rank's share of a run: its labels, and activations of its points."""
    points = -(-shape.batch // world)
    return replace(
        shape,
        labels=-(-shape.labels // world),
        micro_batch=min(shape.micro_batch or points, points) if world > 1 else shape.micro_batch,
    )
