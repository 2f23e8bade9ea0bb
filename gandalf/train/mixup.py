"""MixUp after the encoder: mixed vectors, and targets that are mixed as lists of triples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.train.labels import Chunk

MixPairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # rows of a batch, and who each is mixed with


@dataclass(frozen=True, eq=False)
class MixedBatch:
    """Points of a batch and the points they are mixed with; nobody stands twice on one side."""

    own: Tensor  # shape: (M,) rows of the batch
    other: Tensor  # shape: (M,)
    share: Tensor  # shape: (M,) what is left of the own one
    rows: int  # of the batch

    def vectors(self, x: Tensor) -> Tensor:
        """The mixed points."""  # shape: (B, dim) -> (M, dim)
        share = self.share[:, None]
        return share * x[self.own] + (1 - share) * x[self.other]

    def gradient(self, slopes: Tensor) -> Tensor:
        """From the gradient of the mixed points to that of the points."""  # shape: (M, dim) -> (B, dim)
        share, found = self.share[:, None], slopes.new_zeros(self.rows, slopes.shape[1])
        found.index_add_(0, self.own, share * slopes)
        return found.index_add_(0, self.other, (1 - share) * slopes)

    def chunk(self, chunk: Chunk) -> Chunk:
        """The same labels with mixed targets: losses that are linear in these need nothing else."""
        sides = ((self.own, self.share), (self.other, 1 - self.share))
        parts = [self._side(chunk, rows, share) for rows, share in sides]
        point, column, value = (torch.cat(each) for each in zip(*parts, strict=True))
        # A label of both points is there twice, and a loss may meet a pair only once.
        pairs, place = torch.unique(column * len(self.own) + point, return_inverse=True)
        summed = value.new_zeros(len(pairs)).index_add_(0, place, value)
        return replace(chunk, point=pairs % len(self.own), column=pairs // len(self.own), value=summed)

    def _side(self, chunk: Chunk, rows: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = torch.full((self.rows,), -1, dtype=torch.int64, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        point = place[chunk.point]
        there = point >= 0
        return point[there], chunk.column[there], chunk.value[there] * share[point[there]]


@dataclass(frozen=True)
class MixUp:
    """Who is mixed with whom, and how much is left of whom: a draw from Beta(alpha, alpha) for each point."""

    pairs: Callable[[int, np.random.Generator], MixPairs]
    alpha: float
    seed: int

    def __call__(self, rows: int, step: int, device: torch.device) -> MixedBatch:
        """What is done to a batch of so many rows; the same for the same seed and step."""
        generator = np.random.default_rng([self.seed, step, rows])
        own, other = self.pairs(rows, generator)
        share = generator.beta(self.alpha, self.alpha, len(own)).astype(np.float32)
        sent = [torch.from_numpy(each).to(device) for each in (own, other, share)]
        return MixedBatch(sent[0], sent[1], sent[2], rows)


def each_other(rows: int, generator: np.random.Generator) -> MixPairs:
    """MixUp: every point with one of the same batch."""
    return np.arange(rows), generator.permutation(rows)


def first_with_second_half(rows: int, generator: np.random.Generator) -> MixPairs:
    """Label-MixUp: every point with the label point that stands half a batch behind it."""
    return np.arange(rows // 2), np.arange(rows // 2, rows)
