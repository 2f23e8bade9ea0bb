"""Gradient and update of a free table, chunk by chunk: no gradient is stored beyond the chunk it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from gandalf.nets.heads import Table
from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss

OptimiserName = Literal["adamw", "sgd"]


@dataclass(frozen=True)
class RowOptions:
    """How rows are updated: AdamW, or SGD with momentum."""

    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    beta2: float = 0.999


class Rows(Protocol):
    """Optimiser of a table that is given the gradient of some of its rows at a time."""

    state: dict[str, Tensor]

    def update(self, rows: Tensor, labels: slice | Tensor, gradient: Tensor, rate: float) -> None:
        """Move these rows of the table `rows` against the gradient, which may be overwritten."""
        ...


class RowAdamW:
    """AdamW whose moments move only when their row is met, with a count of its own for each row.

    Met at every step, a row moves as under torch.optim.AdamW.
    """

    EPS = 1e-8

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options = options
        self.state = {
            "mean": torch.zeros_like(table),
            "square": torch.zeros_like(table),
            "met": torch.zeros(len(table), device=table.device),
        }

    def update(self, rows: Tensor, labels: slice | Tensor, gradient: Tensor, rate: float) -> None:
        """Move these rows against the gradient."""
        beta1, beta2 = self.options.momentum, self.options.beta2
        mean, square, met = (self.state[name][labels] for name in ("mean", "square", "met"))
        met += 1
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        shape = (-1, *(1 for _ in gradient.shape[1:]))
        first = (rate / (1 - beta1**met)).view(shape)
        second = (1 - beta2**met).rsqrt().view(shape)
        moved = (
            torch.sqrt(square, out=gradient).mul_(second).add_(self.EPS).reciprocal_().mul_(mean).mul_(first)
        )
        here = rows[labels]
        if self.options.weight_decay:
            here.mul_(1 - rate * self.options.weight_decay)
        here.sub_(moved)
        if not isinstance(labels, slice):  # what was taken by index is a copy
            for name, value in (("mean", mean), ("square", square), ("met", met)):
                self.state[name][labels] = value
            rows[labels] = here


class RowSgd:
    """SGD with momentum whose velocity moves only when its row is met."""

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options = options
        self.state = {"velocity": torch.zeros_like(table)}

    def update(self, rows: Tensor, labels: slice | Tensor, gradient: Tensor, rate: float) -> None:
        """Move these rows against the gradient."""
        velocity, here = self.state["velocity"][labels], rows[labels]
        if self.options.weight_decay:
            gradient.add_(here, alpha=self.options.weight_decay)
        velocity.mul_(self.options.momentum).add_(gradient)
        here.sub_(velocity, alpha=rate)
        if not isinstance(labels, slice):
            self.state["velocity"][labels] = velocity
            rows[labels] = here


ROWS: dict[OptimiserName, Callable[[Tensor, RowOptions], Rows]] = {"adamw": RowAdamW, "sgd": RowSgd}


class TableUpdate:
    """Training of a `Table`: for a chunk of labels, scores, loss, both gradients and the step."""

    def __init__(self, head: Table, options: RowOptions, loss: Loss, dtype: torch.dtype) -> None:
        self.head, self.options, self.loss, self.dtype = head, options, loss, dtype
        self.rows: Rows = ROWS[options.optimiser](head.rows.data, options)
        self.bias: Rows = ROWS[options.optimiser](head.bias.data, options)

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks; return the gradient of x and, where wanted, the summed loss.

        The loss is summed over labels and divided by the points of the batch.
        """
        gradient, total = torch.zeros_like(x), (x.new_zeros(()) if value else None)
        points = x.to(self.dtype)
        for chunk in chunks:
            loss = self._chunk(points, chunk, weights, gradient, rate * self.options.rate, value)
            total = None if total is None or loss is None else total + loss
        return gradient.div_(len(x)), None if total is None else total / len(x)

    def _chunk(
        self,
        x: Tensor,
        chunk: Chunk,
        weights: Tensor | None,
        collected: Tensor,
        rate: float,
        value: bool,
    ) -> Tensor | None:
        rows = self.head.rows.data[chunk.labels].to(self.dtype)  # shape: (C, dim)
        scores = (x @ rows.T).float()  # shape: (B, C)
        scores += self.head.bias.data[chunk.labels]
        loss = self.loss(scores, chunk, weights, value)  # from here on they are gradients
        bias = scores.sum(dim=0).div_(len(x))
        low = scores.to(self.dtype)
        collected += low @ rows
        gradient = (low.T @ x).float().div_(len(x))  # shape: (C, dim)
        del rows, scores, low
        self.rows.update(self.head.rows.data, chunk.labels, gradient, rate)
        self.bias.update(self.head.bias.data, chunk.labels, bias, rate)
        return loss

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser state, for a checkpoint; the tensors themselves, to be read or filled."""
        return {
            f"{part}.{name}": tensor
            for part, rows in (("rows", self.rows), ("bias", self.bias))
            for name, tensor in rows.state.items()
        }
