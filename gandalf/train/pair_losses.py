"""Losses of pairs within a batch, as plain functions of unit vectors that autograd can follow.

All of them take
  x          (P, dim)  unit vectors of points
  rows       (C, dim)  unit vectors of the batch's labels, each label once
  own        (B,)      the column of the label that each point was drawn with
  positives  two (K,)  place in x and column of every true pair in the batch: none of them is a negative
  weights    (P,)      what each point counts; None: all count 1
and return one number, summed over points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Pairs = tuple[Tensor, Tensor]  # place among the points, column; shape of both: (K,)


class PairLoss(Protocol):
    """Sum over points of a loss of pairs within the batch."""

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
    """P(label | point) = c exp(d (cosine - 1)), negatives met, and the share of second points."""

    c: float = 0.9
    d: float = 1.5
    hardest: int = 1
    second: float = 0.3


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

    The average is weighted by a softmax of s(negative) / temperature over those negatives, whether they
    violate the margin or not. The weights are constants: no gradient flows through them, or it would pay to
    shift weight instead of vectors. That, and the softmax of plain similarities, is our reading of NGAME;
    margin, number and temperature are its own. A point without negatives adds nothing.
    """
    scores = x @ rows.T  # shape: (B, C)
    positive = scores.gather(1, own[:, None])  # shape: (B, 1)
    true = _true(scores.shape, own, positives)
    negative = _hardest(scores, true, options.hardest)  # shape: (B, h), -inf where there is none
    # A row of -inf has no softmax; its hinges are 0 whatever they are weighted with.
    share = torch.softmax(negative.detach() / options.temperature, dim=1).nan_to_num(0.0)
    per_point = (share * F.relu(options.margin - positive + negative)).sum(dim=1)
    return _total(per_point, weights)


def contrastive(
    x: Tensor,
    rows: Tensor,
    own: Tensor,
    positives: Pairs,
    weights: Tensor | None = None,
    options: ContrastiveOptions = SIAMESEXML,
) -> Tensor:
    """SiameseXML's loss, 0.7 L(point, label) + 0.3 L(normalised (second point + label), label).

    `x` holds two points of each label: the first of all, then the second of all (P = 2B), and `weights`
    likewise. L is the negative log likelihood of P = c exp(d (s - 1)): -log P of the positive, -log (1 - P)
    of the hardest negatives. Constants, shares and the one negative are SiameseXML's. Ours: the hardest
    negative is a label, looked for by each point; for the second term, the true labels of the second point
    are no negatives.
    """
    number = len(own)
    true = _true((len(x), len(rows)), own.repeat(2), positives)
    terms = (
        (1 - options.second, x[:number], true[:number]),
        (options.second, F.normalize(x[number:] + rows[own], dim=1), true[number:]),
    )
    parts = (None, None) if weights is None else (weights[:number], weights[number:])
    losses = [
        share * _total(_log_loss(anchors @ rows.T, own, pairs, options), part)
        for (share, anchors, pairs), part in zip(terms, parts, strict=True)
    ]
    return losses[0] + losses[1]


def _log_loss(scores: Tensor, own: Tensor, true: Tensor, options: ContrastiveOptions) -> Tensor:
    """Negative log likelihood of the positive and the hardest negatives."""  # (B, C) -> (B,)
    positive = scores.gather(1, own[:, None]).squeeze(1)
    negative = _hardest(scores, true, options.hardest)
    # Where there is no negative, exp(-inf) = 0 and the logarithm of 1 adds nothing.
    unlikely = -torch.log1p(-options.c * torch.exp(options.d * (negative - 1)))
    return options.d * (1 - positive) - math.log(options.c) + unlikely.sum(dim=1)


def _true(shape: tuple[int, ...], own: Tensor, positives: Pairs) -> Tensor:
    """Which pairs of points and labels are true."""  # shape: (P, C)
    true = torch.zeros(shape, dtype=torch.bool, device=own.device)
    true[positives] = True
    return true.scatter_(1, own[:, None], True)


def _hardest(scores: Tensor, true: Tensor, number: int) -> Tensor:
    """The highest scores of each point that are no true pair, -inf where there are fewer."""  # shape: (B, h)
    masked = scores.masked_fill(true, -torch.inf)
    return masked.topk(min(number, scores.shape[1]), dim=1).values


def _total(per_point: Tensor, weights: Tensor | None) -> Tensor:
    return torch.sum(per_point if weights is None else weights * per_point)
