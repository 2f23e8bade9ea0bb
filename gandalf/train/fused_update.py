"""Training of a free table by fused kernels: slopes, both gradients and the step, block by block.

The same numbers as `TableUpdate` gives, to rounding, from fewer passes over memory: scores leave the core as
slopes, and a gradient of rows never leaves it at all.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gandalf.errors import DataError
from gandalf.nets.heads import Table
from gandalf.train.head_update import ROWS, RowOptions
from gandalf.train.labels import Chunk
from gandalf.train.scoring import Space

KernelName = Literal["auto", "torch", "triton"]
ALIGNMENT = 16  # bytes: what a tensor descriptor asks of the rows of a matrix


@dataclass(frozen=True)
class Tiles:
    """Shapes of the tiles that a core works on at a time, and how it works."""

    scores: tuple[int, int, int] = (128, 256, 64)  # points, labels, numbers of the vectors
    update: tuple[int, int, int] = (128, 256, 64)  # labels, numbers of the vectors, points
    warps: int = 8
    stages: int = 3


DEFAULT = Tiles()
SMALL = Tiles((16, 16, 16), (16, 32, 16), warps=4, stages=1)  # for tests, where all is small


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot run here at all; None where they can."""
    if device.type != "cuda":
        return "there is no GPU to run them on"
    if torch.cuda.get_device_capability(device)[0] < 9:
        return "the GPU is older than Hopper"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    return "matrix products are to be of float32" if dtype == torch.float32 else None


def refuse(kernel: KernelName, rows: torch.dtype, why: str) -> None:
    """Say that the kernels cannot be used, where they were asked for or the rows' precision needs them."""
    if kernel == "triton":
        what = f"fused kernels cannot train this head: {why}"
        raise DataError(what, remedy="leave head.kernel out, or set it to auto")
    if rows != torch.float32:
        what = f"rows of {str(rows).removeprefix('torch.')} are for fused kernels alone, and {why}"
        raise DataError(what, remedy="leave head.row_precision out")


def refusal(head: Table, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot train this head; None where they can."""
    misfit = head.dim * 2 % ALIGNMENT
    sizes = f"vectors of {head.dim} numbers are no multiple of {ALIGNMENT // 2}" if misfit else None
    return missing(head.rows.device, dtype) or sizes


NOT_ASKED_FOR = "they were not asked for (head.kernel)"


class FusedUpdate:
    """Training of a `Table` that meets every label, as `TableUpdate` does it."""

    def __init__(
        self, head: Table, options: RowOptions, dtype: torch.dtype, tiles: Tiles | None = None
    ) -> None:
        self.head, self.options, self.dtype, self.tiles = head, options, dtype, tiles or DEFAULT
        self.space = Space()
        rows = head.rows.data
        self.state = _state(rows, options)
        self.bias = ROWS[options.optimiser](head.bias.data, options)
        self.steps = 0
        cuda = rows.device.type == "cuda"
        self.programs = torch.cuda.get_device_properties(rows.device).multi_processor_count if cuda else 4

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks; return the gradient of x and, where wanted, the summed loss."""
        gradient = torch.zeros_like(x)
        points = x.to(self.dtype).contiguous()
        losses = []
        self.steps += 1
        for number, chunk in enumerate(chunks):
            assert isinstance(chunk.labels, slice), "fused kernels meet ranges of labels"
            rows, bias = self.head.rows.data[chunk.labels], self.head.bias.data[chunk.labels]
            low = self.space.cast("low rows", rows, self.dtype)
            slopes, sums, loss = self._slopes(points, (low, bias), weights, value)
            if value:
                losses.append(loss - _hits(points, low, bias, chunk, weights))
            _subtract(slopes, sums, chunk, weights)
            gradient += slopes @ low
            self._move(points, slopes, chunk.labels, rate * self.options.rate, number)
            self.bias.update(bias, chunk.labels, sums.div_(len(x)), rate * self.options.rate)
        total = torch.stack(losses).sum() / len(x) if value else None
        return gradient.div_(len(x)), total

    def _slopes(
        self, points: Tensor, head: tuple[Tensor, Tensor], weights: Tensor | None, value: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Slopes without the targets, their sums over points, and the loss without the targets."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        from gandalf.train.fused_kernels import slopes_kernel

        rows, bias = head
        tall, wide, deep = self.tiles.scores
        number, size = len(points), len(rows)
        across = math.ceil(number / tall)
        tiles = across * math.ceil(size / wide)
        out = self._slopes_space(number, size, points)
        sums = torch.empty(across, size, device=points.device)
        losses = torch.empty(tiles if value else 0, device=points.device)
        slopes_kernel[(min(self.programs, tiles),)](
            TensorDescriptor.from_tensor(points, [tall, deep]),
            TensorDescriptor.from_tensor(rows, [wide, deep]),
            bias,
            bias if weights is None else weights,
            TensorDescriptor.from_tensor(out, [tall, wide]),
            sums,
            losses,
            number,
            size,
            points.shape[1],
            PROGRAMS=min(self.programs, tiles),
            TILE_POINTS=tall,
            TILE_LABELS=wide,
            TILE_DIM=deep,
            WEIGHTED=weights is not None,
            VALUE=value,
            FULL=number % tall == 0,
            FAST=points.device.type == "cuda",  # Triton's interpreter knows no instructions
            PRECISION=self._precision,
            num_warps=self.tiles.warps,
            num_stages=self.tiles.stages,
        )
        return out, sums.sum(dim=0), losses.sum()

    def _slopes_space(self, number: int, size: int, like: Tensor) -> Tensor:
        """Room for slopes, its rows as long as a descriptor asks."""
        step = ALIGNMENT // like.element_size()
        whole = self.space.take("slopes", (number, math.ceil(size / step) * step), like, self.dtype)
        return whole[:, :size]

    def _move(self, points: Tensor, slopes: Tensor, labels: slice, rate: float, number: int) -> None:
        """Move the rows of these labels by the slopes."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        from gandalf.train.fused_kernels import update_kernel

        tall, wide, deep = self.tiles.update
        options, dim = self.options, points.shape[1]
        rows = self.head.rows.data[labels]
        tables = [rows, *(tensor[labels] for tensor in self.state.values()), rows, rows][:3]  # unused: any
        tiles = math.ceil(len(rows) / tall) * math.ceil(dim / wide)
        update_kernel[(min(self.programs, tiles),)](
            TensorDescriptor.from_tensor(slopes, [deep, tall]),
            TensorDescriptor.from_tensor(points, [deep, wide]),
            *(TensorDescriptor.from_tensor(table, [tall, wide // 4]) for table in tables),
            len(points),
            len(rows),
            dim,
            1 / len(points),
            rate,
            options.momentum,
            options.beta2,
            options.weight_decay,
            1 - options.momentum**self.steps,
            math.sqrt(1 - options.beta2**self.steps),
            (self.steps * 7919 + number * 104729) % 2**31,
            PROGRAMS=min(self.programs, tiles),
            TILE_LABELS=tall,
            TILE_DIM=wide,
            TILE_POINTS=deep,
            OPTIMISER=_kind(options),
            PRECISION=self._precision,
            num_warps=self.tiles.warps,
            num_stages=self.tiles.stages,
        )

    @property
    def _precision(self) -> str:
        return "ieee" if self.dtype == torch.float32 else "tf32"

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        for name, tensor in self.state.items():
            tensor.copy_(tensors[f"rows.{name}"])
        self.bias.load({name: tensors[f"bias.{name}"] for name in self.bias.state})
        self.steps = int(tensors["rows.steps"])

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser state, for a checkpoint; the tensors themselves."""
        of_bias = {f"bias.{name}": tensor for name, tensor in self.bias.state.items()}
        of_rows = {f"rows.{name}": tensor for name, tensor in self.state.items()}
        return {**of_rows, **of_bias, "rows.steps": torch.tensor(self.steps)}


def _kind(options: RowOptions) -> str:
    if options.optimiser == "sgd":
        return "momentum" if options.momentum else "sgd"
    return options.optimiser


def _state(rows: Tensor, options: RowOptions) -> dict[str, Tensor]:
    names = {"sgd": (), "momentum": ("velocity",), "adamw": ("mean", "square")}[_kind(options)]
    return {name: torch.zeros_like(rows) for name in names}


def _subtract(slopes: Tensor, sums: Tensor, chunk: Chunk, weights: Tensor | None) -> None:
    """Take the targets off, from the slopes and from their sums."""
    value = chunk.value if weights is None else chunk.value * weights[chunk.point]
    slopes[chunk.point, chunk.column] -= value.to(slopes.dtype)  # each pair stands there once
    sums.index_add_(0, chunk.column, value, alpha=-1.0)


def _hits(points: Tensor, rows: Tensor, bias: Tensor, chunk: Chunk, weights: Tensor | None) -> Tensor:
    """Scores times targets, summed: what the loss has besides softplus."""
    scores = (points[chunk.point].float() * rows[chunk.column].float()).sum(dim=1) + bias[chunk.column]
    value = chunk.value if weights is None else chunk.value * weights[chunk.point]
    return (scores * value).sum()
