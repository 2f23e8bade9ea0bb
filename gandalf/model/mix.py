"""Mix several models into one by the weighted mean of their calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model.added_labels import checked_labels, with_record
from gandalf.model.calibration import Calibration
from gandalf.model.exact import top_k
from gandalf.model.facts import Facts
from gandalf.model.model import Model
from gandalf.model.part import AddsLabels, Mask, Part, Vectors
from gandalf.model_folder import PARTS
from gandalf.wide.mixing import (
    MIX,
    PROPOSED,
    Floats,
    Ints,
    Proposals,
    Share,
    best_of_mix,
    composition_error,
    scores_of_mix,
)


@dataclass
class Mix(AddsLabels):
    """Parts with weights that sum to 1.

    The probability of a label is the weighted mean of the parts' probabilities. Each part proposes its best
    labels; a label that a part does not propose has probability 0 there. The weights are fitted in the same
    way as they are used.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    weights: tuple[float, ...]
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]
    calibration: Calibration | None = None
    unused_settings: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        wrong = composition_error(self.names, self.weights)
        if wrong is not None or len(self.parts) != len(self.names):
            raise DataError(wrong or "a mix needs a name for each part")
        for name, part in zip(self.names, self.parts, strict=True):
            if part.num_labels != len(self.label_texts):
                what = (
                    f"the part {name} has {part.num_labels:,} labels, and the mix {len(self.label_texts):,}"
                )
                raise DataError(what, remedy="mix models that were trained on the same labels")

    def __repr__(self) -> str:
        return f"<Mix of {self.composition}, {self.num_labels:,} labels>"

    @property
    def composition(self) -> str:
        """Return names and weights as words, the heaviest part first."""
        order = sorted(zip(self.weights, self.names, strict=True), reverse=True)
        return ", ".join(f"{name} {weight:.0%}" for weight, name in order)

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return len(self.label_texts)

    @property
    def device(self) -> torch.device:
        """Return the device of the weights; a GPU if any part is on one."""
        return next((part.device for part in self.parts if part.device.type != "cpu"), self.parts[0].device)

    @property
    def lead(self) -> Part:
        """Return the part whose vectors compare texts, and whose rows compare labels."""
        return self.part(self.lead_name)

    @property
    def lead_name(self) -> str:
        """Return the name of the heaviest network, or of the heaviest part without a network."""
        order = sorted(range(len(self.parts)), key=lambda at: -self.weights[at])
        dense = [at for at in order if isinstance(self.parts[at], Model)]
        return self.names[(dense or order)[0]]

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return self.parts[self.names.index(name)]

    @property
    def card_summary(self) -> str:
        """Return the sentence of the model card about the parts."""
        return f"it mixes the probabilities of several models ({self.composition})."

    @property
    def card_limits(self) -> str:
        """Return the sentence of the model card about the texts that the model reads."""
        return " ".join(dict.fromkeys(part.card_limits for part in self.parts))

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels that the parts propose."""
        return self.best_by(texts, k, exclude, {})

    def best_by(
        self, texts: Sequence[str], k: int, exclude: csr_array | None, vectors: Mapping[str, Tensor]
    ) -> tuple[Ints, Floats]:
        """Return what `best` returns; `vectors` are known vectors of the texts by the name of a part."""
        size = min(max(k, PROPOSED), self.num_labels)
        found = []
        for name, part in zip(self.names, self.parts, strict=True):
            if name in vectors and isinstance(part, Model):
                ids, scores = top_k(vectors[name], part.head, size, exclude=exclude)
                found.append((ids, part_probabilities(part, scores)))
            else:
                found.append(part_proposals(part, texts, size, exclude))
        return best_of_mix(found, self.weights, k)

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the logit of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        found = [part_probabilities(part, part.score(texts, labels)) for part in self.parts]
        return scores_of_mix(self.weights, found)

    def shares(self, text: str, label: int) -> tuple[Share, ...]:
        """Return weight and probability of a label by each part, the part that adds most first."""
        one = np.array([[label]])
        found = [
            Share(name, weight, float(part_probabilities(part, part.score([text], one))[0, 0]))
            for name, part, weight in zip(self.names, self.parts, self.weights, strict=True)
        ]
        return tuple(sorted(found, key=lambda share: -share.weight * share.probability))

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text that at least one part knows."""
        return np.asarray(np.logical_or.reduce([part.knows(texts) for part in self.parts]))

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the unit vectors of the part `lead`."""
        return self.lead.unit_vectors(texts)

    def similar_labels(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels most like this one by the part `lead`."""
        return self.lead.similar_labels(label, most)

    def with_label_maker(self) -> Mix:
        """Return a mix whose parts are all ready to add labels quickly."""
        return replace(self, parts=tuple(part.with_label_maker() for part in self.parts))

    def with_labels(self, labels: Sequence[NewLabel]) -> Mix:
        """Return a mix whose parts all have these labels too."""
        checked = checked_labels(self, labels)
        return replace(
            self,
            parts=tuple(part.with_labels(checked.labels) for part in self.parts),
            label_texts=checked.texts,
            label_ids=checked.ids,
            config=with_record(self.config, checked.labels),
        )

    def facts(self) -> Facts:
        """Return the facts for `config.json`."""
        kinds = {"kind": MIX, "parts": list(self.names), "weights": list(self.weights)}
        return Facts(kinds, self.num_labels, len(self.parts), self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write each part into its own folder, without labels, since all parts have the labels of the mix."""
        from gandalf.model.save import write_part  # imported here because it imports this class

        for name, part in zip(self.names, self.parts, strict=True):
            inner = folder / PARTS / name
            inner.mkdir(parents=True, exist_ok=True)
            write_part(part, inner)


def part_proposals(part: Part, texts: Sequence[str], size: int, exclude: csr_array | None) -> Proposals:
    """Return the `size` best labels of a part and their probabilities."""  # shape: (N, size), (N, size)
    ids, scores = part.best(texts, size, exclude)
    return ids, part_probabilities(part, scores)


def part_probabilities(part: Part, scores: Floats) -> npt.NDArray[np.float64]:
    """Turn a part's scores into probabilities; -inf becomes 0."""
    return (part.calibration or Calibration())(scores)
