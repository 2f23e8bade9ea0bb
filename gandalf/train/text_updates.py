"""Updates of heads that read label texts: gradients of their rows go on into what made the rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.nets.heads import Composed
from gandalf.train.guidance import Guidance
from gandalf.train.head_update import RowOptions, TableOptimisers
from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss
from gandalf.train.pairs.kind import PairLoss
from gandalf.train.scoring import Meeting, Scoring, Space


class ComposedUpdate:
    """Training of a `Composed` head, chunk by chunk: a chunk's rows are made, met, and led back at once.

    What made them (word vectors, blocks, gates) gathers its gradient over the chunks, and is moved with the
    encoder; free rows and biases are moved here.
    """

    def __init__(self, head: Composed, options: RowOptions, loss: Loss, dtype: torch.dtype) -> None:
        self.head = head
        self.scoring, self.space = Scoring(loss, dtype), Space()
        self.optimisers = TableOptimisers(head.table, options)

    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Update free rows and biases; return the gradient of x and, where wanted, the loss."""
        gradient, total = torch.zeros_like(x), (x.new_zeros(()) if value else None)
        met = Meeting.of(x, weights, self.scoring.dtype, value)
        for chunk in chunks:
            table = self.head.table
            taken = self.space.rows("rows", table.rows.data, chunk.labels)  # shape: (C, dim)
            bias = self.space.rows("bias", table.bias.data, chunk.labels)
            free = taken.clone().requires_grad_()  # the graph must not see it move
            rows = self._rows(free, chunk)
            found = self.scoring.gradients(met, rows.detach(), bias, chunk)
            rows.backward(found.of_rows)  # type: ignore[no-untyped-call]
            assert free.grad is not None
            total = None if total is None or found.loss is None else total + found.loss
            gradient += found.of_points
            self.optimisers.update((taken, bias), chunk.labels, (free.grad, found.of_bias), rate)
        return gradient.div_(len(x)), None if total is None else total / len(x)

    def _rows(self, free: Tensor, chunk: Chunk) -> Tensor:
        low = self.scoring.dtype != torch.float32
        with torch.autocast(free.device.type, dtype=torch.bfloat16, enabled=low):
            return self.head.mixed(free, chunk.labels).float()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.optimisers.load(tensors)

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser state, for a checkpoint; the tensors themselves."""
        return self.optimisers.tensors()


class PairUpdate:
    """Training of an encoder by pairs of points and labels: nothing but the encoder learns."""

    def __init__(self, loss: PairLoss, guidance: Guidance | None = None) -> None:
        self.loss, self.guidance = loss, guidance

    def step(
        self, x: Tensor, chunks: tuple[Chunk, ...], weights: Tensor | None, rate: float, value: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradient of x and the loss; x holds the points' vectors, and after them the labels'."""
        (chunk,) = chunks
        own = chunk.point[:0] if chunk.own is None else chunk.own  # where a loss meets every label
        x = x.detach().requires_grad_()
        points = len(x) - chunk.size
        vectors, rows = torch.split(F.normalize(x, dim=1), [points, chunk.size])
        positives = (chunk.point, chunk.column, chunk.value)
        loss = self.loss(vectors, rows, own, positives, weights) / points
        if self.guidance is not None:
            loss = loss + self.guidance(rows, chunk.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        return x.grad, loss.detach()

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        if self.guidance is not None:
            self.guidance.means.copy_(tensors["means"])

    def tensors(self) -> dict[str, Tensor]:
        """Return the means that guide, for a checkpoint; there is no other state."""
        return {} if self.guidance is None else {"means": self.guidance.means}
