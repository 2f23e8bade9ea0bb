"""Several models as one: a weighted mean of their calibrated probabilities."""

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
from gandalf.model.calibration import Calibration
from gandalf.model.chosen_labels import checked_labels, with_record
from gandalf.model.exact import top_k
from gandalf.model.layout import Facts
from gandalf.model.model import Model
from gandalf.model.part import Extendable, Mask, Part, Vectors
from gandalf.wide.folder import PARTS
from gandalf.wide.mixing import (
    MIX,
    PROPOSED,
    Floats,
    Ints,
    Lists,
    Share,
    mixed,
    weighted,
    wrong_composition,
)


@dataclass
class Mix(Extendable):
    """Parts with weights that sum to 1; the probability of a label is the weighted mean of the parts'.

    A part proposes its best labels. A label that it does not propose counts as 0 there, when the weights are
    fitted just as when they are used.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    weights: tuple[float, ...]
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]
    calibration: Calibration | None = None
    unheeded: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        wrong = wrong_composition(self.names, self.weights)
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
        """Names and weights, the heaviest first."""
        order = sorted(zip(self.weights, self.names, strict=True), reverse=True)
        return ", ".join(f"{name} {weight:.0%}" for weight, name in order)

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        return len(self.label_texts)

    @property
    def device(self) -> torch.device:
        """Where the weights are: on a GPU if any part's are."""
        return next((part.device for part in self.parts if part.device.type != "cpu"), self.parts[0].device)

    @property
    def lead(self) -> Part:
        """The part that says which texts and labels are alike."""
        return self.part(self.lead_name)

    @property
    def lead_name(self) -> str:
        """The name of the heaviest part with dense vectors, else of the heaviest."""
        order = sorted(range(len(self.parts)), key=lambda at: -self.weights[at])
        dense = [at for at in order if isinstance(self.parts[at], Model)]
        return self.names[(dense or order)[0]]

    def part(self, name: str) -> Part:
        """Return the part of that name."""
        return self.parts[self.names.index(name)]

    @property
    def about(self) -> str:
        """What the model card says of its parts."""
        return f"it mixes the probabilities of several models ({self.composition})."

    @property
    def reads(self) -> str:
        """What the model card says of the texts that it reads."""
        return " ".join(dict.fromkeys(part.reads for part in self.parts))

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels that the parts propose."""
        return self.best_by(texts, k, exclude, {})

    def best_by(
        self, texts: Sequence[str], k: int, exclude: csr_array | None, vectors: Mapping[str, Tensor]
    ) -> tuple[Ints, Floats]:
        """Return the same, where vectors of the texts by some of the parts are known already."""
        size = min(max(k, PROPOSED), self.num_labels)
        found = []
        for name, part in zip(self.names, self.parts, strict=True):
            if name in vectors and isinstance(part, Model):
                ids, scores = top_k(vectors[name], part.head, size, exclude=exclude)
                found.append((ids, part_probabilities(part, scores)))
            else:
                found.append(part_lists(part, texts, size, exclude))
        return mixed(found, self.weights, k)

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the logit of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        found = [part_probabilities(part, part.score(texts, labels)) for part in self.parts]
        return weighted(self.weights, found)

    def shares(self, text: str, label: int) -> tuple[Share, ...]:
        """Return what each part says of a label, the part that adds most first."""
        one = np.array([[label]])
        found = [
            Share(name, weight, float(part_probabilities(part, part.score([text], one))[0, 0]))
            for name, part, weight in zip(self.names, self.parts, self.weights, strict=True)
        ]
        return tuple(sorted(found, key=lambda share: -share.weight * share.probability))

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text of which at least one part knows something."""
        return np.asarray(np.logical_or.reduce([part.knows(texts) for part in self.parts]))

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the part that leads."""
        return self.lead.unit_vectors(texts)

    def alike(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels most like this one by the part that leads."""
        return self.lead.alike(label, most)

    def with_label_maker(self) -> Mix:
        """Return a mix whose parts all have fitted what new labels need."""
        return replace(self, parts=tuple(part.with_label_maker() for part in self.parts))

    def with_labels(self, labels: Sequence[NewLabel]) -> Mix:
        """Return a mix whose parts all have these labels too."""
        chosen = checked_labels(self, labels)
        return replace(
            self,
            parts=tuple(part.with_labels(chosen.labels) for part in self.parts),
            label_texts=chosen.texts,
            label_ids=chosen.ids,
            config=with_record(self.config, chosen.labels),
        )

    def facts(self) -> Facts:
        """Return what `config.json` will say."""
        kinds = {"kind": MIX, "parts": list(self.names), "weights": list(self.weights)}
        return Facts(kinds, self.num_labels, len(self.parts), self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write each part into a folder of its own; labels are those of the mix."""
        from gandalf.model.save import write_part  # not above: it needs this class

        for name, part in zip(self.names, self.parts, strict=True):
            place = folder / PARTS / name
            place.mkdir(parents=True, exist_ok=True)
            write_part(part, place)


def part_lists(part: Part, texts: Sequence[str], size: int, exclude: csr_array | None) -> Lists:
    """Return the labels that a part proposes, with its probabilities."""  # shape: (N, size), (N, size)
    ids, scores = part.best(texts, size, exclude)
    return ids, part_probabilities(part, scores)


def part_probabilities(part: Part, scores: Floats) -> npt.NDArray[np.float64]:
    """Return a part's scores as probabilities; -inf is 0."""
    return (part.calibration or Calibration())(scores)
