"""The encoder of Astec, DECAF and ECLARE: a weighted sum of word vectors, then a small block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gandalf.nets.blocks import POINT_BLOCKS, BlockName
from gandalf.nets.word_table import WordTable


@dataclass(frozen=True)
class BagOfWordsOptions:
    """Sizes of a bag-of-words encoder, and whose block it has."""

    dim: int = 300
    dropout: float = 0.5
    block: BlockName = "astec"


class BagOfWords(nn.Module):
    """Word vectors weighted by tf-idf (rows of length 1), summed, and the block."""

    idf: Tensor  # shape: (vocabulary,)

    def __init__(self, vocabulary: int, options: BagOfWordsOptions) -> None:
        super().__init__()
        self.dim = options.dim
        self.words = WordTable(vocabulary, options.dim)
        self.register_buffer("idf", torch.ones(vocabulary))
        self.residual = POINT_BLOCKS[options.block](options.dim, options.dropout)

    def weigh(self, idf: Tensor) -> None:
        """Set the words' weights; 0 for padding."""
        self.idf.copy_(idf)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        weight = self.idf[ids] * (ids != 0)
        weight = F.normalize(weight, dim=1)
        encoded: Tensor = self.residual(self.words.weighted_sum(ids, weight))
        return encoded
