"""Score a batch with a chunk of labels, and compute the gradients of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gandalf.train.labels import Chunk
from gandalf.train.losses import Loss
from gandalf.train.workspace import Workspace


@dataclass(frozen=True, eq=False)
class BatchVectors:
    """The vectors of a batch, ready for matrix products."""

    vectors: Tensor  # shape: (B, dim)
    shares: Tensor  # shape: (B, dim), vectors divided by B: with slopes they give the gradient of rows
    weights: Tensor | None  # shape: (B,)
    with_loss: bool

    @staticmethod
    def of(x: Tensor, weights: Tensor | None, dtype: torch.dtype, with_loss: bool) -> BatchVectors:
        """Return the encoder's vectors at the precision of matrix products."""
        return BatchVectors(x.to(dtype), (x / len(x)).to(dtype), weights, with_loss)


class Gradients(NamedTuple):
    """Gradients of one chunk, and its loss if it was asked for."""

    of_points: Tensor  # shape: (B, dim), not yet divided by B
    of_rows: Tensor  # shape: (C, dim), in memory that the next chunk overwrites
    of_bias: Tensor  # shape: (C,)
    loss: Tensor | None  # summed over points and labels


class Scoring:
    """Scores, loss and gradients of one chunk after the other, in memory that is used again."""

    def __init__(self, loss: Loss, dtype: torch.dtype) -> None:
        self.loss, self.dtype, self.workspace = loss, dtype, Workspace()

    @torch.no_grad()
    def gradients(self, batch: BatchVectors, rows: Tensor, bias: Tensor, chunk: Chunk) -> Gradients:
        """Return the gradients of the batch, and of the chunk's rows and biases."""
        low = self.workspace.cast("low rows", rows, self.dtype)
        scores = self._scores(batch.vectors, low, bias)  # shape: (B, C)
        loss = self.loss(scores, chunk, batch.weights, batch.with_loss)  # turns scores into slopes
        slopes = self.workspace.cast("product", scores, self.dtype)
        of_points = slopes @ low
        of_rows = self.workspace.product("row product", slopes.T, batch.shares)  # shape: (C, dim)
        of_rows = self.workspace.cast("row gradient", of_rows, torch.float32)
        of_bias = scores.sum(dim=0, dtype=torch.float32).div_(len(batch.vectors))
        return Gradients(of_points, of_rows, of_bias, loss)

    def _scores(self, x: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
        """Return scores: float32 on a CPU; low precision on a GPU, where memory traffic limits the speed."""
        if x.device.type != "cpu":
            return torch.addmm(bias.to(x.dtype), x, rows.T)
        product = self.workspace.product("product", x, rows.T)
        return self.workspace.cast("scores", product, torch.float32).add_(bias)
