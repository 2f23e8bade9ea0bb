"""Choose the labels that a batch meets: all labels in blocks, or one shortlist."""

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
    """Labels that a batch is scored against at one time, and the batch's targets among them."""

    labels: slice | Tensor  # a range, or sorted ids; shape: (C,)
    size: int
    point: Tensor  # shape: (K,) place in the batch
    column: Tensor  # shape: (K,) place among `labels`
    value: Tensor  # shape: (K,)
    drawn: Tensor | None = None  # shape: (B,) column of the label that each point is paired with, if any

    def within(self, shard: slice) -> Chunk:
        """Return the part of the chunk in a shard, which holds whole blocks; labels count from its start."""
        if isinstance(self.labels, slice):
            return replace(
                self, labels=slice(self.labels.start - shard.start, self.labels.stop - shard.start)
            )
        first, last = torch.searchsorted(self.labels, torch.tensor([shard.start, shard.stop])).tolist()
        if (first, last) == (0, self.size):
            return replace(self, labels=self.labels - shard.start) if shard.start else self
        inside = (self.column >= first) & (self.column < last)
        return Chunk(
            self.labels[first:last] - shard.start,
            last - first,
            self.point[inside],
            self.column[inside] - first,
            self.value[inside],
        )

    def to(self, device: torch.device) -> Chunk:
        """Return the chunk on a device."""
        if device.type == "cpu":
            return self
        sent = {
            name: getattr(self, name).pin_memory().to(device, non_blocking=True)
            for name in ("labels", "point", "column", "value", "drawn")
            if isinstance(getattr(self, name), Tensor)
        }
        return replace(self, **sent)


def chunks_of_shard(chunks: list[Chunk], shard: slice) -> list[Chunk]:
    """Return the blocks of a rank's shard, or its part of a shortlist."""
    return [
        chunk.within(shard)
        for chunk in chunks
        if not isinstance(chunk.labels, slice) or shard.start <= chunk.labels.start < shard.stop
    ]


class LabelSelection(Protocol):
    """Choice of the chunks of labels that a batch meets."""

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """Return the chunks for these points; called ahead of the step, from another thread."""
        ...


class Every:
    """All labels, block by block: the full one-vs-all loss.

    With several ranks each block lies in one shard, and all shards have the same number of blocks.
    """

    def __init__(self, num_labels: int, block: int, world: int = 1) -> None:
        blocks = math.ceil(math.ceil(num_labels / world) / block)  # in the largest shard
        starts = [_block_starts(share(num_labels, rank, world), block, blocks) for rank in range(world)]
        self.edges = np.append(np.concatenate(starts), num_labels)

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """Return one chunk for each block of labels."""
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


def _block_starts(shard: slice, block: int, number: int) -> Ints:
    """Return the starts of so many blocks in a shard, of the given size if that gives the number."""
    starts = np.arange(shard.start, shard.stop, block)
    if len(starts) != number:
        starts = shard.start + np.arange(number) * (shard.stop - shard.start) // number
    return starts


class Shortlist:
    """One shortlist for the batch: its labels, random labels, and the likeliest labels of its points.

    All points of the batch meet the whole shortlist, so one point's positives and hard negatives are
    negatives of the others. Targets keep their values.
    """

    def __init__(self, num_labels: int, random: int, seed: int) -> None:
        self.num_labels, self.random, self.seed = num_labels, min(random, num_labels), seed
        self.hardest: npt.NDArray[np.int32] | None = None  # shape: (N, h), by point; -1: no label

    def refresh(self, hardest: npt.NDArray[np.int32]) -> None:
        """Take new hard negatives for every point."""
        self.hardest = hardest

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """Return the shortlist as one chunk."""
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
    """One random label of each point: a negative for the other points, except for points that have it.

    Every point of the batch must have a label.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """Draw a label of each point; return the drawn labels as one chunk."""
        point, label, _ = triples
        generator = np.random.default_rng([self.seed, step])
        order = np.lexsort((generator.random(len(point)), point))  # a point's labels together, shuffled
        _, first = np.unique(point[order], return_index=True)
        return [chunk_of_drawn(label[order[first]], triples)]


def chunk_of_drawn(drawn: Ints, triples: Triples) -> Chunk:
    """Return the chunk of drawn labels, one for each point; points may have drawn the same label."""
    point, label, value = triples
    ids, drawn_column = np.unique(drawn, return_inverse=True)
    column = np.minimum(np.searchsorted(ids, label), len(ids) - 1)
    inside = ids[column] == label
    parts = (point[inside], column[inside], value[inside], drawn_column)
    return Chunk(torch.from_numpy(ids), len(ids), *(torch.from_numpy(each) for each in parts))
