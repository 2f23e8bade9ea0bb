"""Losses of a chunk of scores, with the gradient written over the scores."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.train.labels import Chunk


class Loss(Protocol):
    """Sum of the loss over a chunk of scores (where wanted), and its gradient in their place."""

    def __call__(self, scores: Tensor, chunk: Chunk, weights: Tensor | None, value: bool) -> Tensor | None:
        """Turn scores into gradients; return the summed loss if `value` is asked for."""  # shape: (B, C)
        ...


def binary_cross_entropy(scores: Tensor, chunk: Chunk, weights: Tensor | None, value: bool) -> Tensor | None:
    """One-vs-all: softplus(s) - y s, summed over points and labels. Linear in y, so soft targets are free."""
    loss = _value(scores, chunk, weights) if value else None
    scores.sigmoid_()
    scores[chunk.point, chunk.column] -= chunk.value.to(scores.dtype)  # each pair stands there once
    if weights is not None:
        scores *= weights[:, None].to(scores.dtype)
    return loss


def _value(scores: Tensor, chunk: Chunk, weights: Tensor | None) -> Tensor:
    per_point = F.softplus(scores).sum(dim=1, dtype=chunk.value.dtype)  # shape: (B,)
    hit = chunk.value * scores[chunk.point, chunk.column].to(chunk.value.dtype)
    per_point = per_point.index_add(0, chunk.point, hit, alpha=-1.0)
    return torch.sum(per_point if weights is None else weights * per_point)
