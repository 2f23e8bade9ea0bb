"""Train a free table by fused kernels: slopes, both gradients and the step, block by block.

The update is that of `TableUpdate`, in the fewest passes over memory: slopes overwrite scores, and the step
reads a gradient of rows once. Products are of float16, whose ten bits distinguish scores eight times as
finely as bfloat16's seven; slopes are scaled so that none is too small for it. Rows and points of float8 are
used for scores only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from gandalf.nets.heads import Table
from gandalf.train.labels import Chunk
from gandalf.train.precision import FLOAT8, state_dtype
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.workspace import Workspace

UNIT = 2**40  # targets are summed as whole multiples of 1 / UNIT
# Factors of slopes: 1e-7 is not 0 in float16, and a sum over 4,000 wrong points or labels does not overflow.
SCALES = {torch.float16: 16.0, torch.float32: 1.0}
PARTS = 8  # products that are summed at once
LARGEST = torch.finfo(FLOAT8).max
ALIGNED = (
    64  # rows of scores have multiples of so many numbers; with odd rows cuBLAS is several times as slow
)


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tile that a program works on, and its number of warps."""

    labels: int = 2
    points: int = 512
    values: int = 1024  # of rows
    warps: int = 2


DEFAULT = Tiles()
SMALL = Tiles(16, 8, 256)  # for tests on small data


class FusedUpdate:
    """Training of a `Table` that meets every label, like `TableUpdate`."""

    def __init__(
        self, table: Table, options: RowOptions, dtype: torch.dtype, tiles: Tiles | None = None
    ) -> None:
        self.table, self.options, self.tiles = table, options, tiles or DEFAULT
        self.dtype = torch.float16 if dtype == torch.bfloat16 else dtype
        self.scale = SCALES[self.dtype]
        self.workspace, self.one = Workspace(), torch.ones((), device=table.rows.device)
        self.state = {
            "rows": _zero_state(table.rows.data, options),
            "bias": _zero_state(table.bias.data, options),
        }
        self.steps = 0

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, factor: float, with_loss: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the table by all blocks; return the gradient of x and the loss."""
        points, small = _aligned(x).to(self.dtype), self._as_float8(x)
        sums = _Sums(points, len(self.table.bias))
        losses, rate = [], factor * self.options.rate
        self.steps += 1
        for number, chunk in enumerate(chunks):
            assert isinstance(chunk.labels, slice), "fused kernels meet ranges of labels"
            rows, bias = self.table.rows.data[chunk.labels], self.table.bias.data[chunk.labels]
            low = self.low(rows)
            scores = self.scores(rows, small) if small else self.workspace.product("scores", low, points.T)
            hits = _target_scores(scores, bias, chunk, weights) if with_loss else None
            # From here on `scores` holds slopes.
            loss = self.slopes(scores[:, : len(x)], bias, weights, sums.of_bias[chunk.labels], with_loss)
            if hits is not None:
                losses.append(loss - hits)
            self.subtract(scores, chunk, weights, sums.of_targets[chunk.labels])
            torch.mm(low.T, scores, out=sums.next_part())
            of_rows = self.workspace.product("row product", scores, points)  # shape: (C, dim)
            self.move("rows", chunk.labels, of_rows, 1 / (len(x) * self.scale), rate, number)
        every = slice(0, len(self.table.bias))
        self.move("bias", every, sums.of_bias.sub_(sums.of_targets, alpha=1 / UNIT), 1 / len(x), rate, 0)
        total = torch.stack(losses).sum() / len(x) if with_loss else None
        gradient = torch.mul(sums.of_points().T[: len(x)], 1 / (len(x) * self.scale), out=torch.empty_like(x))
        return gradient, total

    def _as_float8(self, x: Tensor) -> Float8Points | None:
        """Return the points as float8 if rows are float8 and a GPU can multiply them."""
        can = x.device.type == "cuda" and x.shape[1] % 16 == 0
        return Float8Points.of(_aligned(x)) if can and self.table.rows.dtype == FLOAT8 else None

    def low(self, rows: Tensor) -> Tensor:
        """Return rows at the precision of products."""
        if rows.dtype != FLOAT8:
            return self.workspace.cast("low rows", rows, self.dtype)
        from gandalf.train.kernels.fused_kernels import widen_kernel

        low = self.workspace.buffer("low rows", tuple(rows.shape), rows, self.dtype)
        tile = 2 * self.tiles.values  # float8 takes half of the bytes
        programs = math.ceil(rows.numel() / tile)
        widen_kernel[(programs,)](rows, low, rows.numel(), TILE=tile, num_warps=self.tiles.warps)
        return low

    def scores(self, rows: Tensor, points: Float8Points) -> Tensor:
        """Return the scores of rows and points of float8."""  # shape: (C, B), of labels and points
        return torch._scaled_mm(
            *(rows, points.values.T),
            scale_a=self.one,
            scale_b=points.unit,
            out_dtype=self.dtype,
            use_fast_accum=True,
        )

    def slopes(
        self, scores: Tensor, bias: Tensor, weights: Tensor | None, of_bias: Tensor, with_loss: bool
    ) -> Tensor:
        """Turn scores into slopes, sum them over points, and return the loss, all without targets."""
        from gandalf.train.kernels.fused_kernels import slopes_kernel

        tiles = math.ceil(len(scores) / self.tiles.labels)
        losses = torch.empty(tiles, device=scores.device) if with_loss else of_bias  # else unused
        slopes_kernel[(tiles,)](
            *(scores, bias, bias if weights is None else weights, of_bias, losses),
            *(*scores.shape, scores.stride(0)),
            SCALE=self.scale,
            TILE_LABELS=self.tiles.labels,
            TILE_POINTS=self.tiles.points,
            WEIGHTED=weights is not None,
            WITH_LOSS=with_loss,
            FAST=scores.device.type == "cuda",  # Triton's interpreter has no inline assembly
            num_warps=self.tiles.warps,
        )
        return losses.sum() if with_loss else losses

    def subtract(self, slopes: Tensor, chunk: Chunk, weights: Tensor | None, of_targets: Tensor) -> None:
        """Subtract the targets from the slopes, and sum the targets over points."""
        from gandalf.train.kernels.fused_kernels import targets_kernel

        if count := len(chunk.value):
            targets_kernel[(math.ceil(count / 128),)](
                *(slopes, of_targets, chunk.point, chunk.column, chunk.value),
                *(chunk.value if weights is None else weights, count, slopes.stride(0)),
                SCALE=self.scale,
                UNIT=UNIT,
                TILE=128,
                WEIGHTED=weights is not None,
            )

    def move(
        self, part: str, labels: slice, gradient: Tensor, share: float, rate: float, number: int
    ) -> None:
        """Move rows or biases of these labels by `share` times the gradient."""
        from gandalf.train.kernels.fused_kernels import move_kernel

        options, tile = self.options, self.tiles.values
        moved = (self.table.rows if part == "rows" else self.table.bias).data[labels]
        tables = [
            moved,
            *(tensor[labels] for tensor in self.state[part].values()),
            moved,
            moved,
        ]  # padded: SGD reads fewer
        move_kernel[(math.ceil(moved.numel() / tile),)](
            *(gradient, *tables[:3], moved.numel(), share, rate),
            *(options.momentum, options.beta2, options.weight_decay),
            *(1 - options.momentum**self.steps, math.sqrt(1 - options.beta2**self.steps)),
            (self.steps * 7919 + number * 104729) % 2**31,
            TILE=tile,
            OPTIMISER=_kernel_optimiser(options),
            num_warps=self.tiles.warps,
        )

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        for part, state in self.state.items():
            for name, tensor in state.items():
                tensor.copy_(tensors[f"{part}.{name}"])
        self.steps = int(tensors["steps"])

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state, not copies."""
        parts = self.state.items()
        named = {f"{part}.{name}": tensor for part, state in parts for name, tensor in state.items()}
        return {**named, "steps": torch.tensor(self.steps)}


@dataclass(frozen=True, eq=False)
class Float8Points:
    """Points as float8, scaled so that their largest number is the largest of float8."""

    values: Tensor  # shape: (B, dim)
    unit: Tensor  # shape: (), the value of a 1 in `values`

    @staticmethod
    def of(points: Tensor) -> Float8Points:
        """Return the points, scaled and rounded."""
        unit = torch.linalg.vector_norm(points, math.inf).clamp_min(1e-30) / LARGEST
        return Float8Points((points / unit).to(FLOAT8), unit)


class _Sums:
    """Sums over blocks of labels, with few kernel launches, since a launch costs as much as a sum.

    Memory is allocated when it is first used, after the launch of the first product.
    """

    def __init__(self, points: Tensor, labels: int) -> None:
        self._points, self._labels = points, labels
        self._total: Tensor | None = None
        self._used = 0

    @cached_property
    def of_bias(self) -> Tensor:
        """Sums of slopes without targets over points."""  # shape: (L,)
        return torch.zeros(self._labels, device=self._points.device)

    @cached_property
    def of_targets(self) -> Tensor:
        """Sums of targets over points, exact in whole units."""  # shape: (L,)
        return torch.zeros(self._labels, dtype=torch.int64, device=self._points.device)

    @cached_property
    def _parts(self) -> Tensor:
        return self._points.new_empty(PARTS, *self._points.T.shape)

    def next_part(self) -> Tensor:
        """Return the memory for the next product of rows and slopes."""  # shape: (dim, B)
        if self._used == PARTS:
            self.of_points()
        self._used += 1
        return self._parts[self._used - 1]

    def of_points(self) -> Tensor:
        """Return the sum of these products so far."""  # shape: (dim, B)
        added = self._parts[: self._used].sum(dim=0, dtype=torch.float32)
        self._total = added if self._total is None else self._total.add_(added)
        self._used = 0
        return self._total


def _aligned(points: Tensor) -> Tensor:
    """Return the points, padded to a multiple of `ALIGNED`; padding has no slopes."""
    missing = -len(points) % ALIGNED
    return pad(points, (0, 0, 0, missing)) if missing else points


def _kernel_optimiser(options: RowOptions) -> str:
    if options.optimiser == "sgd":
        return "momentum" if options.momentum else "sgd"
    return options.optimiser


def _zero_state(table: Tensor, options: RowOptions) -> dict[str, Tensor]:
    """Return the optimiser's state before the first step: zeros."""
    names = {"sgd": (), "momentum": ("velocity",), "adamw": ("mean", "square")}[_kernel_optimiser(options)]
    return {name: torch.zeros_like(table, dtype=state_dtype(table.dtype)) for name in names}


def _target_scores(scores: Tensor, bias: Tensor, chunk: Chunk, weights: Tensor | None) -> Tensor:
    """Return the sum of scores times targets: the part of the loss besides softplus."""
    of_targets = scores[chunk.column, chunk.point].float() + bias[chunk.column]
    value = chunk.value if weights is None else chunk.value * weights[chunk.point]
    return (of_targets * value).sum()
