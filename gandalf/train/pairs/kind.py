"""What every loss of pairs is, and what a stage of pairs is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.train.batches import PointOrder, sent
from gandalf.train.labels import LabelSelection
from gandalf.train.pairs import PAIR_LOSSES

if TYPE_CHECKING:
    from gandalf.train.loop import Hook

Ints = npt.NDArray[np.int64]
Positives = tuple[Tensor, ...]  # place among the points, column, and the target if a loss reads it; each (K,)


class PairLoss(Protocol):
    """Sum of a loss of pairs within the batch."""

    def __call__(
        self, x: Tensor, rows: Tensor, own: Tensor, positives: Positives, weights: Tensor | None = None
    ) -> Tensor:
        """The loss, a scalar that has a gradient."""
        ...


class VectorCache:
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


@dataclass(frozen=True, eq=False)
class PairStage:
    """A siamese stage in its parts."""

    order: PointOrder
    labels: LabelSelection
    loss: PairLoss
    epoch: int  # updates
    seen: VectorCache | None = None
    refreshing: list[Hook] = field(default_factory=list)
    targets: csr_array | None = None  # in place of the points' own


@dataclass(frozen=True, eq=False)
class PairData:
    """What a kind of siamese stage makes its parts of."""

    options: Any  # `siamese` of a recipe
    targets: csr_array  # N x L
    own: npt.NDArray[np.bool_]  # shape: (N,), True but for label points
    seed: int
    alike: csr_array | None = None  # N x L, pairs of a point and a label with one text

    @cached_property
    def labelled(self) -> Ints:
        """Places of training points with labels."""
        return np.flatnonzero(self.own & (np.diff(self.targets.indptr) > 0))


def _two_texts(batch: int, labels: int) -> int:
    return 2 * batch


@dataclass(frozen=True)
class PairKind:
    """One way to train an encoder on pairs of a text and a label."""

    build: Callable[[PairData], PairStage]
    texts: Callable[[int, int], int] = _two_texts  # encoded in an update, by the batch and the labels
    draws_labels: bool = False  # an epoch counts labels, not points
    meets_every_label: bool = False  # encodes the texts of all labels in each update
    takes_label_points: bool = False  # may train on label points, with targets of other labels


def pair_kind(name: str) -> PairKind:
    """Return a loss of pairs by its name."""
    found: PairKind = PAIR_LOSSES.load(name)
    return found


def pair_stage(
    options: Any,  # noqa: ANN401  `siamese` of a recipe, which a room further on defines
    targets: csr_array,
    own: npt.NDArray[np.bool_],
    seed: int,
    alike: csr_array | None = None,
) -> PairStage:
    """Return the stage for these points: those marked `own` and with labels.

    Label points take part where the options say so, and by their targets of other labels alone: a label's
    text with that label is a pair of a text with itself, and teaches nothing. `alike` marks such pairs of any
    points, where a kind meets every label.
    """
    data = PairData(options, targets, own, seed, alike)
    if not len(data.labelled):
        raise DataError("no training point has a label, so there is nothing to learn")
    return pair_kind(options.kind).build(data)


def pairs_alike(tokens: npt.NDArray[np.int32], of_labels: npt.NDArray[np.int32]) -> csr_array:
    """Return the pairs of a point and a label that an encoder reads as one text."""  # shape: (N, L)
    width = max(tokens.shape[1], of_labels.shape[1])
    both = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in (tokens, of_labels)]
    _, text = np.unique(np.concatenate(both), axis=0, return_inverse=True)
    ones = np.ones(len(text), dtype=np.float32)
    texts = csr_array((ones, (np.arange(len(text)), text.ravel())))  # shape: (N + L, texts)
    return csr_array(texts[: len(tokens)] @ texts[len(tokens) :].T)


def true_pairs(shape: tuple[int, ...], own: Tensor, positives: Positives) -> Tensor:
    """Return a mask of the true pairs of points and labels, drawn pairs included."""  # shape: (P, C)
    true = torch.zeros(shape, dtype=torch.bool, device=own.device)
    true[positives[0], positives[1]] = True
    return true.scatter_(1, own[:, None], True)


def hardest_negatives(scores: Tensor, true: Tensor, number: int) -> Tensor:
    """Return the highest scores of each row outside the true pairs, padded with -inf."""  # shape: (B, h)
    masked = scores.masked_fill(true, -torch.inf)
    return masked.topk(min(number, scores.shape[1]), dim=1).values


def weighted_sum(per_point: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum over points; without weights all count 1."""
    return torch.sum(per_point if weights is None else weights * per_point)
