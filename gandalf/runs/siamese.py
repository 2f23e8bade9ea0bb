"""The siamese stage: which pairs it meets, by which loss, and how it mines hard negatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.recipe import Siamese as Options
from gandalf.train.batches import Order, Phase, PointOrder, sent
from gandalf.train.clusters import clusters
from gandalf.train.decoupled import NEITHER, DecoupledOptions, decoupled
from gandalf.train.labels import Chunk, Every, InBatch, Labels, Triples, in_batch
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
    targets: csr_array | None = None  # in place of the points' own


def siamese(
    options: Options,
    targets: csr_array,
    own: npt.NDArray[np.bool_],
    seed: int,
    alike: csr_array | None = None,
) -> Siamese:
    """Return the stage for these points: those marked `own` and with labels.

    Label points take part where the options say so, and by their targets of other labels alone: a label's
    text with that label is a pair of a text with itself, and teaches nothing. `alike` marks such pairs of any
    points, where a kind meets every label.
    """
    met = Met(options, targets, own, seed, alike)
    if not len(met.labelled):
        raise DataError("no training point has a label, so there is nothing to learn")
    return KINDS[options.kind](met)


@dataclass(frozen=True, eq=False)
class Met:
    """What a kind of siamese stage makes its parts of."""

    options: Options
    targets: csr_array  # N x L
    own: npt.NDArray[np.bool_]  # shape: (N,), True but for label points
    seed: int
    alike: csr_array | None = None  # N x L, pairs of a point and a label with one text

    @cached_property
    def labelled(self) -> Ints:
        """Places of training points with labels."""
        return np.flatnonzero(self.own & (np.diff(self.targets.indptr) > 0))


def _contrastive(met: Met) -> Siamese:
    options, kept = met.options, csr_array(met.targets, copy=True)
    kept.data[~np.repeat(met.own, np.diff(kept.indptr))] = 0
    kept.eliminate_zeros()
    drawable = int((np.bincount(kept.indices, minlength=kept.shape[1]) > 0).sum())
    batch = min(options.pair_batch, drawable)
    epoch = math.ceil(drawable / batch)
    order = Drawn(kept, max(1, round(options.pair_epochs * epoch)), batch, met.seed, options.power)
    return Siamese(order, DrawnLabels(order), contrastive, epoch)


def _triplet(met: Met) -> Siamese:
    options, labelled, seed = met.options, met.labelled, met.seed
    epoch = math.ceil(len(labelled) / options.pair_batch)
    order = Clustered(labelled, max(1, round(options.pair_epochs * epoch)), options.pair_batch, seed)
    cache = Cache(met.targets.shape[0])
    mining = Recluster(order, cache, options.pair_epochs, options.cluster_share, seed)
    wanted = TripletOptions(options.margin, options.negatives, options.temperature)
    return Siamese(order, InBatch(seed), partial(triplet, options=wanted), epoch, cache, [mining])


def _decoupled(met: Met) -> Siamese:
    options, targets = met.options, met.targets if met.alike is None else without(met.targets, met.alike)
    taking = met.own | options.label_points
    points = np.flatnonzero(taking & _has_pairs(targets))
    if not len(points):
        raise DataError("no training point has a label with another text, so there is nothing to learn")
    # Label points make an epoch no longer, so that runs with and without them take equal steps.
    epoch = math.ceil(len(met.labelled) / options.pair_batch)
    steps = max(1, round(options.pair_epochs * epoch))
    order = Order([Phase(points, steps)], options.pair_batch, met.seed)
    labels = Every(targets.shape[1], targets.shape[1])
    loss = partial(decoupled, options=DecoupledOptions(options.softmax_temperature))
    return Siamese(order, labels, loss, epoch, targets=targets)


def without(targets: csr_array, alike: csr_array) -> csr_array:
    """Return the targets with NEITHER at pairs of a point and a label with one text."""
    marked = csr_array(targets - targets.multiply(alike) + NEITHER * alike, dtype=np.float32)
    marked.sort_indices()
    return marked


def _has_pairs(targets: csr_array) -> npt.NDArray[np.bool_]:
    """Return which points have a positive target."""  # shape: (N,)
    return np.asarray((targets > 0).sum(axis=1)).ravel() > 0


def pairs_alike(tokens: npt.NDArray[np.int32], of_labels: npt.NDArray[np.int32]) -> csr_array:
    """Return the pairs of a point and a label that an encoder reads as one text."""  # shape: (N, L)
    width = max(tokens.shape[1], of_labels.shape[1])
    both = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in (tokens, of_labels)]
    _, text = np.unique(np.concatenate(both), axis=0, return_inverse=True)
    ones = np.ones(len(text), dtype=np.float32)
    texts = csr_array((ones, (np.arange(len(text)), text.ravel())))  # shape: (N + L, texts)
    return csr_array(texts[: len(tokens)] @ texts[len(tokens) :].T)


KINDS: dict[str, Callable[[Met], Siamese]] = {
    "contrastive": _contrastive,
    "triplet": _triplet,
    "decoupled": _decoupled,
}
