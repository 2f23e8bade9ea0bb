"""Optimise some rows of a table at a time: moments move only when their row is met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from gandalf.nets.label_text import LabelIds
from gandalf.train.rates import OptimiserName
from gandalf.train.row_kernel import TINY, Adam, move_rows, row_kernel
from gandalf.train.workspace import Workspace, put_back

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
        """Load a copy of `state`."""
        ...

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move the rows of these labels against the gradient, which may be overwritten."""
        ...


class RowAdamW:
    """AdamW whose moments move only when their row is met, with one count for each row.

    Met at every step, a row moves as under torch.optim.AdamW.
    """

    EPS = 1e-8

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options, self.workspace = options, Workspace()
        self.state = {
            "mean": torch.zeros_like(table),
            "square": torch.zeros_like(table),
            "met": torch.zeros(len(table), device=table.device),
        }
        self._equal_counts: bool | None = None  # on a GPU: all rows of ranges were met equally often

    def load(self, state: dict[str, Tensor]) -> None:
        """Load a copy of `state`."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])
        self._equal_counts = None

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move the rows of these labels against the gradient."""
        kernel = None if isinstance(labels, slice) else row_kernel(rows, gradient)
        if kernel is not None and isinstance(labels, Tensor):
            options = self.options
            adam = Adam(rate, options.momentum, options.beta2, self.EPS, options.weight_decay)
            state = self.state["mean"], self.state["square"], self.state["met"]
            move_rows(kernel, rows, state, labels, gradient, adam)
            return
        taken = {name: self.workspace.take_rows(name, table, labels) for name, table in self.state.items()}
        move = self._move_by_torch if self._equally_often(taken["met"], labels) else self._move_by_counts
        move(rows, gradient, (taken["mean"], taken["square"], taken["met"]), rate)
        for name, table in self.state.items():
            put_back(table, labels, taken[name])

    def _equally_often(self, met: Tensor, labels: LabelIds) -> bool:
        """Return True if the rows are known to have been met equally often."""
        if met.device.type == "cpu":
            return len(met) > 0 and bool((met == met[0]).all())
        # Reading counts from a GPU waits for it: do it once, and after that trust ranges only.
        if not isinstance(labels, slice):
            self._equal_counts = False
        elif self._equal_counts is None:
            self._equal_counts = bool((self.state["met"] == self.state["met"][0]).all())
        return bool(self._equal_counts)

    def _move_by_torch(self, rows: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        """Move rows that were met equally often, by torch's AdamW, which passes over them once."""
        mean, square, met = moments
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

    def _move_by_counts(self, rows: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        """Move rows whose counts differ."""
        mean, square, met = moments
        beta1, beta2 = self.options.momentum, self.options.beta2
        met += 1
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # Each row has two bias corrections, c1 and c2. This form needs the fewest passes:
        # rate / c1 * mean / (sqrt(square) / c2 + eps) = (rate c2 / c1) * mean / (sqrt(square) + eps c2).
        second = (1 - beta2**met).sqrt_().view(-1, *(1 for _ in gradient.shape[1:]))
        first = second * (rate / (1 - beta1**met)).view_as(second)
        direction = torch.clamp_min(square, TINY, out=gradient).sqrt_().add_(second, alpha=self.EPS)
        torch.div(mean, direction, out=direction)
        if self.options.weight_decay:
            rows.mul_(1 - rate * self.options.weight_decay)
        rows.addcmul_(direction, first, value=-1)


class RowSgd:
    """SGD with momentum whose velocity moves only when its row is met."""

    def __init__(self, table: Tensor, options: RowOptions) -> None:
        self.options, self.workspace = options, Workspace()
        self.state = {"velocity": torch.zeros_like(table)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Load a copy of `state`."""
        self.state["velocity"].copy_(state["velocity"])

    def update(self, rows: Tensor, labels: LabelIds, gradient: Tensor, rate: float) -> None:
        """Move the rows of these labels against the gradient."""
        velocity = self.workspace.take_rows("velocity", self.state["velocity"], labels)
        if self.options.weight_decay:
            gradient.add_(rows, alpha=self.options.weight_decay)
        velocity.mul_(self.options.momentum).add_(gradient)
        rows.sub_(velocity, alpha=rate)
        put_back(self.state["velocity"], labels, velocity)


ROWS: dict[OptimiserName, Callable[[Tensor, RowOptions], RowOptimiser]] = {"adamw": RowAdamW, "sgd": RowSgd}
