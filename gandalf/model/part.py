"""Define `Part`, the protocol of every kind of model; prediction, serving and mixing use nothing else."""

from __future__ import annotations

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
from gandalf.model.facts import Facts
from gandalf.model.known_labels import Labelled
from gandalf.wide.mixing import Floats, Ints

Mask = npt.NDArray[np.bool_]
Vectors = Tensor | csr_array  # rows of length 1, or zero; dense by a network, sparse by label trees


class AddsLabels(Protocol):
    """A model that can be given further labels."""

    def with_labels(self, labels: Sequence[NewLabel]) -> Self:
        """Return a model that also has these labels, made without training; this model does not change."""
        ...

    def add_labels(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        examples: Sequence[Sequence[str]] | None = None,
        neighbours: Sequence[Sequence[str | int]] | None = None,
    ) -> Self:
        """Return a model that also has these labels, made without training; this model does not change.

        `examples` are, for each label, texts that are known to have it. `neighbours` are, for each label,
        known labels that are like it, by id, text or number. Either list may be empty for a label.
        """
        return self.with_labels(new_labels(texts, ids, examples, neighbours))


class Part(Labelled, AddsLabels, Protocol):
    """A model that turns texts into label numbers and scores: a network, label trees, a mix, or a memory.

    A score is a logit before calibration. `calibration` turns it into a probability.
    """

    @property
    def config(self) -> dict[str, Any]:
        """Return the resolved recipe and further facts of the training."""
        ...

    @property
    def calibration(self) -> Calibration | None:
        """Return the calibration of scores, or None if it was not fitted."""
        ...

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        ...

    @property
    def unused_settings(self) -> frozenset[str]:
        """Return the recipe settings that do not apply to this kind of model."""
        ...

    @property
    def card_summary(self) -> str:
        """Return the sentence of the model card about the parts."""
        ...

    @property
    def card_limits(self) -> str:
        """Return the sentence of the model card about the texts that the model reads."""
        ...

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return numbers and scores of the k best labels of each text, best first, ties to the smaller label.

        Pairs stored in `exclude` (N x L) are dropped first. If fewer than k labels remain, the number is
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
        """Return vectors of length 1; products of vectors are similarities of texts."""  # shape: (N, dim)
        ...

    def similar_labels(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels most like this one with their cosines, the nearest label first."""
        ...

    def with_label_maker(self) -> Part:
        """Return this model after the fit that new labels need, so that adding labels is quick."""
        ...

    def facts(self) -> Facts:
        """Return the facts for `config.json`."""
        ...

    def write(self, folder: Path) -> None:
        """Write the model into an existing folder, without labels, figures, card and `config.json`."""
        ...


def largest(values: npt.NDArray[np.floating[Any]], number: int) -> list[tuple[int, float]]:
    """Return positions and values of the largest values, largest first, ties to the first position."""
    order = np.argsort(-values, kind="stable")[:number]
    return [(int(at), float(values[at])) for at in order]


def sample_label_texts(model: Labelled, number: int) -> list[str]:
    """Return the texts of at most `number` labels at equal distances."""
    labels = np.unique(np.linspace(0, model.num_labels - 1, number).astype(np.int64))
    return [model.label_texts[label] for label in labels.tolist()]
