"""The encoder of Astec, DECAF and ECLARE: a weighted sum of word vectors, then a small block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.nets.blocks import POINT_BLOCKS, BlockName
from gandalf.nets.word_table import WordEncoder, WordTable


@dataclass(frozen=True)
class BagOfWordsOptions:
    """Sizes of a bag-of-words encoder, and whose block it has."""

    dim: int = 300
    dropout: float = 0.5
    block: BlockName = "astec"


class BagOfWords(WordEncoder):
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

    def look_up(self, ids: Tensor) -> Tensor:
        """Sum the vectors of a text's words."""  # shape: (B, T) -> (B, dim)
        weight = self.idf[ids] * (ids != 0)
        return self.words.weighted_sum(ids, F.normalize(weight, dim=1))

    def behind(self, x: Tensor) -> Tensor:
        """The block."""  # shape: (B, dim), the same
        encoded: Tensor = self.residual(x)
        return encoded
