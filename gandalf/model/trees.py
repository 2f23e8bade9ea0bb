"""Hold label trees over TF-IDF terms (Parabel, by the library omikuji), which train in seconds on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, vstack

from gandalf.data.new_labels import NewLabel
from gandalf.model.added_labels import checked_labels, with_record
from gandalf.model.added_terms import fit_added, label_terms
from gandalf.model.calibration import Calibration
from gandalf.model.facts import Facts
from gandalf.model.part import AddsLabels, Mask, largest
from gandalf.model_folder import listed_files, need_file
from gandalf.wide.mixing import Floats, Ints
from gandalf.wide.wide_model import AddedRows, WideModel, read_wide_model

# Recipe settings that do not apply to label trees.
UNUSED_SETTINGS = frozenset(
    (
        *("device", "text", "encoder", "head", "siamese", "labels", "training"),
        *("baselines", "memory", "search"),
        *("targets.label_weight", "targets.label_epochs", "targets.own_weight"),
        *("validation.every", "validation.patience"),
    )
)


@dataclass
class Trees(AddsLabels):
    """A wide model as a part: its terms and classifiers, the names of its labels, and the recipe."""

    wide: WideModel
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the recipe
    calibration: Calibration | None = None
    device: ClassVar[torch.device] = torch.device("cpu")
    unused_settings: ClassVar[frozenset[str]] = UNUSED_SETTINGS

    def __repr__(self) -> str:
        name = self.config.get("system", "trees")
        return f"<Trees {name}, {self.num_labels:,} labels, {len(self.wide.words.words):,} words>"

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return len(self.label_texts)

    @property
    def card_summary(self) -> str:
        """Return the sentence of the model card about the trees."""
        known = f"{len(self.wide.words.words):,} known words"
        return f"trees of labels are searched by linear scores of the text's words, out of {known}."

    @property
    def card_limits(self) -> str:
        """Return the sentence of the model card about the words that are read."""
        return (
            "It reads words that are in the training texts, wherever they stand in the text, and no others."
        )

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return numbers and logits of the k best labels among those that the tree search reaches."""
        return self.wide.best(texts, k, exclude)

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return logits of these labels; a label that the search does not reach has the lowest logit."""
        return self.wide.score(texts, labels)

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text that has a known term."""
        return self.wide.knows(texts)

    def unit_vectors(self, texts: Sequence[str]) -> csr_array:
        """Return TF-IDF rows."""
        return self.wide.unit_vectors(texts)

    def similar_labels(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels whose texts share most terms with the text of this label."""
        of_labels = self.unit_vectors(self.label_texts)
        cosines = (of_labels @ of_labels[[label]].T).toarray()[:, 0]
        cosines[label] = -np.inf
        return largest(cosines, min(most, self.num_labels - 1))

    def with_label_maker(self) -> Trees:
        """Return trees after the fit of slope and offset that scores of added labels need."""
        return replace(self, wide=replace(self.wide, added=self._added_labels()))

    def _added_labels(self) -> AddedRows:
        """Return the rows of added labels, with a fitted slope and offset."""
        if self.wide.added is not None:
            return self.wide.added
        none = csr_array(np.zeros((0, self.wide.size), dtype=np.float32))
        return AddedRows(none, *fit_added(self))

    def with_labels(self, labels: Sequence[NewLabel]) -> Trees:
        """Return trees that also have these labels, scored by the terms of their texts and examples."""
        checked, added = checked_labels(self, labels), self._added_labels()
        new_rows = label_terms(self, checked.labels, checked.neighbours)
        rows = csr_array(vstack([added.rows, new_rows], format="csr"))
        return replace(
            self,
            wide=replace(self.wide, added=replace(added, rows=rows)),
            label_texts=checked.texts,
            label_ids=checked.ids,
            config=with_record(self.config, checked.labels, fitted_on=self.wide.trained_labels),
        )

    def facts(self) -> Facts:
        """Return the facts for `config.json`."""
        size = self.wide.size
        return Facts(self.wide.facts(), self.num_labels, size, self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write terms and trees into an existing folder, each file completely or not at all."""
        self.wide.write(folder)


def load_trees(folder: Path, facts: Facts, ids: list[str] | None, texts: list[str]) -> Trees:
    """Read the files that `Trees.write` wrote."""
    for name in listed_files(folder):
        need_file(folder / name)
    wide = read_wide_model(folder, facts.encoder, facts.labels, facts.dim)
    return Trees(wide, texts, ids, facts.config, facts.calibration)
