"""Read a model folder, and check every file against the others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from gandalf.errors import DataError
from gandalf.memory.files import INNER, MEMORY, check_memory, read_memory
from gandalf.model.facts import Facts, read_facts, read_labels
from gandalf.model.mix import Mix
from gandalf.model.model import Model
from gandalf.model.part import Part
from gandalf.model.trees import Trees, load_trees
from gandalf.model.weights import read_weights
from gandalf.model.with_memory import ModelWithMemory, as_queries
from gandalf.model_folder import CONFIG, LABELS, PARTS, check_hashes, damaged
from gandalf.text.load import load_tokens
from gandalf.wide.mixing import MIX, read_composition
from gandalf.wide.wide_model import TREES

# Describes in a message what a folder holds if it is not one network.
DESCRIPTIONS: dict[type[Part], str] = {
    Mix: "a mix of several models",
    Trees: "label trees, which have no encoder",
    ModelWithMemory: "a model with a memory",
}


def load_model(path: str | Path, device: str | torch.device = "cpu", *, verify: bool = True) -> Part:
    """Read a model folder that `save_model` wrote, ready to predict.

    The files are compared with their stored hashes, which takes a second for one or two GB. Without `verify`
    the files are only checked against one another.
    """
    folder = Path(path)
    facts = read_facts(folder)
    if verify:
        check_hashes(folder / CONFIG)
    ids, texts = read_labels(folder / LABELS, facts.labels)
    return _Reader(ids, texts, device).read(folder, facts)


def load_network(path: str | Path, device: str | torch.device = "cpu") -> Model:
    """Read a model folder; raise a DataError if it is not one encoder with one table of rows."""
    return need_network(load_model(path, device), path)


def need_network(
    model: Part,
    path: str | Path,
    need: str = "a single network is needed here",
    remedy: str = "give a model of one system, such as gandalf train ... --system astec makes",
) -> Model:
    """Return the model if it is a network; otherwise raise a DataError that names its kind."""
    if not isinstance(model, Model):
        raise DataError(f"holds {DESCRIPTIONS[type(model)]}, and {need}", remedy=remedy, file=path)
    return model


@dataclass(frozen=True)
class _Reader:
    """Reads a model and the parts inside it, which all have the same labels and device."""

    label_ids: list[str] | None
    label_texts: list[str]
    device: str | torch.device

    def read(self, folder: Path, facts: Facts) -> Part:
        """Read a model of any kind."""
        kind = facts.encoder.get("kind")
        if kind == TREES:
            return load_trees(folder, facts, self.label_ids, self.label_texts)
        if kind == MIX:
            return self._read_mix(folder, facts)
        return self._read_with_memory(folder, facts) if kind == MEMORY else self._read_network(folder, facts)

    def _read_mix(self, folder: Path, facts: Facts) -> Mix:
        stored = facts.encoder
        names, weights = read_composition(stored.get("parts"), stored.get("weights"), folder / CONFIG)
        what = f"is no part of this mix of {facts.labels:,} labels"
        parts = tuple(self._read_inner(folder / PARTS / name, facts.labels, MIX, what) for name in names)
        return Mix(names, parts, weights, self.label_texts, self.label_ids, facts.config, facts.calibration)

    def _read_with_memory(self, folder: Path, facts: Facts) -> ModelWithMemory:
        inner = folder / PARTS / INNER
        what = f"is no model of {facts.labels:,} labels behind a memory"
        model = self._read_inner(inner, facts.labels, MEMORY, what)
        memory, weight = read_memory(folder, facts.encoder, facts.labels)
        reader = facts.encoder.get("reader")
        if isinstance(model, Mix) and reader not in model.names:
            raise damaged(f"has no part {str(reader)[:40]!r}", inner)
        found = ModelWithMemory(model, memory, weight, facts.calibration, reader)
        check_memory(memory, as_queries(found.unit_vectors(self.label_texts[:1])), folder)
        return found

    def _read_inner(self, folder: Path, labels: int, outer: str, what: str) -> Part:
        """Read an inner model; refuse one of the kind `outer` or of other labels with the words `what`."""
        facts = read_facts(folder)
        if facts.encoder.get("kind") == outer or facts.labels != labels:
            raise damaged(what, folder)
        return self.read(folder, facts)

    def _read_network(self, folder: Path, facts: Facts) -> Model:
        tokens = load_tokens(folder)
        encoder, head = read_weights(folder, facts, tokens.size)
        encoder.to(self.device).eval()
        head.to(self.device).eval()
        labels = (self.label_texts, self.label_ids)
        return Model(tokens, encoder, head, *labels, facts.config, facts.calibration)
