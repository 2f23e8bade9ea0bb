"""What every kind of model can do: the protocol that prediction, serving and mixing rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.data.new_labels import NewLabel, new_labels
from gandalf.model.calibration import Calibration
from gandalf.model.layout import Facts
from gandalf.wide.mixing import NO_LABEL, Floats, Ints

Mask = npt.NDArray[np.bool_]
Vectors = Tensor | csr_array  # rows of length 1, or empty; dense of a network, sparse of words


class Part(Protocol):
    """Anything that turns texts into labels with scores: a network, label trees, or a mix of them.

    A score is a logit before calibration. `calibration` turns it into a probability.
    """

    @property
    def label_texts(self) -> Sequence[str]:
        """Texts of the labels."""  # shape: (L,)
        ...

    @property
    def label_ids(self) -> Sequence[str] | None:
        """Ids of the labels, if they have any."""  # shape: (L,)
        ...

    @property
    def config(self) -> dict[str, Any]:
        """The resolved recipe and what else is known of its making."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """How a score becomes a probability."""
        ...

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    @property
    def unheeded(self) -> frozenset[str]:
        """Settings of its recipe that say nothing about it."""
        ...

    @property
    def about(self) -> str:
        """What the model card says of its parts."""
        ...

    @property
    def reads(self) -> str:
        """What the model card says of the texts that it reads."""
        ...

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and scores of the k best labels of each text, best first, ties to the smaller label.

        Pairs stored in `exclude` (N x L) are dropped first. Where fewer than k labels remain, the id is
        NO_LABEL and the score -inf.
        """  # shape: (N, k), (N, k)
        ...

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the score of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        ...

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text of which at least one token is known."""  # shape: (N,)
        ...

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of length 1, whose products say how alike two texts are."""  # shape: (N, dim)
        ...

    def alike(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels most like this one, with cosines, the nearest first."""
        ...

    def with_label_maker(self) -> Part:
        """Return this model with everything fitted that new labels need, so that adding them is quick."""
        ...

    def with_labels(self, labels: Sequence[NewLabel]) -> Part:
        """Return a model that also has these labels, made without training; this one stays."""
        ...

    def add_labels(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        examples: Sequence[Sequence[str]] | None = None,
        neighbours: Sequence[Sequence[str | int]] | None = None,
    ) -> Part:
        """Return a model that also has these labels: `with_labels` for plain lists."""
        ...

    def facts(self) -> Facts:
        """Return what `config.json` says of the model."""
        ...

    def write(self, folder: Path) -> None:
        """Write everything but labels, figures, card and `config.json` into a folder that is there."""
        ...


class Extendable(ABC):
    """Adds labels by plain lists, for every kind of model that adds them by `NewLabel`s."""

    @abstractmethod
    def with_labels(self, labels: Sequence[NewLabel]) -> Self:
        """Return a model that also has these labels, made without training; this one stays."""

    def add_labels(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        examples: Sequence[Sequence[str]] | None = None,
        neighbours: Sequence[Sequence[str | int]] | None = None,
    ) -> Self:
        """Return a model that also has these labels, made from their texts without training; this one stays.

        `examples` are, for each label, texts that are known to have it, and `neighbours` known labels that
        are like it, by id, text or number; either may be empty for some labels.
        """
        return self.with_labels(new_labels(texts, ids, examples, neighbours))


def largest(values: npt.NDArray[np.floating[Any]], number: int) -> list[tuple[int, float]]:
    """Return places and values of the largest, largest first, ties to the first."""
    order = np.argsort(-values, kind="stable")[:number]
    return [(int(at), float(values[at])) for at in order]


def best_of_dense(scores: Floats, k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
    """Return the k best columns of each row as `Part.best` does; -inf is no label."""
    if exclude is not None:
        rows = np.repeat(np.arange(exclude.shape[0]), np.diff(exclude.indptr))
        scores = scores.copy()
        scores[rows, exclude.indices] = -np.inf
    width = min(k, scores.shape[1])
    order = np.argsort(-scores, axis=1, kind="stable")[:, :width]  # shape: (N, width)
    found = np.take_along_axis(scores, order, axis=1)
    ids = np.full((len(scores), k), NO_LABEL, dtype=np.int64)
    values = np.full((len(scores), k), -np.inf, dtype=np.float32)
    ids[:, :width], values[:, :width] = np.where(np.isneginf(found), NO_LABEL, order), found
    return ids, values
