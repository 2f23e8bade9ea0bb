"""What `auto` means on this machine: the device, the precision and the size of a block of labels."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from gandalf.errors import DataError, argument
from gandalf.recipe import Device, Recipe
from gandalf.train.kernels import choice
from gandalf.train.kernels.rows import FLOAT8
from gandalf.train.rates import RATED_FOR

# Of a resolved recipe.
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float8": FLOAT8,  # of rows alone
}
MANY_LABELS = 20_000  # on a CPU, more than these are met by shortlist
SCORES = {"cpu": 1 << 23, "cuda": 1 << 27}  # of a batch against a block: what fits a cache, what fills a card
SMALLEST_BLOCK = 4_096
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
    block = recipe.labels.block or max(SCORES[device] // batch, SMALLEST_BLOCK)
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
    if recipe.encoder.kind != "bag-of-words" or recipe.siamese.kind != "none":
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


def peak_memory(device: str) -> int | None:
    """The most bytes of a GPU that this process has used at once; None on a CPU, where nobody counts them."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None


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
