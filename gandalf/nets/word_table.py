"""Define the table of word vectors, the first layer of every encoder of words."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gandalf.nets.encoder import TextEncoder


class WordTable(nn.Module):
    """Word vectors of about the given length; the vector of padding, id 0, is zero.

    A batch contains few of the words. `narrow` takes out their vectors; until `widen`, look-ups and the
    gradient use these vectors only.
    """

    place: Tensor  # shape: (vocabulary,), place of each word among the words taken out

    def __init__(self, vocabulary: int, dim: int, length: float = 1.0) -> None:
        super().__init__()
        self.embedding_dim, self.length = dim, length
        self.weight = nn.Parameter(torch.empty(vocabulary, dim))
        self.register_buffer("place", torch.zeros(vocabulary, dtype=torch.int64), persistent=False)
        self._taken: Tensor | None = None  # shape: (U, dim)
        with torch.no_grad():
            self.weight.normal_(0.0, length * dim**-0.5)
            self.weight[0] = 0.0

    @torch.no_grad()
    def start_from(self, vectors: Tensor, found: Tensor) -> None:
        """Take pre-trained vectors for the words in `found`, scaled to our mean length."""
        mean = vectors[found].norm(dim=1).mean().clamp_min(1e-12)
        self.weight[found] = vectors[found] * (self.length / mean)
        self.weight[0] = 0.0

    def narrow(self, words: Tensor) -> Tensor:
        """Take out the vectors of these words, padding first; return them as a leaf for the gradient."""
        self.place[words] = torch.arange(len(words), device=words.device)
        self._taken = torch.index_select(self.weight.data, 0, words).requires_grad_()
        return self._taken

    def widen(self) -> None:
        """Use the whole table again."""
        self._taken = None

    def forward(self, ids: Tensor) -> Tensor:
        """Return the vectors of ids."""  # shape: (...) -> (..., dim)
        return F.embedding(*self._local(ids), padding_idx=0)

    def weighted_sum(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Sum the vectors of each row of ids."""  # shape: (B, T), (B, T) -> (B, dim)
        ids, table = self._local(ids)
        return F.embedding_bag(ids, table, per_sample_weights=weights, mode="sum", padding_idx=0)

    def bag_sum(self, ids: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        """Sum the vectors of bags stored end to end."""  # shape: (K,), (B + 1,), (K,) -> (B, dim)
        ids, table = self._local(ids)
        return F.embedding_bag(
            ids, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    def _local(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of ids in the table that is in use, and this table."""
        return (ids, self.weight) if self._taken is None else (self.place[ids], self._taken)


class WordEncoder(TextEncoder):
    """An encoder of word vectors: a look-up, then layers whose shapes do not depend on the texts."""

    words: WordTable

    @property
    def word_table(self) -> WordTable:
        """Table of word vectors, shared with rows made of label texts."""
        return self.words

    @abstractmethod
    def look_up(self, ids: Tensor) -> Tensor:
        """Return the input of the layers."""  # shape: (B, T) -> (B, ...)

    @abstractmethod
    def apply_layers(self, x: Tensor) -> Tensor:
        """Apply the layers after the word table."""  # shape: (B, ...) -> (B, dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        return self.apply_layers(self.look_up(ids))
