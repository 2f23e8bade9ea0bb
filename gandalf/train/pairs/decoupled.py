"""Define DEXML's loss of pairs: a softmax over all labels in which true labels do not compete.

A label with a hard target is a positive, compared with all negatives and no other positive. A label with a
soft target v is a positive with weight v and a negative with weight 1 - v. This soft form is ours; with
targets of 0 and 1 it is DEXML's. The loss is summed over points and their positives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.train.labels import Every
from gandalf.train.orders import Order, Phase
from gandalf.train.pairs.kind import PairData, PairKind, PairStage, Positives

NEITHER = -1.0  # replaces a target if the label is neither a positive nor a negative of the point


@dataclass(frozen=True)
class DecoupledOptions:
    """DEXML's temperature of cosines, and the most scores in memory at once."""

    temperature: float = 0.05
    scores: int = 1 << 25


DEXML = DecoupledOptions()


def decoupled(
    x: Tensor,
    rows: Tensor,
    drawn: Tensor,
    positives: Positives,
    weights: Tensor | None = None,
    options: DecoupledOptions = DEXML,
) -> Tensor:
    """Return sum v (log(exp(s) v + N) - s) over all positives, for scores s = cosine / temperature.

    N is the sum of (1 - |v|) exp(s) over all labels of `rows`, exact and in blocks: no more than
    `options.scores` scores are held at once. `positives` are sorted by column and end with the targets v in
    (0, 1], or NEITHER. `drawn` is ignored: no label is drawn.
    """
    point, column, target = positives
    if weights is None:
        weights = x.new_ones(len(x))
    given = (x, rows, point, column, target.to(x.dtype), weights.to(x.dtype), options)
    found: Tensor = _Decoupled.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _Decoupled(torch.autograd.Function):
    """The loss with its gradient, computed in the forward pass, so that no scores are stored."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:  # noqa: ANN401  autograd's own types
        x, rows, point, column, target, weights, options = given
        scores = _Blocks(x, rows, point, column, target, options)
        negatives = scores.log_sums()  # shape: (B,), the logarithm of N; -inf without negatives
        true = target > 0
        point, column, target = point[true], column[true], target[true]
        score = (x[point] * rows[column]).sum(dim=1) / options.temperature  # shape: (K,)
        whole = torch.logaddexp(negatives[point], target.log() + score)
        counts = weights[point] * target
        pull = counts * torch.exp(negatives[point] - whole)  # of each positive on the gradient
        ctx.save_for_backward(*scores.gradients(negatives, (point, column, pull)))
        return torch.sum(counts * (whole - score))

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:  # noqa: ANN401  autograd's own types
        of_x, of_rows = ctx.saved_tensors
        return slopes[0] * of_x, slopes[0] * of_rows, *[None] * 5


class _Blocks:
    """Scores of all points, block by block, plus the logarithm of each label's weight as a negative."""

    def __init__(
        self,
        x: Tensor,
        rows: Tensor,
        point: Tensor,
        column: Tensor,
        target: Tensor,
        options: DecoupledOptions,
    ) -> None:
        self.x, self.rows, self.temperature = x, rows, options.temperature
        self.width = max(1, options.scores // max(len(x), 1))
        self.point, self.column = point, column
        self.log_weight = torch.log1p(-target.abs())  # -inf: not a negative

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first label of each block, and its scores."""  # shape: (B, C)
        for start in range(0, len(self.rows), self.width):
            rows = self.rows[start : start + self.width]
            block = (self.x @ rows.T).div_(self.temperature)
            inside = self._within(self.column, start, len(rows))
            block[self.point[inside], self.column[inside] - start] += self.log_weight[inside]
            yield start, block

    def log_sums(self) -> Tensor:
        """Return the logarithm of the sum over all negatives of each point."""  # shape: (B,)
        found = self.x.new_full((len(self.x),), -torch.inf)
        for _, block in self:
            found = torch.logaddexp(found, torch.logsumexp(block, dim=1))
        return found

    def gradients(self, log_sums: Tensor, positives: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the gradients of points and rows: positives pull, and negatives push with equal force."""
        point, column, pull = positives
        of_x, of_rows = torch.zeros_like(self.x), torch.empty_like(self.rows)
        push = self.x.new_zeros(len(self.x)).index_add_(0, point, pull)
        # A point without negatives has only scores of -inf: any finite number will do.
        log_sums = log_sums.masked_fill(log_sums.isneginf(), 0.0)
        for start, block in self:
            slopes = block.sub_(log_sums[:, None]).exp_().mul_(push[:, None])
            inside = self._within(column, start, slopes.shape[1])
            slopes[point[inside], column[inside] - start] -= pull[inside]
            slopes.div_(self.temperature)
            rows = slice(start, start + slopes.shape[1])
            of_x.addmm_(slopes, self.rows[rows])
            of_rows[rows] = slopes.T @ self.x
        return of_x, of_rows

    @staticmethod
    def _within(column: Tensor, start: int, size: int) -> slice:
        """Return which of the sorted columns lie in a block."""
        ends = torch.searchsorted(column, column.new_tensor([start, start + size])).tolist()
        return slice(*ends)


def _build_decoupled(data: PairData) -> PairStage:
    options, targets = data.options, data.targets
    if data.same_text is not None:
        targets = exclude_pairs(targets, data.same_text)
    takes_part = data.is_point | options.label_points
    points = np.flatnonzero(takes_part & _has_pairs(targets))
    if not len(points):
        raise DataError("no training point has a label with another text, so there is nothing to learn")
    # Label points do not lengthen an epoch, so runs with and without them take the same number of steps.
    epoch = math.ceil(len(data.labelled) / options.pair_batch)
    steps = max(1, round(options.pair_epochs * epoch))
    order = Order([Phase(points, steps)], options.pair_batch, data.seed)
    labels = Every(targets.shape[1], targets.shape[1])
    loss = partial(decoupled, options=DecoupledOptions(options.softmax_temperature))
    return PairStage(order, labels, loss, epoch, targets=targets)


def exclude_pairs(targets: csr_array, pairs: csr_array) -> csr_array:
    """Return the targets with NEITHER at these pairs of a point and a label."""
    marked = csr_array(targets - targets.multiply(pairs) + NEITHER * pairs, dtype=np.float32)
    marked.sort_indices()
    return marked


def _has_pairs(targets: csr_array) -> npt.NDArray[np.bool_]:
    """Return a mask of the points with a positive target."""  # shape: (N,)
    return np.asarray((targets > 0).sum(axis=1)).ravel() > 0


KIND = PairKind(
    _build_decoupled,
    texts=lambda batch, labels: batch + labels,
    meets_every_label=True,
    takes_label_points=True,
)
