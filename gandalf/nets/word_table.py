"""The table of word vectors that every encoder of words begins with."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WordTable(nn.Module):
    """Word vectors of about the given length; padding, id 0, is nothing at all.

    A batch meets few of the words. `narrow` takes out their vectors, and until `widen` all work and the
    gradient are with those alone.
    """

    place: Tensor  # shape: (vocabulary,), where each of the words taken out stands among them

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
        """Take the vectors found elsewhere, at the mean length of ours; the others stay as drawn."""
        mean = vectors[found].norm(dim=1).mean().clamp_min(1e-12)
        self.weight[found] = vectors[found] * (self.length / mean)
        self.weight[0] = 0.0

    def narrow(self, words: Tensor) -> Tensor:
        """Take out the vectors of these words, padding the first of them, as a leaf for the gradient."""
        self.place[words] = torch.arange(len(words), device=words.device)
        self._taken = torch.index_select(self.weight.data, 0, words).requires_grad_()
        return self._taken

    def widen(self) -> None:
        """Go back to the whole table."""
        self._taken = None

    def forward(self, ids: Tensor) -> Tensor:
        """Look up."""  # shape: (...) -> (..., dim)
        return F.embedding(*self._where(ids), padding_idx=0)

    def weighted_sum(self, ids: Tensor, weights: Tensor) -> Tensor:
        """Sum the vectors of each row of ids."""  # shape: (B, T), (B, T) -> (B, dim)
        ids, table = self._where(ids)
        return F.embedding_bag(ids, table, per_sample_weights=weights, mode="sum", padding_idx=0)

    def bag_sum(self, ids: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        """Sum the vectors of bags that lie end to end."""  # shape: (K,), (B + 1,), (K,) -> (B, dim)
        ids, table = self._where(ids)
        return F.embedding_bag(
            ids, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )

    def _where(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        return (ids, self.weight) if self._taken is None else (self.place[ids], self._taken)


class WordEncoder(nn.Module, ABC):
    """An encoder of word vectors: what it looks up, and the layers behind, whose shapes no text changes."""

    words: WordTable

    @abstractmethod
    def look_up(self, ids: Tensor) -> Tensor:
        """What the layers read."""  # shape: (B, T) -> (B, ...)

    @abstractmethod
    def behind(self, x: Tensor) -> Tensor:
        """The layers behind the word table."""  # shape: (B, ...) -> (B, dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        return self.behind(self.look_up(ids))
