"""How much memory a run will take, before it takes any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from gandalf.nets.encoders import build_encoder
from gandalf.recipe import Recipe
from gandalf.runs.assemble import encoder_options
from gandalf.runs.hardware import DTYPES
from gandalf.train.kernel_choice import state_dtype
from gandalf.train.memory import (
    SMALLEST_BLOCK,
    RunShape,
    memory_plan,
    roomy,
    said,
    saved_values,
)
from gandalf.train.ranks import Ranks

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


def with_fitting_blocks(
    recipe: Recipe, shape: RunShape, ranks: Ranks, before: dict[str, Any]
) -> tuple[Recipe, RunShape]:
    """Blocks of labels that nobody chose: halved until all ranks have room for them.

    A run that is resumed keeps those that it had, by its settings `before`: same blocks, same roundings.
    """
    if shape.shortlist:
        return recipe, shape
    block = before.get("labels", {}).get("block") or shape.block
    while not before and block > SMALLEST_BLOCK:
        if not ranks.any(not roomy(replace(shape, block=block), recipe.device, ranks.here)):
            break
        block //= 2
    return replace(recipe, labels=replace(recipe.labels, block=block)), replace(shape, block=block)


def plan_in_words(shape: RunShape, free: int | None = None) -> str:
    """What a run of this shape will take, and what there is where that is known."""
    met = f"{min(shape.block, shape.labels):,} labels at a time"
    return f"{memory_plan(shape)}; {met}{'' if free is None else f'; {said(free)} are free'}"


def _activations(recipe: Recipe) -> int:
    """Values for each point that the encoder keeps for the way back, counted on shapes alone where it can be.

    A transformer looks into its mask, and shapes have no numbers to look at.
    """
    device = "cpu" if recipe.encoder.kind == "transformer" else "meta"
    with torch.random.fork_rng(devices=[]), torch.device(device):
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), WORDS)
        return saved_values(encoder, torch.ones(POINTS, recipe.text.max_length, dtype=torch.int64))
