"""Which labels a batch meets: every one, in blocks, or its own and some it might be confused with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]
Triples = tuple[Ints, Ints, npt.NDArray[np.float32]]  # place in the batch, label, value; sorted by label


@dataclass(frozen=True, eq=False)
class Chunk:
    """Labels met together, and the batch's targets among them."""

    labels: slice | Tensor  # a range of labels, or the sorted ids of some; shape: (C,)
    size: int
    point: Tensor  # shape: (K,) place in the batch
    column: Tensor  # shape: (K,) place among `labels`
    value: Tensor  # shape: (K,)
    own: Tensor | None = None  # shape: (B,) the column that each point drew, where pairs are learnt

    def to(self, device: torch.device) -> Chunk:
        """The same on a device."""
        if device.type == "cpu":
            return self
        sent = {
            name: getattr(self, name).pin_memory().to(device, non_blocking=True)
            for name in ("labels", "point", "column", "value", "own")
            if isinstance(getattr(self, name), Tensor)
        }
        return replace(self, **sent)


class Labels(Protocol):
    """Which chunks of labels a batch meets."""

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """The chunks for these points; called ahead of the step, from another thread."""
        ...


class Every:
    """All labels, block by block: the full one-vs-all loss."""

    def __init__(self, num_labels: int, block: int) -> None:
        self.edges = np.append(np.arange(0, num_labels, block), num_labels)

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """One chunk for each block of labels."""
        point, label, value = triples
        cuts = np.searchsorted(label, self.edges)
        return [
            Chunk(
                slice(int(start), int(stop)),
                int(stop - start),
                torch.from_numpy(point[first:last]),
                torch.from_numpy(label[first:last] - start),
                torch.from_numpy(value[first:last]),
            )
            for start, stop, first, last in zip(self.edges, self.edges[1:], cuts, cuts[1:], strict=False)
        ]


class Shortlist:
    """The labels of the batch, labels drawn at random, and those the model finds likeliest for its points.

    All points of a batch meet all of these, so that one point's positives and hard negatives are the
    negatives of the others; targets keep their values. `hardest` is looked up anew by `refresh`.
    """

    def __init__(self, num_labels: int, random: int, seed: int) -> None:
        self.num_labels, self.random, self.seed = num_labels, min(random, num_labels), seed
        self.hardest: npt.NDArray[np.int32] | None = None  # shape: (N, h), labels of each point; -1: none

    def refresh(self, hardest: npt.NDArray[np.int32]) -> None:
        """Take new hard negatives for every point."""
        self.hardest = hardest

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """One chunk that holds everything."""
        point, label, value = triples
        drawn = np.random.default_rng([self.seed, step]).integers(self.num_labels, size=self.random)
        met = np.zeros(self.num_labels, dtype=bool)
        met[label] = met[drawn] = True
        if self.hardest is not None:
            hard = self.hardest[rows].ravel()
            met[hard[hard >= 0]] = True
        ids = np.flatnonzero(met)
        column = np.searchsorted(ids, label)
        parts = (torch.from_numpy(each) for each in (point, column, value))
        return [Chunk(torch.from_numpy(ids), len(ids), *parts)]


class InBatch:
    """One label of each point, drawn at random: to every other point in the batch it is a negative.

    Points without labels must not be in the batch. Targets among the labels drawn say which are none.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """One chunk, of the labels that were drawn."""
        point, label, _ = triples
        generator = np.random.default_rng([self.seed, step])
        order = np.lexsort((generator.random(len(point)), point))  # a point's labels together, shuffled
        _, first = np.unique(point[order], return_index=True)
        return [in_batch(label[order[first]], triples)]


def in_batch(drawn: Ints, triples: Triples) -> Chunk:
    """The chunk of these labels, one for each point; several points may have drawn the same."""
    point, label, value = triples
    ids, own = np.unique(drawn, return_inverse=True)
    column = np.minimum(np.searchsorted(ids, label), len(ids) - 1)
    there = ids[column] == label
    parts = (point[there], column[there], value[there], own)
    return Chunk(torch.from_numpy(ids), len(ids), *(torch.from_numpy(each) for each in parts))
