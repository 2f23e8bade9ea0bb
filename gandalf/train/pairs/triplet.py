"""Define NGAME's loss of pairs: triplets, in batches of near points, clustered from time to time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from gandalf.train.clusters import clusters
from gandalf.train.labels import InBatch
from gandalf.train.orders import ClusteredOrder, cluster_size, doubling_epochs, refresh_epochs
from gandalf.train.pairs.kind import (
    PairData,
    PairKind,
    PairStage,
    Positives,
    VectorCache,
    hardest_negatives,
    true_pairs,
    weighted_sum,
)

if TYPE_CHECKING:
    from gandalf.train.loop import Training


@dataclass(frozen=True)
class TripletOptions:
    """Margin between positive and negatives, number of negatives, and temperature of their weights."""

    margin: float = 0.3
    hardest: int = 10
    temperature: float = 0.1


NGAME = TripletOptions()


def triplet(
    x: Tensor,
    rows: Tensor,
    drawn: Tensor,
    positives: Positives,
    weights: Tensor | None = None,
    options: TripletOptions = NGAME,
) -> Tensor:
    """Return NGAME's loss: the hinge margin - s(positive) + s(negative), averaged over the hardest negatives.

    The average is weighted by a softmax of s(negative) / temperature over these negatives, with 0 in place of
    s(negative) if it does not violate the margin. The gradient also flows through the weights, as in one
    released version. Margin, number and temperature are NGAME's. A point without negatives adds nothing.
    """
    scores = x @ rows.T  # shape: (B, C)
    positive = scores.gather(1, drawn[:, None])  # shape: (B, 1)
    true = true_pairs(scores.shape, drawn, positives)
    negative = hardest_negatives(scores, true, options.hardest)  # shape: (B, h), padded with -inf
    hinge = F.relu(options.margin - positive + negative)
    logits = negative.masked_fill(hinge == 0, 0.0) / options.temperature
    # Not -inf, because a row of only -inf has no softmax; its hinges are 0 anyway.
    logits = logits.masked_fill(negative.isneginf(), torch.finfo(logits.dtype).min)
    return weighted_sum((torch.softmax(logits, dim=1) * hinge).sum(dim=1), weights)


class Recluster:
    """Hook that puts near points into the same batches, by their vectors in the cache."""

    def __init__(
        self, order: ClusteredOrder, cache: VectorCache, epochs: float, share: float, seed: int
    ) -> None:
        self.order, self.cache, self.seed = order, cache, seed
        # With a share below 1 a batch holds several clusters, so it has near and far negatives.
        self.largest = max(1, int(share * min(order.batch, len(order.points))))
        self.doublings, self.epochs = doubling_epochs(epochs), frozenset(refresh_epochs(epochs))
        self.steps = max(1, math.ceil(len(order.points) / order.batch))

    def every(self, training: Training) -> int:
        """Return the number of steps of an epoch."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make clusters for the next epoch if it begins with new clusters; never end the training."""
        epoch = self.order.first_unmet_epoch(training.step)
        if epoch in self.epochs and self.cache.vectors is not None and training.step < training.steps:
            size = min(cluster_size(epoch, self.doublings), self.largest)
            points = torch.from_numpy(self.order.points)
            vectors = self.cache.vectors[points.to(self.cache.vectors.device)].float()
            # On one rank only, because near ties could differ between machines.
            assignment = training.ranks.on_first(lambda: clusters(vectors, size, self.seed + epoch))
            self.order.refresh(assignment, epoch)
        return False


def _build_triplet(data: PairData) -> PairStage:
    options, labelled, seed = data.options, data.labelled, data.seed
    epoch = math.ceil(len(labelled) / options.pair_batch)
    order = ClusteredOrder(labelled, max(1, round(options.pair_epochs * epoch)), options.pair_batch, seed)
    cache = VectorCache(data.targets.shape[0])
    recluster = Recluster(order, cache, options.pair_epochs, options.cluster_share, seed)
    loss_options = TripletOptions(options.margin, options.negatives, options.temperature)
    return PairStage(order, InBatch(seed), partial(triplet, options=loss_options), epoch, cache, [recluster])


KIND = PairKind(_build_triplet)
