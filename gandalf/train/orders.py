"""Orders of points and labels: near points together (NGAME), labels drawn first (SiameseXML), or behind.

All stand where an `Order` stands: they have `batch`, `steps`, `phases` and `rows(step)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.train.batches import Order, Phase

Ints = npt.NDArray[np.int64]

# NGAME's training: epochs in all, those at which clusters double, and from when and how often they are made.
EPOCHS, DOUBLED, FIRST, EVERY = 300, (10, 20, 25, 50, 75, 100, 125, 150, 200), 10, 5


def doublings(epochs: float) -> tuple[float, ...]:
    """When the size of clusters doubles in a training of so many epochs: NGAME's shares of the whole."""
    return tuple(epoch * epochs / EPOCHS for epoch in DOUBLED)


def cluster_size(epoch: float, starts: Sequence[float]) -> int:
    """Size of the clusters in an epoch: 1, doubled at each of the starts."""
    return 1 << sum(epoch >= start for start in starts)


def refreshes(epochs: float) -> tuple[int, ...]:
    """Epochs before which clusters are made anew: NGAME's, from a thirtieth of the whole every sixtieth.

    Clusters change between epochs only, so in a training of less than 60 epochs they are made anew before
    every one of them.
    """
    marks = (epoch * epochs / EPOCHS for epoch in range(FIRST, EPOCHS, EVERY))
    return tuple(sorted({math.ceil(mark) for mark in marks if math.ceil(mark) < epochs}))


class WithLabelPoints:
    """Points of another order, and behind them, for each, the label point of one of its labels (Label-MixUp).

    `rows_of_labels` has the row of each label's point, or -1. Who has no label, or one without a point, is
    followed by itself.
    """

    def __init__(self, order: Order, targets: csr_array, rows_of_labels: Ints) -> None:
        self.batch, self.steps, self.phases = order.batch, order.steps, order.phases
        self._order, self._targets, self._rows = order, targets, rows_of_labels

    def rows(self, step: int) -> Ints:
        """Points of one step."""  # shape: (2 B,)
        own = self._order.rows(step)
        start, count = self._targets.indptr[own], np.diff(self._targets.indptr)[own]
        drawn = np.random.default_rng([self._order.seed, step]).random(len(own))
        place = start + np.minimum(np.floor(drawn * count).astype(np.int64), np.maximum(count - 1, 0))
        label = self._targets.indices[np.minimum(place, self._targets.nnz - 1)]
        of_label = np.where(count > 0, self._rows[label], -1)
        return np.concatenate([own, np.where(of_label >= 0, of_label, own)])


class Clustered:
    """Points of every step: clusters in random order, the points of each shuffled, cut into batches.

    Until the first `refresh` there are no clusters, and this is `Order` with one phase. As there, a batch may
    begin in one epoch and end in the next.
    """

    def __init__(self, points: Ints, steps: int, batch: int, seed: int) -> None:
        self.points, self.steps, self.batch, self.seed = points, steps, batch, seed
        self.phases = (Phase(points, steps),)
        # First epoch of each and its clusters, the newest last; a checkpoint has to keep them.
        self.assignments: tuple[tuple[int, Ints], ...] = ()
        self._permutations: dict[int, Ints] = {}

    def refresh(self, assignment: Ints, epoch: int) -> None:
        """Take the cluster of each of the points, for this epoch and those after it."""  # shape: (N,)
        if assignment.shape != self.points.shape:
            raise DataError(f"{len(assignment):,} points are in clusters, but there are {len(self.points):,}")
        # Older clusters are met again only by a batch that begins in the epoch before.
        kept = [(start, old) for start, old in self.assignments if start < epoch]
        self.assignments = (*kept[-1:], (epoch, assignment))
        self._permutations = {}

    def untouched(self, step: int) -> int:
        """The first epoch of which no step before this one has met a point: the earliest to refresh for."""
        return -(-step * self._size // len(self.points))

    @property
    def _size(self) -> int:
        return min(self.batch, len(self.points))

    def rows(self, step: int) -> Ints:
        """Points of one step."""  # shape: (B,)
        if step >= self.steps:
            raise IndexError("the training is over")
        places = np.arange(step * self._size, (step + 1) * self._size)
        epochs, places = np.divmod(places, len(self.points))
        return np.concatenate(
            [self._permutation(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)]
        )

    def _permutation(self, epoch: int) -> Ints:
        if epoch not in self._permutations:
            # Two are enough, since a batch meets no more.
            self._permutations = dict([*self._permutations.items(), (epoch, self._permuted(epoch))][-2:])
        return self._permutations[epoch]

    def _permuted(self, epoch: int) -> Ints:
        generator = np.random.default_rng([self.seed, 0, epoch])
        shuffled = generator.permutation(len(self.points))
        in_force = [assignment for start, assignment in self.assignments if start <= epoch]
        if in_force:
            cluster = in_force[-1]
            rank = generator.permutation(int(cluster.max()) + 1)  # of each cluster in this epoch
            shuffled = shuffled[np.argsort(rank[cluster[shuffled]], kind="stable")]
        return self.points[shuffled]


@dataclass(frozen=True, eq=False)
class Draw:
    """Labels of a step, and two points of each."""

    labels: Ints  # shape: (B,), ascending, each once
    first: Ints  # shape: (B,)
    second: Ints  # shape: (B,), another point than the first wherever a label has two


class Drawn:
    """Labels of every step, drawn with a probability that grows with their frequency; two points of each.

    The power 0.45 is SiameseXML's. `batch` counts labels; labels without points are never drawn. That the two
    points differ where they can is ours.
    """

    def __init__(self, targets: csr_array, steps: int, batch: int, seed: int, power: float = 0.45) -> None:
        by_label = csr_array(targets.T)
        by_label.eliminate_zeros()
        self._points, self._start = by_label.indices, by_label.indptr.astype(np.int64)
        frequency = np.diff(self._start)
        self._labels = np.flatnonzero(frequency)  # those that can be drawn
        if not len(self._labels):
            raise DataError("no training point has a label, so there is nothing to learn")
        self._weight = (frequency[self._labels] ** power).astype(np.float32)
        self.steps, self.batch, self.seed = steps, min(batch, len(self._labels)), seed
        met = np.zeros(targets.shape[0], dtype=bool)
        met[self._points] = True
        self.phases = (Phase(np.flatnonzero(met), steps),)

    def rows(self, step: int) -> Ints:
        """First points of all labels of a step, then the second ones, in the order of its labels."""
        drawn = self.draw(step)  # shape: (2B,)
        return np.concatenate([drawn.first, drawn.second])

    def draw(self, step: int) -> Draw:
        """What a step meets."""
        if step >= self.steps:
            raise IndexError("the training is over")
        generator = np.random.default_rng([self.seed, step])
        # A race of exponential clocks: its first B are B draws one after the other, none put back.
        clock = generator.standard_exponential(len(self._labels), dtype=np.float32) / self._weight
        winners = np.argpartition(clock, self.batch - 1)[: self.batch]
        labels = self._labels[np.sort(winners)]
        start, count = self._start[labels], self._start[labels + 1] - self._start[labels]
        one, other = generator.random((2, self.batch))
        place = (one * count).astype(np.int64)
        further = (place + 1 + (other * (count - 1)).astype(np.int64)) % count
        first, second = (self._points[start + each].astype(np.int64) for each in (place, further))
        return Draw(labels, first, second)
