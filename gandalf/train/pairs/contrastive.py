"""SiameseXML's loss of pairs: labels are drawn first, and two points of each.

All of them take
  x          (P, dim)  unit vectors of points
  rows       (C, dim)  unit vectors of the batch's labels, each label once
  own        (B,)      the column of the label that each point was drawn with
  positives  (K,) each  place in x, column and target of every true pair in the batch: none is a negative here
  weights    (P,)      what each point counts; None: all count 1
and return one number, summed over points, or over labels where these are drawn first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.train.labels import Chunk, Triples, in_batch
from gandalf.train.orders import Drawn
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
    """P(point | label) = c exp(d (cosine - 1)), negatives data, and the share of centroids of two points."""

    c: float = 0.9
    d: float = 1.5
    hardest: int = 1
    centroid: float = 0.3


SIAMESEXML = ContrastiveOptions()


def contrastive(
    x: Tensor,
    rows: Tensor,
    own: Tensor,
    positives: Positives,
    weights: Tensor | None = None,
    options: ContrastiveOptions = SIAMESEXML,
) -> Tensor:
    """SiameseXML's loss, 0.7 L(label, points) + 0.3 L(label, centroids of two points), summed over labels.

    `x` holds two points of each drawn label: the first of all, then the second of all (P = 2B), and `weights`
    likewise. A label meets the first points of all labels, then the centroids, which are the normalised sums
    of both points. L is the negative log likelihood of P = c exp(d (s - 1)): -log P of every true pair in the
    batch, -log (1 - P) of the hardest others, which are points. Constants, shares and the one negative are
    SiameseXML's. Ours, where its release is not known to us: true pairs are summed, not averaged; a centroid
    is true of a label if both points are, and a negative if neither is; a label counts as its points do.
    """
    number = len(own)
    true = true_pairs((len(x), len(rows)), own.repeat(2), positives)[:, own].T  # shape: (B, P)
    first, second = true[:, :number], true[:, number:]
    labels, centroids = rows[own], F.normalize(x[:number] + x[number:], dim=1)
    of_points = _log_loss(labels @ x[:number].T, first, first, options)
    of_centroids = _log_loss(labels @ centroids.T, first & second, first | second, options)
    per_label = (1 - options.centroid) * of_points + options.centroid * of_centroids
    return weighted_sum(per_label, None if weights is None else weights.view(2, number).mean(dim=0))


def _log_loss(scores: Tensor, true: Tensor, barred: Tensor, options: ContrastiveOptions) -> Tensor:
    """Negative log likelihood of all true pairs, and of the hardest that are not barred."""  # (B, C) -> (B,)
    likely = (options.d * (1 - scores) - math.log(options.c)).masked_fill(~true, 0.0)
    # Where there is no negative, exp(-inf) = 0 and the logarithm of 1 adds nothing.
    negative = hardest_negatives(scores, barred, options.hardest)
    unlikely = -torch.log1p(-options.c * torch.exp(options.d * (negative - 1)))
    return likely.sum(dim=1) + unlikely.sum(dim=1)


class DrawnLabels:
    """The labels that the order has drawn for a step."""

    def __init__(self, order: Drawn) -> None:
        self.order = order

    def chunks(self, rows: Ints, triples: Triples, step: int) -> list[Chunk]:
        """One chunk, of these labels."""
        return [in_batch(self.order.draw(step).labels, triples)]


def _contrastive(data: PairData) -> PairStage:
    options, kept = data.options, csr_array(data.targets, copy=True)
    kept.data[~np.repeat(data.own, np.diff(kept.indptr))] = 0
    kept.eliminate_zeros()
    drawable = int((np.bincount(kept.indices, minlength=kept.shape[1]) > 0).sum())
    batch = min(options.pair_batch, drawable)
    epoch = math.ceil(drawable / batch)
    order = Drawn(kept, max(1, round(options.pair_epochs * epoch)), batch, data.seed, options.power)
    return PairStage(order, DrawnLabels(order), contrastive, epoch)


KIND = PairKind(_contrastive, texts=lambda batch, labels: 3 * batch, draws_labels=True)
