"""Define what a loss of pairs needs, and the parts of a stage of pairs."""

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
from gandalf.train.batches import sent
from gandalf.train.labels import LabelSelection
from gandalf.train.orders import PointOrder
from gandalf.train.pairs import PAIR_LOSSES

if TYPE_CHECKING:
    from gandalf.train.loop import Hook

Ints = npt.NDArray[np.int64]
Positives = tuple[Tensor, ...]  # place in the batch, column, and the target if a loss reads it; each (K,)


class PairLoss(Protocol):
    """A loss of pairs within the batch, summed over points."""

    def __call__(
        self, x: Tensor, rows: Tensor, drawn: Tensor, positives: Positives, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss, a scalar with a gradient; the head of `contrastive.py` explains the arguments."""
        ...


class VectorCache:
    """The vectors of points from their last training step, so that no additional pass is needed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.vectors: Tensor | None = None  # shape: (N, dim)

    def __call__(self, rows: Ints, x: Tensor) -> None:
        """Remember the vectors of these points."""
        if self.vectors is None:
            self.vectors = torch.zeros(self.number, x.shape[1], dtype=torch.float16)
        self.vectors = self.vectors.to(x.device)  # if the vectors are new or from a checkpoint
        self.vectors[sent(rows, x.device)] = x.half()


@dataclass(frozen=True, eq=False)
class PairStage:
    """The parts of a siamese stage."""

    order: PointOrder
    labels: LabelSelection
    loss: PairLoss
    epoch: int  # updates
    seen: VectorCache | None = None
    refreshing: list[Hook] = field(default_factory=list)
    targets: csr_array | None = None  # replaces the targets of the points


@dataclass(frozen=True, eq=False)
class PairData:
    """The training points, and the settings that a kind of siamese stage reads."""

    options: Any  # `siamese` of a recipe
    targets: csr_array  # N x L
    is_point: npt.NDArray[np.bool_]  # shape: (N,), False for label points
    seed: int
    same_text: csr_array | None = None  # N x L, pairs of a point and a label with the same text

    @cached_property
    def labelled(self) -> Ints:
        """Numbers of the training points with labels, without label points."""
        return np.flatnonzero(self.is_point & (np.diff(self.targets.indptr) > 0))


def _two_texts(batch: int, labels: int) -> int:
    return 2 * batch


@dataclass(frozen=True)
class PairKind:
    """One way to train an encoder on pairs of a text and a label."""

    build: Callable[[PairData], PairStage]
    texts: Callable[[int, int], int] = _two_texts  # number encoded in an update, by batch and labels
    draws_labels: bool = False  # an epoch counts labels, not points
    meets_every_label: bool = False  # encodes the texts of all labels in each update
    takes_label_points: bool = False  # may train on label points, with targets of other labels


def pair_kind(name: str) -> PairKind:
    """Return a kind of loss of pairs by its name."""
    found: PairKind = PAIR_LOSSES.load(name)
    return found


def pair_stage(
    options: Any,  # noqa: ANN401  `siamese` of a recipe, which a room further on defines
    targets: csr_array,
    is_point: npt.NDArray[np.bool_],
    seed: int,
    same_text: csr_array | None = None,
) -> PairStage:
    """Return the stage for the training points with labels.

    Label points take part if the options say so, but only with other labels: a label's text with that label
    is a pair of a text with itself and teaches nothing. `same_text` marks all such pairs for a kind that
    meets every label.
    """
    data = PairData(options, targets, is_point, seed, same_text)
    if not len(data.labelled):
        raise DataError("no training point has a label, so there is nothing to learn")
    return pair_kind(options.kind).build(data)


def pairs_with_same_text(tokens: npt.NDArray[np.int32], of_labels: npt.NDArray[np.int32]) -> csr_array:
    """Return the pairs of a point and a label whose tokens are the same."""  # shape: (N, L)
    width = max(tokens.shape[1], of_labels.shape[1])
    both = [np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in (tokens, of_labels)]
    _, text = np.unique(np.concatenate(both), axis=0, return_inverse=True)
    ones = np.ones(len(text), dtype=np.float32)
    texts = csr_array((ones, (np.arange(len(text)), text.ravel())))  # shape: (N + L, texts)
    return csr_array(texts[: len(tokens)] @ texts[len(tokens) :].T)


def true_pairs(shape: tuple[int, ...], drawn: Tensor, positives: Positives) -> Tensor:
    """Return a mask of the true pairs of points and labels, drawn pairs included."""  # shape: (P, C)
    true = torch.zeros(shape, dtype=torch.bool, device=drawn.device)
    true[positives[0], positives[1]] = True
    return true.scatter_(1, drawn[:, None], True)


def hardest_negatives(scores: Tensor, true: Tensor, number: int) -> Tensor:
    """Return the highest scores of each row outside the true pairs, padded with -inf."""  # shape: (B, h)
    masked = scores.masked_fill(true, -torch.inf)
    return masked.topk(min(number, scores.shape[1]), dim=1).values


def weighted_sum(per_point: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted sum over points; without weights each point counts 1."""
    return torch.sum(per_point if weights is None else weights * per_point)
