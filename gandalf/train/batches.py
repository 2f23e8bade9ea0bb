"""Which points a step meets, and the batch that is made of them: a pure function of seed and step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.train.labels import Chunk, LabelSelection, own_chunks

Ints = npt.NDArray[np.int64]


class LabelWords:
    """The words that each label's row is made of."""

    def __init__(self, bags: csr_array) -> None:
        self.size = int(bags.shape[1])
        self._bags = bags
        self._of_ranges: dict[tuple[int, int], Ints] = {}  # the same few at every step

    def of(self, labels: slice | Tensor) -> Ints:
        """Their word ids; those of a range once each."""
        if not isinstance(labels, slice):
            return np.asarray(self._bags[labels.numpy()].indices, dtype=np.int64)
        ends = (labels.start, labels.stop)
        if ends not in self._of_ranges:
            first, last = self._bags.indptr[[labels.start, labels.stop]]
            self._of_ranges[ends] = np.unique(self._bags.indices[first:last])
        return self._of_ranges[ends]


@dataclass(frozen=True, eq=False)
class Points:
    """Training points as the loop wants them: token ids, targets, and what each counts in the loss."""

    tokens: npt.NDArray[np.int32]  # N x T, padded with 0
    targets: csr_array  # N x L
    weights: npt.NDArray[np.float32] | None = None  # shape: (N,); None: all count 1
    label_words: LabelWords | None = None  # where rows of labels are made of words
    label_tokens: npt.NDArray[np.int32] | None = None  # L x T, where labels are encoded as points are

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some points on the device, their targets as triples sorted by label, and the labels they meet.

    Where labels are encoded as points are, the tokens of those met follow the points': one pass for both.
    """

    rows: Ints  # shape: (B,) which points, on the host
    tokens: Tensor  # shape: (B, T), or (B + C, T)
    words: Tensor  # shape: (U,) the ids among them, ascending, padding the first
    weights: Tensor | None  # shape: (B,)
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, eq=False)
class Phase:
    """A stretch of training that draws its batches from these points."""

    points: Ints
    steps: int


class PointOrder(Protocol):
    """Which points each step meets: a pure function of the step, but for what it may be told on the way."""

    batch: int  # points, or labels where these are drawn first
    steps: int

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Stretches of training and the points of each."""
        ...

    def rows(self, step: int) -> Ints:
        """Points of one step."""  # shape: (B,)
        ...


class Order:
    """Points of every step: permutation after permutation, cut into batches; phase after phase."""

    def __init__(self, phases: Sequence[Phase], batch: int, seed: int) -> None:
        self.phases, self.batch, self.seed = tuple(phases), batch, seed
        self.steps = sum(phase.steps for phase in phases)
        self._permutation = lru_cache(maxsize=2)(self._permuted)  # a batch may straddle two

    def rows(self, step: int) -> Ints:
        """Points of one step."""  # shape: (B,)
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return self._rows(number, step)
            step -= phase.steps
        raise IndexError("the training is over")

    def _rows(self, number: int, step: int) -> Ints:
        size = len(self.phases[number].points)
        batch = min(self.batch, size)
        places = np.arange(step * batch, (step + 1) * batch)
        epochs, places = np.divmod(places, size)
        return np.concatenate(
            [self._permutation(number, int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)]
        )

    def _permuted(self, number: int, epoch: int) -> Ints:
        generator = np.random.default_rng([self.seed, number, epoch])
        return generator.permutation(self.phases[number].points)


def make_batch(
    points: Points,
    rows: Ints,
    labels: LabelSelection,
    step: int,
    device: torch.device,
    own: slice | None = None,
) -> Batch:
    """Gather the points, on the host, and send them over.

    Of the labels that they meet, `own` is the range whose chunks are wanted; the words are those of all.
    """
    chunks = labels.chunks(rows, _triples(points.targets, rows), step)
    tokens = _tokens(points, rows, chunks)
    longest = max(int((tokens != 0).any(axis=0).nonzero()[0].max(initial=0)) + 1, 1)
    weights = None if points.weights is None else sent(points.weights[rows], device)
    return Batch(
        rows,
        sent(tokens[:, :longest].astype(np.int64), device),
        sent(_words(tokens, points.label_words, chunks), device),
        weights,
        tuple(chunk.to(device) for chunk in (chunks if own is None else own_chunks(chunks, own))),
    )


def batches(
    points: Points,
    order: PointOrder,
    labels: LabelSelection,
    steps: range,
    device: torch.device,
    own: slice | None = None,
) -> Iterator[Batch]:
    """Batches of these steps, each made while the one before it is used."""

    def make(step: int) -> Batch:
        return make_batch(points, order.rows(step), labels, step, device, own)

    with ThreadPoolExecutor(1) as worker:
        coming = [worker.submit(make, step) for step in steps[:1]]
        for step in steps:
            batch = coming.pop().result()
            if step + 1 < steps.stop:
                coming.append(worker.submit(make, step + 1))
            yield batch


def _triples(targets: csr_array, rows: Ints) -> tuple[Ints, Ints, npt.NDArray[np.float32]]:
    """(place in the batch, label, value) of all targets of these points, sorted by label."""
    first, last = targets.indptr[rows].astype(np.int64), targets.indptr[rows + 1].astype(np.int64)
    count = last - first
    start = np.concatenate([[0], np.cumsum(count)])
    entry = np.arange(start[-1]) + np.repeat(first - start[:-1], count)
    point, label = np.repeat(np.arange(len(rows)), count), targets.indices[entry].astype(np.int64)
    by_label = np.argsort(label, kind="stable")
    return point[by_label], label[by_label], targets.data[entry][by_label].astype(np.float32)


def _tokens(points: Points, rows: Ints, chunks: list[Chunk]) -> npt.NDArray[np.int32]:
    """Of these points, and of the labels they meet where those are encoded too."""
    ascending = np.sort(rows)  # neighbours in a memory-mapped table
    own = points.tokens[ascending][np.searchsorted(ascending, rows)]
    if points.label_tokens is None:
        return own
    of_labels = [points.label_tokens[chunk.labels] for chunk in chunks]
    width = max(each.shape[1] for each in (own, *of_labels))
    return np.concatenate([np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in (own, *of_labels)])


def _words(tokens: npt.NDArray[np.int32], of_labels: LabelWords | None, chunks: list[Chunk]) -> Ints:
    """The ids among the tokens, and those that the rows of the labels are made of."""
    size = int(tokens.max(initial=0)) + 1
    met = np.zeros(size if of_labels is None else max(size, of_labels.size), dtype=bool)
    met[tokens] = met[0] = True
    if of_labels is not None:
        for chunk in chunks:
            met[of_labels.of(chunk.labels)] = True
    return np.flatnonzero(met)


def sent(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """The array on a device, without waiting for it to get there."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor
