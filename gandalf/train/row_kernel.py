"""Move rows by AdamW in one pass over them, compiled by numba; PyTorch needs ten passes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.compiled import compiled

LARGE = 1 << 16  # numbers of a gradient from which the compiled loop pays
PART = 1 << 18  # least numbers for a thread
TINY = 1e-36  # replaces 0, whose root takes ten times as long on some CPUs; it is negligible beside eps

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Adam(NamedTuple):
    """The numbers of AdamW in one step."""

    rate: float
    beta1: float
    beta2: float
    eps: float
    decay: float


def row_kernel(rows: Tensor, gradient: Tensor) -> Callable[..., Any] | None:
    """Return the compiled loop if it pays for these rows: many float32 numbers on a CPU."""
    small = gradient.numel() < LARGE or rows.device.type != "cpu"
    if small or rows.dtype != torch.float32 or gradient.dtype != torch.float32:
        return None
    return compiled(_move)


def move_rows(
    kernel: Callable[..., Any],
    rows: Tensor,
    state: tuple[Tensor, Tensor, Tensor],
    labels: Tensor,
    gradient: Tensor,
    adam: Adam,
) -> None:
    """Move rows that were copied from a table; the state (mean, square, met) is that of the whole table.

    Row `i` has the label `labels[i]`. No label occurs twice.
    """
    count = len(rows)
    flat_rows, flat_gradient = (each.reshape(count, -1).numpy() for each in (rows, gradient))
    mean, square = (each.view(len(each), -1).numpy() for each in state[:2])
    met, numbers = state[2].numpy(), np.array(adam, dtype=np.float64)
    parts = max(1, min(torch.get_num_threads(), gradient.numel() // PART))
    edges = pairwise(np.linspace(0, count, parts + 1).astype(np.int64).tolist())
    ids = labels.numpy()
    calls = [
        (flat_rows[a:b], flat_gradient[a:b], mean, square, met, ids[a:b], numbers) for a, b in edges if a < b
    ]
    if len(calls) == 1:
        kernel(*calls[0])
        return
    list(_threads(torch.get_num_threads()).map(lambda given: kernel(*given), calls))


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, "rows")


def _move(
    rows: Floats,
    gradient: Floats,
    mean: Floats,
    square: Floats,
    met: Floats,
    labels: Ints,
    numbers: npt.NDArray[np.float64],
) -> None:
    rate, beta1, beta2, eps, decay = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    # float32, because one float64 would make all arithmetic float64.
    new1, old2, new2 = np.float32(1 - beta1), np.float32(beta2), np.float32(1 - beta2)
    keep, tiny = np.float32(1 - rate * decay), np.float32(TINY)
    for place in range(len(labels)):
        label = labels[place]
        met[label] += np.float32(1)
        times = np.float64(met[label])
        second = np.sqrt(1 - beta2**times)
        # rate / c1 * mean / (sqrt(square) / c2 + eps) = (rate c2 / c1) * mean / (sqrt(square) + eps c2)
        step, least = np.float32(rate * second / (1 - beta1**times)), np.float32(eps * second)
        own, slope, first, power = rows[place], gradient[place], mean[label], square[label]
        for at in range(own.shape[0]):
            mean_now = first[at] + new1 * (slope[at] - first[at])
            square_now = old2 * power[at] + new2 * slope[at] * slope[at]
            first[at], power[at] = mean_now, square_now
            # `max` would prevent vector instructions.
            root = np.sqrt(square_now if square_now > tiny else tiny)
            own[at] = keep * own[at] - step * mean_now / (root + least)
