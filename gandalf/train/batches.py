"""Make the batch of each step, ahead of the step, from points and the labels they meet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.train.labels import Chunk, Ints, LabelSelection, Triples, chunks_of_shard
from gandalf.train.orders import PointOrder


class LabelWords:
    """The words that each label's row is made of."""

    def __init__(self, bags: csr_array) -> None:
        self.size = int(bags.shape[1])
        self._bags = bags
        self._of_ranges: dict[tuple[int, int], Ints] = {}  # every step meets the same few ranges

    def of(self, labels: slice | Tensor) -> Ints:
        """Return the word ids of these labels; those of a range without repetitions."""
        if not isinstance(labels, slice):
            return np.asarray(self._bags[labels.numpy()].indices, dtype=np.int64)
        ends = (labels.start, labels.stop)
        if ends not in self._of_ranges:
            first, last = self._bags.indptr[[labels.start, labels.stop]]
            self._of_ranges[ends] = np.unique(self._bags.indices[first:last])
        return self._of_ranges[ends]


@dataclass(frozen=True, eq=False)
class Points:
    """Training points as the loop reads them: token ids, targets and weights in the loss."""

    tokens: npt.NDArray[np.int32]  # N x T, padded with 0
    targets: csr_array  # N x L
    weights: npt.NDArray[np.float32] | None = None  # shape: (N,); None: each point counts 1
    label_words: LabelWords | None = None  # if rows of labels are made of words
    label_tokens: npt.NDArray[np.int32] | None = None  # L x T, if label texts are encoded like points

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some points on the device, and the labels they meet.

    If label texts are encoded, their tokens follow those of the points, so that one pass encodes both.
    """

    rows: Ints  # shape: (B,), numbers of the points, on the CPU
    tokens: Tensor  # shape: (B, T), or (B + C, T) with label texts
    words: Tensor  # shape: (U,), ids of the words that are needed, ascending; padding comes first
    weights: Tensor | None  # shape: (B,)
    chunks: tuple[Chunk, ...]


def make_batch(
    points: Points,
    rows: Ints,
    labels: LabelSelection,
    step: int,
    device: torch.device,
    shard: slice | None = None,
) -> Batch:
    """Gather the points on the CPU and send them to the device.

    The batch has the chunks of the labels in `shard` (None: all labels), and the words of all labels it
    meets.
    """
    chunks = labels.chunks(rows, _triples(points.targets, rows), step)
    tokens = _tokens(points, rows, chunks)
    longest = max(int((tokens != 0).any(axis=0).nonzero()[0].max(initial=0)) + 1, 1)
    weights = None if points.weights is None else sent(points.weights[rows], device)
    own = chunks if shard is None else chunks_of_shard(chunks, shard)
    return Batch(
        rows,
        sent(tokens[:, :longest].astype(np.int64), device),
        sent(_words(tokens, points.label_words, chunks), device),
        weights,
        tuple(chunk.to(device) for chunk in own),
    )


def batches(
    points: Points,
    order: PointOrder,
    labels: LabelSelection,
    steps: range,
    device: torch.device,
    shard: slice | None = None,
) -> Iterator[Batch]:
    """Yield the batches of these steps; a thread makes each while the one before it is used."""

    def make(step: int) -> Batch:
        return make_batch(points, order.rows(step), labels, step, device, shard)

    with ThreadPoolExecutor(1) as worker:
        coming = [worker.submit(make, step) for step in steps[:1]]
        for step in steps:
            batch = coming.pop().result()
            if step + 1 < steps.stop:
                coming.append(worker.submit(make, step + 1))
            yield batch


def _triples(targets: csr_array, rows: Ints) -> Triples:
    """Return (place in the batch, label, value) of all targets of these points, sorted by label."""
    first, last = targets.indptr[rows].astype(np.int64), targets.indptr[rows + 1].astype(np.int64)
    count = last - first
    start = np.concatenate([[0], np.cumsum(count)])
    entry = np.arange(start[-1]) + np.repeat(first - start[:-1], count)
    point, label = np.repeat(np.arange(len(rows)), count), targets.indices[entry].astype(np.int64)
    by_label = np.argsort(label, kind="stable")
    return point[by_label], label[by_label], targets.data[entry][by_label].astype(np.float32)


def _tokens(points: Points, rows: Ints, chunks: list[Chunk]) -> npt.NDArray[np.int32]:
    """Return the tokens of these points, then of the labels they meet if label texts are encoded."""
    ascending = np.sort(rows)  # reads a memory-mapped table from front to back
    of_points = points.tokens[ascending][np.searchsorted(ascending, rows)]
    if points.label_tokens is None:
        return of_points
    tables = [of_points, *(points.label_tokens[chunk.labels] for chunk in chunks)]
    width = max(table.shape[1] for table in tables)
    return np.concatenate([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in tables])


def _words(tokens: npt.NDArray[np.int32], of_labels: LabelWords | None, chunks: list[Chunk]) -> Ints:
    """Return the ids among the tokens, and the words of the labels if rows are made of words."""
    size = int(tokens.max(initial=0)) + 1
    met = np.zeros(size if of_labels is None else max(size, of_labels.size), dtype=bool)
    met[tokens] = met[0] = True
    if of_labels is not None:
        for chunk in chunks:
            met[of_labels.of(chunk.labels)] = True
    return np.flatnonzero(met)


def sent(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """Return the array on a device, possibly still on its way."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor
