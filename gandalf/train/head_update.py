"""Gradient and update of a free table, chunk by chunk: no gradient is stored beyond the chunk it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from gandalf.nets.heads import Table
from gandalf.nets.label_text import LabelIds
from gandalf.train.glas import Glas
from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss
from gandalf.train.rates import OptimiserName
from gandalf.train.row_kernel import TINY, Adam, move_rows, row_kernel
from gandalf.train.scoring import Meeting, Scoring, Space, put_back

Moments = tuple[Tensor, Tensor, Tensor]  # mean, mean square, times met


@dataclass(frozen=True)
class RowOptions:
    """How rows are updated: AdamW, or SGD with momentum."""

    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    beta2: float = 0.999

    def slowed(self, factor: float) -> RowOptions:
        """Return the options with the rate times the factor."""
        return replace(self, rate=factor * self.rate)


class RowOptimiser(Protocol):
    """Optimiser of a table that is given some of its rows at a time."""

    state: dict[str, Tensor]

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back a copy of `state`."""
        ...

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move these rows, of these labels, against the gradient, which may be overwritten."""
        ...


class RowAdamW:
    """AdamW whose moments move only when their row is met, with a count of its own for each row.

    Met at every step, a row moves as under torch.optim.AdamW.
    """

    EPS = 1e-8

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options, self.space = options, Space()
        self.state = {
            "mean": torch.zeros_like(table),
            "square": torch.zeros_like(table),
            "met": torch.zeros(len(table), device=table.device),
        }
        self._ranges_even: bool | None = None  # whether all rows are met equally often; None: to be seen

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back a copy of `state`."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])
        self._ranges_even = None

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move these rows against the gradient."""
        kernel = None if isinstance(labels, slice) else row_kernel(rows, gradient)
        if kernel is not None:
            self._move_by(kernel, rows, labels, gradient, rate)
            return
        taken = {name: self.space.rows(name, table, labels) for name, table in self.state.items()}
        move = self._move_together if self._even(taken["met"], labels) else self._move_each
        move(rows, gradient, (taken["mean"], taken["square"], taken["met"]), rate)
        for name, table in self.state.items():
            put_back(table, labels, taken[name])

    def _move_by(
        self, kernel: Callable[..., Any], rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float
    ) -> None:
        """Move rows in one pass, their moments where they lie."""
        assert isinstance(labels, Tensor)
        options = self.options
        adam = Adam(rate, options.momentum, options.beta2, self.EPS, options.weight_decay)
        state = self.state["mean"], self.state["square"], self.state["met"]
        move_rows(kernel, rows, state, labels, gradient, adam)

    def _even(self, met: Tensor, labels: LabelIds) -> bool:
        """Whether the rows have been met equally often."""
        if met.device.type == "cpu":
            return len(met) > 0 and bool((met == met[0]).all())
        # To look at counts on a GPU is to wait for them: once, and then only ranges can be known to be even.
        if not isinstance(labels, slice):
            self._ranges_even = False
        elif self._ranges_even is None:
            self._ranges_even = bool((self.state["met"] == self.state["met"][0]).all())
        return bool(self._ranges_even)

    def _move_together(self, rows: Tensor, gradient: Tensor, state: Moments, rate: float) -> None:
        """Rows met equally often: torch's own AdamW, which passes over them once."""
        mean, square, met = state
        adamw(
            *([rows], [gradient], [mean], [square], [], [met[0].clone()]),
            fused=True,
            amsgrad=False,
            beta1=self.options.momentum,
            beta2=self.options.beta2,
            lr=rate,
            weight_decay=self.options.weight_decay,
            eps=self.EPS,
            maximize=False,
        )
        met += 1

    def _move_each(self, rows: Tensor, gradient: Tensor, state: Moments, rate: float) -> None:
        """Rows with counts of their own."""
        mean, square, met = state
        beta1, beta2 = self.options.momentum, self.options.beta2
        met += 1
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Both corrections are numbers of the row; so written, they are applied in the fewest passes:
        # rate / c1 * mean / (sqrt(square) / c2 + eps) = (rate c2 / c1) * mean / (sqrt(square) + eps c2).
        second = (1 - beta2**met).sqrt_().view(-1, *(1 for _ in gradient.shape[1:]))
        first = second * (rate / (1 - beta1**met)).view_as(second)
        moved = torch.clamp_min(square, TINY, out=gradient).sqrt_().add_(second, alpha=self.EPS)
        torch.div(mean, moved, out=moved)
        if self.options.weight_decay:
            rows.mul_(1 - rate * self.options.weight_decay)
        rows.addcmul_(moved, first, value=-1)


class RowSgd:
    """SGD with momentum whose velocity moves only when its row is met."""

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options, self.space = options, Space()
        self.state = {"velocity": torch.zeros_like(table)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back a copy of `state`."""
        self.state["velocity"].copy_(state["velocity"])

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move these rows against the gradient."""
        velocity = self.space.rows("velocity", self.state["velocity"], labels)
        if self.options.weight_decay:
            gradient.add_(rows, alpha=self.options.weight_decay)
        velocity.mul_(self.options.momentum).add_(gradient)
        rows.sub_(velocity, alpha=rate)
        put_back(self.state["velocity"], labels, velocity)


ROWS: dict[OptimiserName, Callable[[Tensor, RowOptions], RowOptimiser]] = {"adamw": RowAdamW, "sgd": RowSgd}


class HeadUpdate(Protocol):
    """Training of a head: it is given a batch's vectors and returns their gradient."""

    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks; return the gradient of x and, if `value`, the loss."""
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state, not copies."""
        ...


class TableUpdate:
    """Training of a `Table`: for a chunk of labels, scores, loss, both gradients and the step."""

    def __init__(
        self, head: Table, options: RowOptions, loss: Loss, dtype: torch.dtype, glas: Glas | None = None
    ) -> None:
        self.head, self.options, self.glas = head, options, glas
        self.scoring, self.space = Scoring(loss, dtype), Space()
        self.optimisers = TableOptimisers(head, options)

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks; return the gradient of x and, where wanted, the summed loss.

        The loss is summed over labels and divided by the points of the batch.
        """
        gradient, total = torch.zeros_like(x), (x.new_zeros(()) if value else None)
        met = Meeting.of(x, weights, self.scoring.dtype, value)
        told = [] if self.glas is None else self.glas.gradients(self.head.rows.data, chunks)
        for number, chunk in enumerate(chunks):
            rows = self.space.rows("rows", self.head.rows.data, chunk.labels)  # shape: (C, dim)
            bias = self.space.rows("bias", self.head.bias.data, chunk.labels)
            found = self.scoring.gradients(met, rows, bias, chunk)
            total = None if total is None or found.loss is None else total + found.loss
            gradient += found.of_points
            for columns, slope in told[number : number + 1]:
                found.of_rows.index_add_(0, columns, slope)
            self.optimisers.update((rows, bias), chunk.labels, (found.of_rows, found.of_bias), rate)
        return gradient.div_(len(x)), None if total is None else total / len(x)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.optimisers.load(tensors)

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser state, for a checkpoint; the tensors themselves."""
        return self.optimisers.tensors()


class TableOptimisers:
    """Of the rows and of the biases of a table."""

    def __init__(self, table: Table, options: RowOptions) -> None:
        self.table, self.rate = table, options.rate
        self.rows: RowOptimiser = ROWS[options.optimiser](table.rows.data, options)
        self.bias: RowOptimiser = ROWS[options.optimiser](table.bias.data, options)

    def update(
        self,
        taken: tuple[Tensor, Tensor],
        labels: LabelIds,
        gradients: tuple[Tensor, Tensor],
        rate: float,
    ) -> None:
        """Move rows and biases that `Space.rows` took, of these labels, and put them back."""
        parts = ((self.rows, self.table.rows), (self.bias, self.table.bias))
        for (optimiser, table), rows, gradient in zip(parts, taken, gradients, strict=True):
            optimiser.update(rows, labels, gradient, rate * self.rate)
            put_back(table.data, labels, rows)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        for part, rows in (("rows", self.rows), ("bias", self.bias)):
            rows.load({name: tensors[f"{part}.{name}"] for name in rows.state})

    def tensors(self) -> dict[str, Tensor]:
        """Their state, the tensors themselves."""
        return {
            f"{part}.{name}": tensor
            for part, rows in (("rows", self.rows), ("bias", self.bias))
            for name, tensor in rows.state.items()
        }
