"""Parabel's label trees over TF-IDF words, by the library omikuji: learnt in seconds on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, vstack

from gandalf.data.new_labels import NewLabel
from gandalf.data.tf_idf import TfIdf
from gandalf.model.added_terms import fit_added, label_terms
from gandalf.model.calibration import Calibration
from gandalf.model.chosen_labels import checked_labels, with_record
from gandalf.model.layout import Facts, listed_files
from gandalf.model.part import Extendable, Mask, largest
from gandalf.wide.folder import missing_file
from gandalf.wide.mixing import Floats, Ints
from gandalf.wide.wide_model import Added, WideModel, read_wide_model

# Settings of a recipe that say nothing about trees: what they are about is not there.
UNHEEDED = frozenset(
    (
        *(
            "device",
            "text",
            "encoder",
            "head",
            "siamese",
            "labels",
            "training",
            "baselines",
            "memory",
            "search",
        ),
        *("targets.label_weight", "targets.label_epochs", "targets.own_weight"),
        *("validation.every", "validation.patience"),
    )
)


@dataclass
class Trees(Extendable):
    """A wide model as a part: its terms and classifiers, what the labels are called, and how it was made."""

    words: TfIdf
    forest: Any  # omikuji's
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the recipe
    calibration: Calibration | None = None
    added: Added | None = None  # labels that were added without training
    device: ClassVar[torch.device] = torch.device("cpu")
    unheeded: ClassVar[frozenset[str]] = UNHEEDED

    def __repr__(self) -> str:
        name = self.config.get("system", "trees")
        return f"<Trees {name}, {self.num_labels:,} labels, {len(self.words.words):,} words>"

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        return len(self.label_texts)

    @property
    def trained_labels(self) -> int:
        """Number of labels that the classifiers were trained on, which come first."""
        return self.num_labels - (0 if self.added is None else len(self.added))

    @property
    def wide(self) -> WideModel:
        """What predicts."""
        return WideModel(self.words, self.forest, self.trained_labels, self.added)

    @property
    def about(self) -> str:
        """What the model card says of its parts."""
        known = f"{len(self.words.words):,} known words"
        return f"trees of labels are searched by linear scores of the text's words, out of {known}."

    @property
    def reads(self) -> str:
        """What the model card says of the length of texts."""
        return (
            "It reads words that are in the training texts, wherever they stand in the text, and no others."
        )

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels that the search meets."""
        return self.wide.best(texts, k, exclude)

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return logits of these labels; one that the search does not meet has the lowest there is."""
        return self.wide.score(texts, labels)

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text that has a known term."""
        return self.wide.knows(texts)

    def unit_vectors(self, texts: Sequence[str]) -> csr_array:
        """Return TF-IDF rows."""
        return self.wide.unit_vectors(texts)

    def alike(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels whose texts share most terms with this label's."""
        of_labels = self.unit_vectors(self.label_texts)
        cosines = (of_labels @ of_labels[[label]].T).toarray()[:, 0]
        cosines[label] = -np.inf
        return largest(cosines, min(most, self.num_labels - 1))

    def with_label_maker(self) -> Trees:
        """Return trees that know how to score labels that will be added."""
        if self.added is not None:
            return self
        none = csr_array(np.zeros((0, self.wide.size), dtype=np.float32))
        return replace(self, added=Added(none, *fit_added(self)))

    def with_labels(self, labels: Sequence[NewLabel]) -> Trees:
        """Return trees that also have these labels, scored by the terms of their texts and examples."""
        chosen = checked_labels(self, labels)
        added = self.with_label_maker().added
        assert added is not None
        rows = csr_array(
            vstack([added.rows, label_terms(self, chosen.labels, chosen.neighbours)], format="csr")
        )
        return replace(
            self,
            label_texts=chosen.texts,
            label_ids=chosen.ids,
            config=with_record(self.config, chosen.labels, fitted_on=self.trained_labels),
            added=replace(added, rows=rows),
        )

    def facts(self) -> Facts:
        """Return what `config.json` will say."""
        wide = self.wide
        return Facts(wide.facts(), self.num_labels, wide.size, self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write words and trees into a folder that is there, each file wholly or not at all."""
        self.wide.write(folder)


def load_trees(folder: Path, facts: Facts, ids: list[str] | None, texts: list[str]) -> Trees:
    """Read what `Trees.write` wrote."""
    for name in listed_files(folder):
        if not (folder / name).is_file():
            raise missing_file(folder / name)
    found = read_wide_model(folder, facts.encoder, facts.labels, facts.dim)
    return Trees(found.words, found.forest, texts, ids, facts.config, facts.calibration, found.added)
