"""Define SiameseXML's loss of pairs: labels are drawn first, then two points of each.

All losses of pairs take
  x          (P, dim)   unit vectors of points
  rows       (C, dim)   unit vectors of the batch's labels, each label once
  drawn      (B,)       column of the label that each point was drawn with
  positives  (K,) each  place in x, column and target of every true pair, which is not a negative
  weights    (P,)       weights of the points; None: each point counts 1
and return one number, summed over points, or over labels if labels are drawn first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.train.labels import Chunk, Triples, chunk_of_drawn
from gandalf.train.orders import LabelFirstOrder
from gandalf.train.pairs.kind import (
    Ints,
    PairData,
    PairKind,
    PairStage,
    Positives,
    hardest_negatives,
    true_pairs,
    weighted_sum,
)


@dataclass(frozen=True)
class ContrastiveOptions:
    """P(point | label) = c exp(d (cosine - 1)), the number of negatives, and the share of the centroids."""

    c: float = 0.9
    d: float = 1.5
    hardest: int = 1
    centroid: float = 0.3


SIAMESEXML = ContrastiveOptions()


def contrastive(
    x: Tensor,
    rows: Tensor,
    drawn: Tensor,
    positives: Positives,
    weights: Tensor | None = None,
    options: ContrastiveOptions = SIAMESEXML,
) -> Tensor:
    """Return SiameseXML's loss, 0.7 L(label, points) + 0.3 L(label, centroids of two points).

    `x` and `weights` hold two points of each drawn label: all first points, then all second points (P = 2B).
    A label meets all first points, and the centroids: the normalised sums of the two points of each label. L
    is the negative log likelihood of P = c exp(d (s - 1)): -log P of every true pair in the batch, and -log
    (1 - P) of the hardest other points. Constants, shares and the one negative are SiameseXML's. Three
    choices are ours, because we do not know its release: true pairs are summed, not averaged; a centroid is
    true of a label if both points are, and a negative if neither is; a label has the mean weight of its
    points.
    """
    number = len(drawn)
    true = true_pairs((len(x), len(rows)), drawn.repeat(2), positives)[:, drawn].T  # shape: (B, P)
    first, second = true[:, :number], true[:, number:]
    labels, centroids = rows[drawn], F.normalize(x[:number] + x[number:], dim=1)
    of_points = _log_loss(labels @ x[:number].T, first, first, options)
    of_centroids = _log_loss(labels @ centroids.T, first & second, first | second, options)
    per_label = (1 - options.centroid) * of_points + options.centroid * of_centroids
    return weighted_sum(per_label, None if weights is None else weights.view(2, number).mean(dim=0))


def _log_loss(scores: Tensor, true: Tensor, barred: Tensor, options: ContrastiveOptions) -> Tensor:
    """Return -log P of true pairs, plus -log (1 - P) of the hardest pairs that are not barred."""
    # shape: (B, C) -> (B,)
    likely = (options.d * (1 - scores) - math.log(options.c)).masked_fill(~true, 0.0)
    # Without a negative, exp(-inf) = 0 and log 1 adds nothing.
    negative = hardest_negatives(scores, barred, options.hardest)
    unlikely = -torch.log1p(-options.c * torch.exp(options.d * (negative - 1)))
    return likely.sum(dim=1) + unlikely.sum(dim=1)


class DrawnLabels:
    """Choice of the labels that the order draws for a step."""

    def __init__(self, order: LabelFirstOrder) -> None:
        self.order = order

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """Return the drawn labels as one chunk."""
        return [chunk_of_drawn(self.order.draw(step).labels, triples)]


def _build_contrastive(data: PairData) -> PairStage:
    options, targets = data.options, csr_array(data.targets, copy=True)
    targets.data[~np.repeat(data.is_point, np.diff(targets.indptr))] = 0
    targets.eliminate_zeros()
    drawable = int((np.bincount(targets.indices, minlength=targets.shape[1]) > 0).sum())
    batch = min(options.pair_batch, drawable)
    epoch = math.ceil(drawable / batch)
    order = LabelFirstOrder(
        targets, max(1, round(options.pair_epochs * epoch)), batch, data.seed, options.power
    )
    return PairStage(order, DrawnLabels(order), contrastive, epoch)


KIND = PairKind(_build_contrastive, texts=lambda batch, labels: 3 * batch, draws_labels=True)
