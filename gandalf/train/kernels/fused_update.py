"""Training of a free table by fused kernels: slopes, both gradients and the step, block by block.

What `TableUpdate` does, in the fewest passes over memory: scores become slopes where they lie, and a gradient
of rows is read once, by the step. A block's products are of float16, whose ten bits tell scores apart eight
times as finely as bfloat16's seven; slopes are scaled so that none is too small for it. Rows of float8 meet
points of float8, and only their scores are a product of so few bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from gandalf.nets.heads import Table
from gandalf.train.head_update import RowOptions
from gandalf.train.labels import Chunk
from gandalf.train.precision import FLOAT8, state_dtype
from gandalf.train.scoring import Space

UNIT = 2**40  # targets are summed as multiples of its inverse
# Slopes of float16 are times this: 1e-7 is still told from 0, and a label that is wrong about 4,000 points,
# or a point about 4,000 labels, does not overflow.
SCALES = {torch.float16: 16.0, torch.float32: 1.0}
PARTS = 8  # products that are summed at once
MOST = torch.finfo(FLOAT8).max
ALIGNED = 64  # numbers in a row of scores: of odd rows cuBLAS makes products several times as slowly


@dataclass(frozen=True)
class Tiles:
    """What a program works on at a time, and by how many warps."""

    labels: int = 2
    points: int = 512
    values: int = 1024  # of rows
    warps: int = 2


DEFAULT = Tiles()
SMALL = Tiles(16, 8, 256)  # for tests, where all is small


class FusedUpdate:
    """Training of a `Table` that meets every label, as `TableUpdate` does it."""

    def __init__(
        self, head: Table, options: RowOptions, dtype: torch.dtype, tiles: Tiles | None = None
    ) -> None:
        self.head, self.options, self.tiles = head, options, tiles or DEFAULT
        self.dtype = torch.float16 if dtype == torch.bfloat16 else dtype
        self.scale = SCALES[self.dtype]
        self.space, self.one = Space(), torch.ones((), device=head.rows.device)
        self.state = {"rows": _state(head.rows.data, options), "bias": _state(head.bias.data, options)}
        self.steps = 0

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks; return the gradient of x and, where wanted, the summed loss."""
        points, small = _aligned(x).to(self.dtype), self._as_float8(x)
        sums = _Sums(points, len(self.head.bias))
        losses, rate = [], rate * self.options.rate
        self.steps += 1
        for number, chunk in enumerate(chunks):
            assert isinstance(chunk.labels, slice), "fused kernels meet ranges of labels"
            rows, bias = self.head.rows.data[chunk.labels], self.head.bias.data[chunk.labels]
            low = self.low(rows)
            scores = self.scores(rows, small) if small else self.space.product("scores", low, points.T)
            hits = _hits(scores, bias, chunk, weights) if value else None
            # From here on they are slopes.
            loss = self.slopes(scores[:, : len(x)], bias, weights, sums.of_bias[chunk.labels], value)
            if hits is not None:
                losses.append(loss - hits)
            self.subtract(scores, chunk, weights, sums.of_targets[chunk.labels])
            torch.mm(low.T, scores, out=sums.room())
            of_rows = self.space.product("row product", scores, points)  # shape: (C, dim)
            self.move("rows", chunk.labels, of_rows, 1 / (len(x) * self.scale), rate, number)
        every = slice(0, len(self.head.bias))
        self.move("bias", every, sums.of_bias.sub_(sums.of_targets, alpha=1 / UNIT), 1 / len(x), rate, 0)
        total = torch.stack(losses).sum() / len(x) if value else None
        gradient = torch.mul(sums.of_points().T[: len(x)], 1 / (len(x) * self.scale), out=torch.empty_like(x))
        return gradient, total

    def _as_float8(self, x: Tensor) -> Float8Points | None:
        """The points as float8, where rows are and a GPU can multiply them."""
        can = x.device.type == "cuda" and x.shape[1] % 16 == 0
        return Float8Points.of(_aligned(x)) if can and self.head.rows.dtype == FLOAT8 else None

    def low(self, rows: Tensor) -> Tensor:
        """Rows as products want them."""
        if rows.dtype != FLOAT8:
            return self.space.cast("low rows", rows, self.dtype)
        from gandalf.train.kernels.fused_kernels import widen_kernel

        there = self.space.take("low rows", tuple(rows.shape), rows, self.dtype)
        tile = 2 * self.tiles.values  # half as many bytes each
        programs = math.ceil(rows.numel() / tile)
        widen_kernel[(programs,)](rows, there, rows.numel(), TILE=tile, num_warps=self.tiles.warps)
        return there

    def scores(self, rows: Tensor, points: Float8Points) -> Tensor:
        """Scores of rows and points of float8."""  # shape: (C, B), of labels and points
        return torch._scaled_mm(
            *(rows, points.values.T),
            scale_a=self.one,
            scale_b=points.unit,
            out_dtype=self.dtype,
            use_fast_accum=True,
        )

    def slopes(
        self, scores: Tensor, bias: Tensor, weights: Tensor | None, of_bias: Tensor, value: bool
    ) -> Tensor:
        """Turn scores into slopes without targets, and sum them over points; the loss without targets."""
        from gandalf.train.kernels.fused_kernels import slopes_kernel

        tiles = math.ceil(len(scores) / self.tiles.labels)
        losses = torch.empty(tiles, device=scores.device) if value else of_bias  # or unused
        slopes_kernel[(tiles,)](
            *(scores, bias, bias if weights is None else weights, of_bias, losses),
            *(*scores.shape, scores.stride(0)),
            SCALE=self.scale,
            TILE_LABELS=self.tiles.labels,
            TILE_POINTS=self.tiles.points,
            WEIGHTED=weights is not None,
            VALUE=value,
            FAST=scores.device.type == "cuda",  # Triton's interpreter knows no instructions
            num_warps=self.tiles.warps,
        )
        return losses.sum() if value else losses

    def subtract(self, slopes: Tensor, chunk: Chunk, weights: Tensor | None, of_targets: Tensor) -> None:
        """Take the targets off the slopes, and sum them over points."""
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
        """Move rows or biases of these labels by a gradient that `share` is a factor of."""
        from gandalf.train.kernels.fused_kernels import move_kernel

        options, tile = self.options, self.tiles.values
        table = (self.head.rows if part == "rows" else self.head.bias).data[labels]
        tables = [table, *(tensor[labels] for tensor in self.state[part].values()), table, table]  # or unused
        move_kernel[(math.ceil(table.numel() / tile),)](
            *(gradient, *tables[:3], table.numel(), share, rate),
            *(options.momentum, options.beta2, options.weight_decay),
            *(1 - options.momentum**self.steps, math.sqrt(1 - options.beta2**self.steps)),
            (self.steps * 7919 + number * 104729) % 2**31,
            TILE=tile,
            OPTIMISER=_kind(options),
            num_warps=self.tiles.warps,
        )

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        for part, state in self.state.items():
            for name, tensor in state.items():
                tensor.copy_(tensors[f"{part}.{name}"])
        self.steps = int(tensors["steps"])

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser state, for a checkpoint; the tensors themselves."""
        parts = self.state.items()
        named = {f"{part}.{name}": tensor for part, state in parts for name, tensor in state.items()}
        return {**named, "steps": torch.tensor(self.steps)}


@dataclass(frozen=True, eq=False)
class Float8Points:
    """Points as float8, whose largest number is as large as that type has."""

    values: Tensor  # shape: (B, dim)
    unit: Tensor  # shape: (), what a 1 among them is

    @staticmethod
    def of(points: Tensor) -> Float8Points:
        """These points, rounded."""
        unit = torch.linalg.vector_norm(points, math.inf).clamp_min(1e-30) / MOST
        return Float8Points((points / unit).to(FLOAT8), unit)


class _Sums:
    """What is added up over blocks of labels, with few kernels for each: a launch costs what a sum does.

    Made when first asked for: the first product, which a GPU may be waiting for, is launched before.
    """

    def __init__(self, points: Tensor, labels: int) -> None:
        self._points, self._labels = points, labels
        self._total: Tensor | None = None
        self._used = 0

    @cached_property
    def of_bias(self) -> Tensor:
        """Slopes without targets, over points."""  # shape: (L,)
        return torch.zeros(self._labels, device=self._points.device)

    @cached_property
    def of_targets(self) -> Tensor:
        """Targets over points, in units, to be exact."""  # shape: (L,)
        return torch.zeros(self._labels, dtype=torch.int64, device=self._points.device)

    @cached_property
    def _parts(self) -> Tensor:
        return self._points.new_empty(PARTS, *self._points.T.shape)

    def room(self) -> Tensor:
        """Where the next product of rows and slopes goes."""  # shape: (dim, B)
        if self._used == PARTS:
            self.of_points()
        self._used += 1
        return self._parts[self._used - 1]

    def of_points(self) -> Tensor:
        """The sum of these products so far."""  # shape: (dim, B)
        found = self._parts[: self._used].sum(dim=0, dtype=torch.float32)
        self._total = found if self._total is None else self._total.add_(found)
        self._used = 0
        return self._total


def _aligned(points: Tensor) -> Tensor:
    """With more points, which have no slopes, where their number is no multiple of `ALIGNED`."""
    more = -len(points) % ALIGNED
    return pad(points, (0, 0, 0, more)) if more else points


def _kind(options: RowOptions) -> str:
    if options.optimiser == "sgd":
        return "momentum" if options.momentum else "sgd"
    return options.optimiser


def _state(table: Tensor, options: RowOptions) -> dict[str, Tensor]:
    """Zeros for what the optimiser keeps."""
    names = {"sgd": (), "momentum": ("velocity",), "adamw": ("mean", "square")}[_kind(options)]
    return {name: torch.zeros_like(table, dtype=state_dtype(table.dtype)) for name in names}


def _hits(scores: Tensor, bias: Tensor, chunk: Chunk, weights: Tensor | None) -> Tensor:
    """Scores times targets, summed: what the loss has besides softplus."""
    found = scores[chunk.column, chunk.point].float() + bias[chunk.column]
    value = chunk.value if weights is None else chunk.value * weights[chunk.point]
    return (found * value).sum()
