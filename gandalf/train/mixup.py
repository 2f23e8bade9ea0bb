"""Mix vectors of points after the encoder, and their targets (MixUp, Label-MixUp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.train.labels import Chunk

MixPairs = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64]
]  # rows of a batch, and the rows they are mixed with


@dataclass(frozen=True, eq=False)
class MixedBatch:
    """Pairs of points of a batch with their mixing weights; no point occurs twice on one side."""

    first: Tensor  # shape: (M,) rows of the batch
    second: Tensor  # shape: (M,)
    share: Tensor  # shape: (M,) weight of the first point; the second has the rest
    rows: int  # of the batch

    def vectors(self, x: Tensor) -> Tensor:
        """Return the mixed vectors."""  # shape: (B, dim) -> (M, dim)
        share = self.share[:, None]
        return share * x[self.first] + (1 - share) * x[self.second]

    def gradient(self, slopes: Tensor) -> Tensor:
        """Return the gradient of vectors from that of mixed ones."""  # shape: (M, dim) -> (B, dim)
        share, gradient = self.share[:, None], slopes.new_zeros(self.rows, slopes.shape[1])
        gradient.index_add_(0, self.first, share * slopes)
        return gradient.index_add_(0, self.second, (1 - share) * slopes)

    def chunk(self, chunk: Chunk) -> Chunk:
        """Return the chunk with mixed targets, which is all that a loss linear in the targets needs."""
        sides = ((self.first, self.share), (self.second, 1 - self.share))
        parts = [self._side_targets(chunk, rows, share) for rows, share in sides]
        point, column, value = (torch.cat(each) for each in zip(*parts, strict=True))
        # A label of both points occurs twice so far, and a loss needs each pair once.
        pairs, place = torch.unique(column * len(self.first) + point, return_inverse=True)
        summed = value.new_zeros(len(pairs)).index_add_(0, place, value)
        return replace(chunk, point=pairs % len(self.first), column=pairs // len(self.first), value=summed)

    def _side_targets(self, chunk: Chunk, rows: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return point, column and weighted target of one side."""  # shape: (K,) each
        place = torch.full((self.rows,), -1, dtype=torch.int64, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        point = place[chunk.point]
        paired = point >= 0
        return point[paired], chunk.column[paired], chunk.value[paired] * share[point[paired]]


@dataclass(frozen=True)
class MixUp:
    """Mixing by pairs of points, with weights from Beta(alpha, alpha)."""

    pairs: Callable[[int, np.random.Generator], MixPairs]
    alpha: float
    seed: int

    def __call__(self, rows: int, step: int, device: torch.device) -> MixedBatch:
        """Draw pairs and weights for a batch of so many rows, by seed and step."""
        generator = np.random.default_rng([self.seed, step, rows])
        first, second = self.pairs(rows, generator)
        share = generator.beta(self.alpha, self.alpha, len(first)).astype(np.float32)
        sent = [torch.from_numpy(each).to(device) for each in (first, second, share)]
        return MixedBatch(sent[0], sent[1], sent[2], rows)


def each_other(rows: int, generator: np.random.Generator) -> MixPairs:
    """Pair every point with a random point of the batch: MixUp."""
    return np.arange(rows), generator.permutation(rows)


def first_with_second_half(rows: int, generator: np.random.Generator) -> MixPairs:
    """Pair every point with the label point half a batch behind it: Label-MixUp."""
    return np.arange(rows // 2), np.arange(rows // 2, rows)
