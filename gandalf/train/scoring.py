"""Scores of a batch with a chunk of labels, and the gradients that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gandalf.nets.label_text import LabelIds
from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss


class Space:
    """Memory that is used again: on a CPU a large new tensor costs more than what is computed in it."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor, dtype: torch.dtype) -> Tensor:
        """A tensor of that shape, on the device of another, with whatever was left in it."""
        if like.device.type != "cpu":  # there the allocator keeps what was used, for others too
            return torch.empty(shape, dtype=dtype, device=like.device)
        size = math.prod(shape)
        if name not in self._held or self._held[name].numel() < size:
            self._held.pop(name, None)  # before the larger one is made, not after
            self._held[name] = torch.empty(size, dtype=dtype, device=like.device)
        return self._held[name][:size].view(shape)

    def rows(self, name: str, table: Tensor, labels: LabelIds) -> Tensor:
        """Some rows of a table: a range as a view, any others as a copy that `put_back` returns."""
        if isinstance(labels, slice):
            return table[labels]
        there = self.take(name, (len(labels), *table.shape[1:]), table, table.dtype)
        return torch.index_select(table, 0, labels, out=there)

    def cast(self, name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor at another precision; itself where it has that one."""
        if tensor.dtype == dtype:
            return tensor
        return self.take(name, tuple(tensor.shape), tensor, dtype).copy_(tensor)

    def product(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """Their matrix product."""
        there = self.take(name, (left.shape[0], right.shape[1]), left, left.dtype)
        return torch.mm(left, right, out=there)


def put_back(table: Tensor, labels: LabelIds, rows: Tensor) -> None:
    """Write the rows that were taken by `Space.rows` to their places, unless they never left."""
    if isinstance(labels, slice):
        return
    if table.device.type == "cpu" and table.dtype == torch.float32:
        table.numpy()[labels.numpy()] = rows.numpy()  # takes a third of the time of `index_copy_`
    else:
        table.index_copy_(0, labels, rows)


@dataclass(frozen=True, eq=False)
class Meeting:
    """A batch of points on its way through the labels."""

    points: Tensor  # shape: (B, dim), at the precision of matrix products
    shares: Tensor  # shape: (B, dim), divided by B: what a gradient of rows is made of
    weights: Tensor | None  # shape: (B,)
    value: bool  # whether the loss is to be told

    @staticmethod
    def of(x: Tensor, weights: Tensor | None, dtype: torch.dtype, value: bool) -> Meeting:
        """The points that the encoder gave."""
        return Meeting(x.to(dtype), (x / len(x)).to(dtype), weights, value)


class Gradients(NamedTuple):
    """What a chunk of labels says to the points, to its rows and to its biases; and its loss, if told."""

    of_points: Tensor  # shape: (B, dim), summed and not yet divided by B
    of_rows: Tensor  # shape: (C, dim), in memory that the next chunk uses again
    of_bias: Tensor  # shape: (C,)
    loss: Tensor | None  # summed


class Scoring:
    """Scores, loss and gradients of one chunk after the other, in memory that is used again."""

    def __init__(self, loss: Loss, dtype: torch.dtype) -> None:
        self.loss, self.dtype, self.space = loss, dtype, Space()

    @torch.no_grad()
    def gradients(self, met: Meeting, rows: Tensor, bias: Tensor, chunk: Chunk) -> Gradients:
        """Let the points meet these rows, whose labels the chunk names."""
        low = self.space.cast("low rows", rows, self.dtype)
        scores = self._scores(met.points, low, bias)  # shape: (B, C)
        loss = self.loss(scores, chunk, met.weights, met.value)  # from here on they are slopes
        slopes = self.space.cast("product", scores, self.dtype)
        of_points = slopes @ low
        of_rows = self.space.product("row product", slopes.T, met.shares)  # shape: (C, dim)
        of_rows = self.space.cast("row gradient", of_rows, torch.float32)
        of_bias = scores.sum(dim=0, dtype=torch.float32).div_(len(met.points))
        return Gradients(of_points, of_rows, of_bias, loss)

    def _scores(self, x: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
        """Scores of the batch, at full precision on a CPU; a GPU waits for memory, and low has to do."""
        if x.device.type != "cpu":
            return torch.addmm(bias.to(x.dtype), x, rows.T)
        scores = self.space.cast("scores", self.space.product("product", x, rows.T), torch.float32)
        return scores.add_(bias)
