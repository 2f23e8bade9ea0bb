"""Losses of pairs within a batch, as plain functions of unit vectors that autograd can follow.

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
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Pairs = tuple[Tensor, ...]  # place among the points, column, and the target where a loss reads it; each (K,)


class PairLoss(Protocol):
    """Sum of a loss of pairs within the batch."""

    def __call__(
        self, x: Tensor, rows: Tensor, own: Tensor, positives: Pairs, weights: Tensor | None = None
    ) -> Tensor:
        """The loss, a scalar that has a gradient."""
        ...


@dataclass(frozen=True)
class TripletOptions:
    """Margin by which a positive should lead, negatives met, and how sharply the hardest of them count."""

    margin: float = 0.3
    hardest: int = 10
    temperature: float = 0.1


@dataclass(frozen=True)
class ContrastiveOptions:
    """P(point | label) = c exp(d (cosine - 1)), negatives met, and the share of centroids of two points."""

    c: float = 0.9
    d: float = 1.5
    hardest: int = 1
    centroid: float = 0.3


NGAME = TripletOptions()
SIAMESEXML = ContrastiveOptions()


def triplet(
    x: Tensor,
    rows: Tensor,
    own: Tensor,
    positives: Pairs,
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
    true = _true(scores.shape, own, positives)
    negative = _hardest(scores, true, options.hardest)  # shape: (B, h), -inf where there is none
    hinge = F.relu(options.margin - positive + negative)
    logits = negative.masked_fill(hinge == 0, 0.0) / options.temperature
    # Not -inf: a row of nothing else has no softmax. So it has one, over hinges that are 0.
    logits = logits.masked_fill(negative.isneginf(), torch.finfo(logits.dtype).min)
    return _total((torch.softmax(logits, dim=1) * hinge).sum(dim=1), weights)


def contrastive(
    x: Tensor,
    rows: Tensor,
    own: Tensor,
    positives: Pairs,
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
    true = _true((len(x), len(rows)), own.repeat(2), positives)[:, own].T  # shape: (B, P)
    first, second = true[:, :number], true[:, number:]
    labels, centroids = rows[own], F.normalize(x[:number] + x[number:], dim=1)
    of_points = _log_loss(labels @ x[:number].T, first, first, options)
    of_centroids = _log_loss(labels @ centroids.T, first & second, first | second, options)
    per_label = (1 - options.centroid) * of_points + options.centroid * of_centroids
    return _total(per_label, None if weights is None else weights.view(2, number).mean(dim=0))


def _log_loss(scores: Tensor, true: Tensor, barred: Tensor, options: ContrastiveOptions) -> Tensor:
    """Negative log likelihood of all true pairs, and of the hardest that are not barred."""  # (B, C) -> (B,)
    likely = (options.d * (1 - scores) - math.log(options.c)).masked_fill(~true, 0.0)
    # Where there is no negative, exp(-inf) = 0 and the logarithm of 1 adds nothing.
    negative = _hardest(scores, barred, options.hardest)
    unlikely = -torch.log1p(-options.c * torch.exp(options.d * (negative - 1)))
    return likely.sum(dim=1) + unlikely.sum(dim=1)


def _true(shape: tuple[int, ...], own: Tensor, positives: Pairs) -> Tensor:
    """Which pairs of points and labels are true."""  # shape: (P, C)
    true = torch.zeros(shape, dtype=torch.bool, device=own.device)
    true[positives[0], positives[1]] = True
    return true.scatter_(1, own[:, None], True)


def _hardest(scores: Tensor, true: Tensor, number: int) -> Tensor:
    """The highest scores of each row that are no true pair, -inf where there are fewer."""  # shape: (B, h)
    masked = scores.masked_fill(true, -torch.inf)
    return masked.topk(min(number, scores.shape[1]), dim=1).values


def _total(per_point: Tensor, weights: Tensor | None) -> Tensor:
    return torch.sum(per_point if weights is None else weights * per_point)
