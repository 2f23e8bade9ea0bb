"""Choose the points of each step, as a pure function of seed and step.

Points come in random order, near points together (NGAME), labels first (SiameseXML), or with label points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError

Ints = npt.NDArray[np.int64]

# NGAME's training: all epochs, the epochs at which clusters double, the first clusters and their interval.
EPOCHS, DOUBLED, FIRST, EVERY = 300, (10, 20, 25, 50, 75, 100, 125, 150, 200), 10, 5


@dataclass(frozen=True, eq=False)
class Phase:
    """A stretch of training that draws its batches from these points."""

    points: Ints
    steps: int


class PointOrder(Protocol):
    """The points of each step: a pure function of the step, except for what a hook refreshes."""

    batch: int  # points, or labels if labels are drawn first
    steps: int

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Stretches of training and the points of each."""
        ...

    def rows(self, step: int) -> Ints:
        """Return the points of one step."""  # shape: (B,)
        ...


class Order:
    """Points in random order: permutation after permutation, cut into batches; phase after phase."""

    def __init__(self, phases: Sequence[Phase], batch: int, seed: int) -> None:
        self.phases, self.batch, self.seed = tuple(phases), batch, seed
        self.steps = sum(phase.steps for phase in phases)
        self._permutation = lru_cache(maxsize=2)(self._permute)  # a batch may straddle two

    def rows(self, step: int) -> Ints:
        """Return the points of one step."""  # shape: (B,)
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                permutation = partial(self._permutation, number)
                return _cut_batch(permutation, step, self.batch, len(phase.points))
            step -= phase.steps
        raise IndexError("the training is over")

    def _permute(self, number: int, epoch: int) -> Ints:
        generator = np.random.default_rng([self.seed, number, epoch])
        return generator.permutation(self.phases[number].points)


def _cut_batch(permutation: Callable[[int], Ints], step: int, batch: int, size: int) -> Ints:
    """Return the points of a step, which may begin in one epoch's permutation and end in the next."""
    batch = min(batch, size)
    epochs, places = np.divmod(np.arange(step * batch, (step + 1) * batch), size)
    return np.concatenate([permutation(int(epoch))[places[epochs == epoch]] for epoch in np.unique(epochs)])


class WithLabelPoints:
    """Points of another order, followed by a label point of each (Label-MixUp).

    The label point is that of a random label of the point. A point without labels, or whose label has no
    label point, is followed by itself. `rows_of_labels` has the row of each label's point, or -1.
    """

    def __init__(self, order: Order, targets: csr_array, rows_of_labels: Ints) -> None:
        self.batch, self.steps, self.phases = order.batch, order.steps, order.phases
        self._order, self._targets, self._rows_of_labels = order, targets, rows_of_labels

    def rows(self, step: int) -> Ints:
        """Return the points of one step, then their label points."""  # shape: (2B,)
        points = self._order.rows(step)
        start, count = self._targets.indptr[points], np.diff(self._targets.indptr)[points]
        drawn = np.random.default_rng([self._order.seed, step]).random(len(points))
        place = start + np.minimum(np.floor(drawn * count).astype(np.int64), np.maximum(count - 1, 0))
        label = self._targets.indices[np.minimum(place, self._targets.nnz - 1)]
        label_points = np.where(count > 0, self._rows_of_labels[label], -1)
        return np.concatenate([points, np.where(label_points >= 0, label_points, points)])


def doubling_epochs(epochs: float) -> tuple[float, ...]:
    """Return when clusters double in a training of so many epochs, at NGAME's shares of the whole."""
    return tuple(epoch * epochs / EPOCHS for epoch in DOUBLED)


def cluster_size(epoch: float, doublings: Sequence[float]) -> int:
    """Return the size of clusters in an epoch: 1, doubled at each of the given epochs."""
    return 1 << sum(epoch >= start for start in doublings)


def refresh_epochs(epochs: float) -> tuple[int, ...]:
    """Return the epochs before which clusters are made: as in NGAME, every sixtieth of the training.

    Clusters change between epochs only, so a training of less than 60 epochs makes them before every epoch.
    """
    marks = (epoch * epochs / EPOCHS for epoch in range(FIRST, EPOCHS, EVERY))
    return tuple(sorted({math.ceil(mark) for mark in marks if math.ceil(mark) < epochs}))


class ClusteredOrder:
    """Points in clusters: clusters in random order, the points of each shuffled, cut into batches.

    Until the first `refresh` there are no clusters, and the order is that of an `Order` with one phase.
    """

    def __init__(self, points: Ints, steps: int, batch: int, seed: int) -> None:
        self.points, self.steps, self.batch, self.seed = points, steps, batch, seed
        self.phases = (Phase(points, steps),)
        # Pairs of an epoch and the clusters from then on, the newest last; a checkpoint keeps them.
        self.assignments: tuple[tuple[int, Ints], ...] = ()
        self._permutation = lru_cache(maxsize=2)(self._permute)  # a batch may straddle two

    def refresh(self, assignment: Ints, epoch: int) -> None:
        """Take the cluster of each point, for this epoch and later ones."""  # shape: (N,)
        if assignment.shape != self.points.shape:
            raise DataError(f"{len(assignment):,} points are in clusters, but there are {len(self.points):,}")
        # Only a batch that begins in the epoch before meets older clusters.
        older = [(start, old) for start, old in self.assignments if start < epoch]
        self.assignments = (*older[-1:], (epoch, assignment))
        self._permutation.cache_clear()

    def first_unmet_epoch(self, step: int) -> int:
        """Return the first epoch that no step before this one has met: the earliest to refresh for."""
        return -(-step * min(self.batch, len(self.points)) // len(self.points))

    def rows(self, step: int) -> Ints:
        """Return the points of one step."""  # shape: (B,)
        if step >= self.steps:
            raise IndexError("the training is over")
        return _cut_batch(self._permutation, step, self.batch, len(self.points))

    def _permute(self, epoch: int) -> Ints:
        generator = np.random.default_rng([self.seed, 0, epoch])
        shuffled = generator.permutation(len(self.points))
        in_force = [assignment for start, assignment in self.assignments if start <= epoch]
        if in_force:
            cluster = in_force[-1]
            rank = generator.permutation(int(cluster.max()) + 1)  # of each cluster in this epoch
            shuffled = shuffled[np.argsort(rank[cluster[shuffled]], kind="stable")]
        return self.points[shuffled]


@dataclass(frozen=True, eq=False)
class LabelDraw:
    """Labels of a step, and two points of each."""

    labels: Ints  # shape: (B,), ascending, without repetitions
    first: Ints  # shape: (B,)
    second: Ints  # shape: (B,), differs from the first if the label has two points


class LabelFirstOrder:
    """Labels drawn with a probability that grows with their frequency, then two points of each label.

    The power 0.45 is SiameseXML's. That the two points differ if possible is our choice. `batch` counts
    labels; labels without points are never drawn.
    """

    def __init__(self, targets: csr_array, steps: int, batch: int, seed: int, power: float = 0.45) -> None:
        by_label = csr_array(targets.T)
        by_label.eliminate_zeros()
        self._points, self._start = by_label.indices, by_label.indptr.astype(np.int64)
        frequency = np.diff(self._start)
        self._labels = np.flatnonzero(frequency)  # that can be drawn
        if not len(self._labels):
            raise DataError("no training point has a label, so there is nothing to learn")
        self._weight = (frequency[self._labels] ** power).astype(np.float32)
        self.steps, self.batch, self.seed = steps, min(batch, len(self._labels)), seed
        met = np.zeros(targets.shape[0], dtype=bool)
        met[self._points] = True
        self.phases = (Phase(np.flatnonzero(met), steps),)

    def rows(self, step: int) -> Ints:
        """Return the first points of all labels of a step, then the second points."""  # shape: (2B,)
        drawn = self.draw(step)
        return np.concatenate([drawn.first, drawn.second])

    def draw(self, step: int) -> LabelDraw:
        """Draw the labels of a step and two points of each."""
        if step >= self.steps:
            raise IndexError("the training is over")
        generator = np.random.default_rng([self.seed, step])
        # Exponential clocks: the first B to ring are B draws one after the other, without replacement.
        clock = generator.standard_exponential(len(self._labels), dtype=np.float32) / self._weight
        winners = np.argpartition(clock, self.batch - 1)[: self.batch]
        labels = self._labels[np.sort(winners)]
        start, count = self._start[labels], self._start[labels + 1] - self._start[labels]
        one, other = generator.random((2, self.batch))
        place = (one * count).astype(np.int64)
        further = (place + 1 + (other * (count - 1)).astype(np.int64)) % count
        first, second = (self._points[start + each].astype(np.int64) for each in (place, further))
        return LabelDraw(labels, first, second)
