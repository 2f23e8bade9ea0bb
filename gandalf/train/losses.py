"""Define losses of a chunk of scores, which write their gradient over the scores."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.train.labels import Chunk


class Loss(Protocol):
    """A loss of the scores of a batch and a chunk."""

    def __call__(
        self, scores: Tensor, chunk: Chunk, weights: Tensor | None, with_loss: bool
    ) -> Tensor | None:
        """Turn scores into slopes in place; return the summed loss if `with_loss`."""  # shape: (B, C)
        ...


def binary_cross_entropy(
    scores: Tensor, chunk: Chunk, weights: Tensor | None, with_loss: bool
) -> Tensor | None:
    """Compute softplus(s) - y s: one-vs-all. It is linear in y, so soft targets cost nothing."""
    loss = _summed_loss(scores, chunk, weights) if with_loss else None
    scores.sigmoid_()
    scores[chunk.point, chunk.column] -= chunk.value.to(scores.dtype)  # no pair occurs twice
    if weights is not None:
        scores *= weights[:, None].to(scores.dtype)
    return loss


def _summed_loss(scores: Tensor, chunk: Chunk, weights: Tensor | None) -> Tensor:
    per_point = F.softplus(scores).sum(dim=1, dtype=chunk.value.dtype)  # shape: (B,)
    hit = chunk.value * scores[chunk.point, chunk.column].to(chunk.value.dtype)
    per_point = per_point.index_add(0, chunk.point, hit, alpha=-1.0)
    return torch.sum(per_point if weights is None else weights * per_point)
