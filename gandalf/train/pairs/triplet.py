"""NGAME's loss of pairs: triplets, in batches of near points that are clustered from time to time."""

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
from gandalf.train.orders import Clustered, cluster_size, doublings, refreshes
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
    """Margin by which a positive should lead, negatives data, and how sharply the hardest of them count."""

    margin: float = 0.3
    hardest: int = 10
    temperature: float = 0.1


NGAME = TripletOptions()


def triplet(
    x: Tensor,
    rows: Tensor,
    own: Tensor,
    positives: Positives,
    weights: Tensor | None = None,
    options: TripletOptions = NGAME,
) -> Tensor:
    """NGAME's loss: the hinge margin - s(positive) + s(negative), averaged over the hardest negatives.

    The average is weighted by a softmax of s(negative) / temperature over those negatives, where 0 stands for
    s(negative) if that does not violate the margin. The gradient flows through the weights, too. So has one
    released version; margin, number and temperature are NGAME's own. A point without negatives adds nothing.
    """
    scores = x @ rows.T  # shape: (B, C)
    positive = scores.gather(1, own[:, None])  # shape: (B, 1)
    true = true_pairs(scores.shape, own, positives)
    negative = hardest_negatives(scores, true, options.hardest)  # shape: (B, h), -inf where there is none
    hinge = F.relu(options.margin - positive + negative)
    logits = negative.masked_fill(hinge == 0, 0.0) / options.temperature
    # Not -inf: a row of nothing else has no softmax. So it has one, over hinges that are 0.
    logits = logits.masked_fill(negative.isneginf(), torch.finfo(logits.dtype).min)
    return weighted_sum((torch.softmax(logits, dim=1) * hinge).sum(dim=1), weights)


class Recluster:
    """Hook that puts near points into the same batches, by the vectors they had when last data."""

    def __init__(self, order: Clustered, cache: VectorCache, epochs: float, share: float, seed: int) -> None:
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


def _triplet(data: PairData) -> PairStage:
    options, labelled, seed = data.options, data.labelled, data.seed
    epoch = math.ceil(len(labelled) / options.pair_batch)
    order = Clustered(labelled, max(1, round(options.pair_epochs * epoch)), options.pair_batch, seed)
    cache = VectorCache(data.targets.shape[0])
    mining = Recluster(order, cache, options.pair_epochs, options.cluster_share, seed)
    wanted = TripletOptions(options.margin, options.negatives, options.temperature)
    return PairStage(order, InBatch(seed), partial(triplet, options=wanted), epoch, cache, [mining])


KIND = PairKind(_triplet)
