"""Train a head, chunk by chunk: a chunk's gradient is used at once and never stored."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.nets.heads import Composed, Table
from gandalf.nets.label_text import LabelIds
from gandalf.train.glas import Glas
from gandalf.train.guidance import Guidance
from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss
from gandalf.train.pairs.kind import PairLoss
from gandalf.train.row_optimisers import ROWS, RowOptimiser, RowOptions
from gandalf.train.scoring import BatchVectors, Gradients, Scoring
from gandalf.train.workspace import Workspace, put_back


class HeadUpdate(Protocol):
    """Training of a head: it is given a batch's vectors and returns their gradient."""

    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, factor: float, with_loss: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update the head by all chunks, with rates times `factor`; return the gradient of x and the loss.

        The loss is summed over labels and divided by the points of the batch; None unless `with_loss`.
        """
        ...

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state, not copies."""
        ...


class TableUpdate:
    """Training of a `Table`: each chunk's rows are scored and moved."""

    def __init__(
        self, table: Table, options: RowOptions, loss: Loss, dtype: torch.dtype, glas: Glas | None = None
    ) -> None:
        self.table, self.options, self.glas = table, options, glas
        self.scoring, self.workspace = Scoring(loss, dtype), Workspace()
        self.optimisers = TableOptimisers(table, options)

    @torch.no_grad()
    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, factor: float, with_loss: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update rows and biases by all chunks; return the gradient of x and the loss."""
        gradient, total = torch.zeros_like(x), (x.new_zeros(()) if with_loss else None)
        batch = BatchVectors.of(x, weights, self.scoring.dtype, with_loss)
        penalties = [] if self.glas is None else self.glas.gradients(self.table.rows.data, chunks)
        for number, chunk in enumerate(chunks):
            rows = self.workspace.take_rows("rows", self.table.rows.data, chunk.labels)  # shape: (C, dim)
            bias = self.workspace.take_rows("bias", self.table.bias.data, chunk.labels)
            found = self._gradients(batch, rows, bias, chunk)
            total = None if total is None or found.loss is None else total + found.loss
            gradient += found.of_points
            for columns, penalty in penalties[number : number + 1]:
                found.of_rows.index_add_(0, columns, penalty)
            self.optimisers.update((rows, bias), chunk.labels, (found.of_rows, found.of_bias), factor)
        return gradient.div_(len(x)), None if total is None else total / len(x)

    def _gradients(self, batch: BatchVectors, rows: Tensor, bias: Tensor, chunk: Chunk) -> Gradients:
        """Return the gradients of a chunk with these free rows."""
        return self.scoring.gradients(batch, rows, bias, chunk)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        self.optimisers.load(tensors)

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimisers' state, not copies."""
        return self.optimisers.tensors()


class ComposedUpdate(TableUpdate):
    """Training of a `Composed` head: each chunk's rows are made, scored, and their gradient led back.

    Word vectors, blocks and gates gather their gradient over the chunks and are moved with the encoder; free
    rows and biases are moved here.
    """

    def __init__(self, head: Composed, options: RowOptions, loss: Loss, dtype: torch.dtype) -> None:
        super().__init__(head.table, options, loss, dtype)
        self.head = head

    @torch.enable_grad()
    def _gradients(self, batch: BatchVectors, rows: Tensor, bias: Tensor, chunk: Chunk) -> Gradients:
        free = rows.clone().requires_grad_()  # a copy, because `rows` move while the graph exists
        low = self.scoring.dtype != torch.float32
        with torch.autocast(free.device.type, dtype=torch.bfloat16, enabled=low):
            mixed = self.head.mixed(free, chunk.labels).float()
        found = super()._gradients(batch, mixed.detach(), bias, chunk)
        mixed.backward(found.of_rows)  # type: ignore[no-untyped-call]
        assert free.grad is not None
        return found._replace(of_rows=free.grad)


class TableOptimisers:
    """The optimisers of a table's rows and biases."""

    def __init__(self, table: Table, options: RowOptions) -> None:
        self.table, self.rate = table, options.rate
        self.parts: dict[str, RowOptimiser] = {
            "rows": ROWS[options.optimiser](table.rows.data, options),
            "bias": ROWS[options.optimiser](table.bias.data, options),
        }

    def update(
        self,
        taken: tuple[Tensor, Tensor],
        labels: LabelIds,
        gradients: tuple[Tensor, Tensor],
        factor: float,
    ) -> None:
        """Move rows and biases that `take_rows` gave, and put them back."""
        tables = self.table.rows.data, self.table.bias.data
        for optimiser, table, rows, gradient in zip(
            self.parts.values(), tables, taken, gradients, strict=True
        ):
            optimiser.update(rows, labels, gradient, factor * self.rate)
            put_back(table, labels, rows)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        for part, optimiser in self.parts.items():
            optimiser.load({name: tensors[f"{part}.{name}"] for name in optimiser.state})

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of both, not copies."""
        return {
            f"{part}.{name}": tensor
            for part, optimiser in self.parts.items()
            for name, tensor in optimiser.state.items()
        }


class PairUpdate:
    """Training by pairs of points and labels: only the encoder learns, so nothing is moved here."""

    def __init__(self, loss: PairLoss, guidance: Guidance | None = None) -> None:
        self.loss, self.guidance = loss, guidance

    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, factor: float, with_loss: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of x and the loss; x holds the points' vectors, then those of the labels."""
        (chunk,) = chunks
        drawn = chunk.point[:0] if chunk.drawn is None else chunk.drawn  # none if points meet every label
        x = x.detach().requires_grad_()
        points = len(x) - chunk.size
        vectors, rows = torch.split(F.normalize(x, dim=1), [points, chunk.size])
        positives = (chunk.point, chunk.column, chunk.value)
        loss = self.loss(vectors, rows, drawn, positives, weights) / points
        if self.guidance is not None:
            loss = loss + self.guidance(rows, chunk.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return x.grad, loss.detach()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        if self.guidance is not None:
            self.guidance.means.copy_(tensors["means"])

    def tensors(self) -> dict[str, Tensor]:
        """Return the means that guide, if any; there is no other state."""
        return {} if self.guidance is None else {"means": self.guidance.means}
