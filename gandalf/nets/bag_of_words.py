"""Astec's encoder: a weighted sum of word vectors, then a residual block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from gandalf.nets.word_table import WordTable


@dataclass(frozen=True)
class BagOfWordsOptions:
    """Sizes of a bag-of-words encoder."""

    dim: int = 300
    dropout: float = 0.5


class BagOfWords(nn.Module):
    """Word vectors weighted by tf-idf (rows of length 1), summed, ReLU, and Astec's residual block."""

    idf: Tensor  # shape: (vocabulary,)

    def __init__(self, vocabulary: int, options: BagOfWordsOptions) -> None:
        super().__init__()
        self.dim = options.dim
        self.words = WordTable(vocabulary, options.dim)
        self.register_buffer("idf", torch.ones(vocabulary))
        self.dropout = nn.Dropout(options.dropout)
        self.residual = Residual(options.dim, options.dropout)

    def weigh(self, idf: Tensor) -> None:
        """Set the words' weights; 0 for padding."""
        self.idf.copy_(idf)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        weight = self.idf[ids] * (ids != 0)
        weight = F.normalize(weight, dim=1)
        x = self.words.weighted_sum(ids, weight)
        encoded: Tensor = self.residual(self.dropout(F.relu(x)))
        return encoded


class Residual(nn.Module):
    """x + dropout(relu(W x)), W of spectral norm 1, started at the identity."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        linear = nn.Linear(dim, dim)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.linear = spectral_norm(linear)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the layer says to its input."""  # shape: (B, dim) -> (B, dim)
        found: Tensor = x + self.dropout(F.relu(self.linear(x)))
        return found
