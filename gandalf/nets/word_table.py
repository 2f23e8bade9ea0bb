"""The table of word vectors that every encoder of words begins with."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WordTable(nn.Embedding):
    """Word vectors of about the given length; the gradient is sparse, since a batch meets few words."""

    def __init__(self, vocabulary: int, dim: int, length: float = 1.0) -> None:
        self.length = length
        super().__init__(vocabulary, dim, padding_idx=0, sparse=True)

    def reset_parameters(self) -> None:
        """Draw vectors of about our length; padding is nothing at all."""
        with torch.no_grad():
            self.weight.normal_(0.0, self.length * self.embedding_dim**-0.5)
            self.weight[0] = 0.0

    @torch.no_grad()
    def start_from(self, vectors: Tensor, found: Tensor) -> None:
        """Take the vectors found elsewhere, at the mean length of ours; the others stay as drawn."""
        mean = vectors[found].norm(dim=1).mean().clamp_min(1e-12)
        self.weight[found] = vectors[found] * (self.length / mean)
        self.weight[0] = 0.0
