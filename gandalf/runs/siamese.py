"""The siamese stage: which pairs it meets, by which loss, and how it mines hard negatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.recipe import Siamese as Options
from gandalf.train.batches import PointOrder, sent
from gandalf.train.clusters import clusters
from gandalf.train.labels import Chunk, InBatch, Labels, Triples, in_batch
from gandalf.train.loop import Hook, Training
from gandalf.train.orders import Clustered, Drawn, cluster_size, doublings, refreshes
from gandalf.train.pair_losses import PairLoss, TripletOptions, contrastive, triplet

Ints = npt.NDArray[np.int64]


class Cache:
    """The vectors that points had when they were last trained on: no pass of its own is needed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.vectors: Tensor | None = None  # shape: (N, dim)

    def __call__(self, rows: Ints, x: Tensor) -> None:
        """Remember the vectors of these points."""
        if self.vectors is None:
            self.vectors = torch.zeros(self.number, x.shape[1], dtype=torch.float16)
        self.vectors = self.vectors.to(x.device)  # the first time, or after a checkpoint was read
        self.vectors[sent(rows, x.device)] = x.half()


class Recluster:
    """Hook that puts near points into the same batches, by the vectors they had when last met."""

    def __init__(self, order: Clustered, cache: Cache, epochs: float, share: float, seed: int) -> None:
        self.order, self.cache, self.seed = order, cache, seed
        # Below 1, a batch holds several clusters, and so negatives from near and far.
        self.largest = max(1, int(share * min(order.batch, len(order.points))))
        self.starts, self.at = doublings(epochs), frozenset(refreshes(epochs))
        self.steps = max(1, math.ceil(len(order.points) / order.batch))

    def every(self, training: Training) -> int:
        """As long as an epoch."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make clusters for the next epoch, where it is one of those that want new ones."""
        epoch = self.order.untouched(training.step)
        if epoch in self.at and self.cache.vectors is not None and training.step < training.steps:
            size = min(cluster_size(epoch, self.starts), self.largest)
            own = torch.from_numpy(self.order.points)
            vectors = self.cache.vectors[own.to(self.cache.vectors.device)].float()
            # Made once: on other hardware a near tie could fall the other way.
            found = training.ranks.on_first(lambda: clusters(vectors, size, self.seed + epoch))
            self.order.refresh(found, epoch)
        return False


class DrawnLabels:
    """The labels that the order has drawn for a step."""

    def __init__(self, order: Drawn) -> None:
        self.order = order

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """One chunk, of these labels."""
        return [in_batch(self.order.draw(step).labels, triples)]


@dataclass(frozen=True, eq=False)
class Siamese:
    """A siamese stage in its parts."""

    order: PointOrder
    labels: Labels
    loss: PairLoss
    epoch: int  # updates
    seen: Cache | None = None
    refreshing: list[Hook] = field(default_factory=list)


def siamese(options: Options, targets: csr_array, own: npt.NDArray[np.bool_], seed: int) -> Siamese:
    """The stage for these points: those marked `own` and with labels. Label texts are no points of it.

    A label's text with that label would be a pair of a text with itself, and teach nothing.
    """
    labelled = np.flatnonzero(own & (np.diff(targets.indptr) > 0))
    if not len(labelled):
        raise DataError("no training point has a label, so there is nothing to learn")
    return KINDS[options.kind](options, targets, labelled, seed)


def _contrastive(options: Options, targets: csr_array, labelled: Ints, seed: int) -> Siamese:
    kept = csr_array(targets, copy=True)
    met = np.zeros(targets.shape[0], dtype=bool)
    met[labelled] = True
    kept.data[~np.repeat(met, np.diff(kept.indptr))] = 0
    kept.eliminate_zeros()
    drawable = int((np.bincount(kept.indices, minlength=kept.shape[1]) > 0).sum())
    batch = min(options.pair_batch, drawable)
    epoch = math.ceil(drawable / batch)
    order = Drawn(kept, max(1, round(options.pair_epochs * epoch)), batch, seed, options.power)
    return Siamese(order, DrawnLabels(order), contrastive, epoch)


def _triplet(options: Options, targets: csr_array, labelled: Ints, seed: int) -> Siamese:
    epoch = math.ceil(len(labelled) / options.pair_batch)
    order = Clustered(labelled, max(1, round(options.pair_epochs * epoch)), options.pair_batch, seed)
    cache = Cache(targets.shape[0])
    mining = Recluster(order, cache, options.pair_epochs, options.cluster_share, seed)
    wanted = TripletOptions(options.margin, options.negatives, options.temperature)
    return Siamese(order, InBatch(seed), partial(triplet, options=wanted), epoch, cache, [mining])


KINDS: dict[str, Callable[[Options, csr_array, Ints, int], Siamese]] = {
    "contrastive": _contrastive,
    "triplet": _triplet,
}
