"""Which labels a batch meets: every one, in blocks, or its own and some it might be confused with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.train.parallel.ranks import share

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

    def within(self, own: slice) -> Chunk:
        """What of it lies in a range of labels, numbered from there; a range lies in it wholly."""
        if isinstance(self.labels, slice):
            return replace(self, labels=slice(self.labels.start - own.start, self.labels.stop - own.start))
        first, last = torch.searchsorted(self.labels, torch.tensor([own.start, own.stop])).tolist()
        if (first, last) == (0, self.size):
            return replace(self, labels=self.labels - own.start) if own.start else self
        there = (self.column >= first) & (self.column < last)
        return Chunk(
            self.labels[first:last] - own.start,
            last - first,
            self.point[there],
            self.column[there] - first,
            self.value[there],
        )

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


def own_chunks(chunks: list[Chunk], own: slice) -> list[Chunk]:
    """What of the chunks is of a rank's own labels."""
    there = [
        chunk
        for chunk in chunks
        if not isinstance(chunk.labels, slice) or own.start <= chunk.labels.start < own.stop
    ]
    return [chunk.within(own) for chunk in there]


class LabelSelection(Protocol):
    """Which chunks of labels a batch meets."""

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """The chunks for these points; called ahead of the step, from another thread."""
        ...


class Every:
    """All labels, block by block: the full one-vs-all loss.

    With several ranks no block is of two of them, and all have equally many.
    """

    def __init__(self, num_labels: int, block: int, world: int = 1) -> None:
        number = math.ceil(math.ceil(num_labels / world) / block)  # of blocks in the largest share
        starts = [_starts(share(num_labels, rank, world), block, number) for rank in range(world)]
        self.edges = np.append(np.concatenate(starts), num_labels)

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


def _starts(own: slice, block: int, number: int) -> Ints:
    """Where a rank's blocks begin: blocks of that size, or smaller ones where those would be too few."""
    found = np.arange(own.start, own.stop, block)
    if len(found) != number:
        found = own.start + np.arange(number) * (own.stop - own.start) // number
    return found


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
