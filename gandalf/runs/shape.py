"""How much memory a run will take, before it takes any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch

from gandalf.data.lengths import LEAST
from gandalf.nets.encoders import build_encoder
from gandalf.recipe import Recipe
from gandalf.runs.assemble import encoder_options
from gandalf.runs.hardware import DTYPES
from gandalf.train.kernels.rows import state_dtype
from gandalf.train.memory import (
    SMALLEST_BLOCK,
    RunShape,
    fits_well,
    memory_plan,
    own_bytes,
    said,
    saved_values,
)
from gandalf.train.parallel.ranks import Ranks

POINTS, WORDS = 8, 16  # what one point keeps depends on neither; batch norms want some points
# Vectors that a label's row keeps for the way back, counted in tests; frozen parts keep a few less.
ROW_VALUES = {"table": 0, "gated": 7, "attention": 21}


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
        row_values=ROW_VALUES[recipe.head.kind] * encoder.dim,
        shortlist=shortlist,
    )


def fitted(
    recipe: Recipe, shape: RunShape, ranks: Ranks, asked: int | None, before: int | None = None
) -> tuple[Recipe, RunShape, str]:
    """The run with blocks of labels that fit on every rank, and what it will take, in words.

    Blocks that were asked for stay. A run that is resumed keeps those it had `before` where they fit.
    """
    free = own_bytes(recipe.device, ranks.local_world)
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
    spared = (each.block for each in shapes if fits_well(each, free))
    fitting = (each.block for each in shapes if memory_plan(each).total <= free)
    return next(chain(spared, fitting), shape.block)


def plan_in_words(shape: RunShape, free: Sequence[int | None], usual: int) -> str:
    """What a run of this shape will take, and what is free where that is known: the least of all ranks."""
    met = f"{min(shape.block, shape.labels):,} labels at a time"
    fewer = f" in place of {usual:,}, for which there is no room" if shape.block < usual else ""
    known = [size for size in free if size is not None]
    there = f"; {said(min(known))} are free" if known else ""
    return f"{memory_plan(shape)}; {met}{fewer}{there}"


def _activations(recipe: Recipe) -> int:
    """Values for each point that the encoder keeps for the way back, counted on shapes alone where it can be.

    A transformer looks into its mask, and shapes have no numbers to look at.
    """
    device = "cpu" if recipe.encoder.kind == "transformer" else "meta"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), WORDS)
        return saved_values(encoder, torch.ones(POINTS, recipe.text.max_length or LEAST, dtype=torch.int64))
