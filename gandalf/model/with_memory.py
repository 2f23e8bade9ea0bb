"""Add a memory to a model: the votes of the nearest training points change its probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.data.formats.texts import clean
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.memory.files import INNER, MEMORY, memory_facts, write_memory
from gandalf.memory.keys import Vectors as Queries
from gandalf.memory.memory import EXAMPLE, LABEL, Memory, Record, Vote
from gandalf.model.calibration import Calibration
from gandalf.model.facts import Facts
from gandalf.model.known_labels import Names
from gandalf.model.mix import Mix, part_probabilities
from gandalf.model.model import Model
from gandalf.model.part import AddsLabels, Mask, Part, Vectors
from gandalf.model_folder import PARTS
from gandalf.wide.mixing import PROPOSED, Floats, Ints, Share


@dataclass
class ModelWithMemory(AddsLabels):
    """A model of any kind with a memory of its training points.

    The probability of a label is the weighted mean of the model's and the memory's probabilities. If the
    memory is in doubt about a text, a share of its weight goes back to the model.
    """

    model: Part
    memory: Memory
    weight: float  # weight of the memory; above 0, at most 1
    calibration: Calibration | None = None
    reader: str | None = None  # the part of a mix that makes the keys; None: the model makes them

    def __post_init__(self) -> None:
        if isinstance(self.model, Mix):
            self.reader = self.reader or self.model.lead_name
            if self.reader not in self.model.names:
                raise DataError(f"the keys are of the part {self.reader!r}, which the mix does not have")
        if not 0 < self.weight <= 1:
            raise DataError(f"the weight of a memory is above 0 and at most 1, not {self.weight}")
        if self.memory.num_labels != self.model.num_labels:
            what = (
                f"the memory has {self.memory.num_labels:,} labels, and the model {self.model.num_labels:,}"
            )
            raise DataError(what, remedy="make the memory from the data that the model was trained on")

    def __repr__(self) -> str:
        return f"<{self.model!r} with {len(self.memory):,} keys of weight {self.weight:.2g}>"

    @property
    def label_texts(self) -> Sequence[str]:
        """Return the text of each label."""
        return self.model.label_texts

    @property
    def label_ids(self) -> Sequence[str] | None:
        """Return the id of each label, or None if labels have no ids."""
        return self.model.label_ids

    @property
    def config(self) -> dict[str, Any]:
        """Return the config of the model."""
        return self.model.config

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return self.model.num_labels

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.model.device

    @property
    def unused_settings(self) -> frozenset[str]:
        """Return the recipe settings that do not apply to this kind of model."""
        return self.model.unused_settings - {"memory"}

    @property
    def card_summary(self) -> str:
        """Return the sentences of the model card about model and memory."""
        holds = f"A memory holds {len(self.memory):,} points and label texts"
        nearest = f"the {self.memory.voting.neighbours} nearest to a text"
        return f"{self.model.card_summary} {holds}; {nearest} have up to {self.weight:.0%} of the vote."

    @property
    def card_limits(self) -> str:
        """Return the sentence of the model card about the texts that the model reads."""
        return self.model.card_limits

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return numbers and logits of the k best labels that the model or the memory proposes."""
        size = min(max(k, PROPOSED), self.num_labels)
        reader = reader_of(self.model, self.reader)
        if isinstance(self.model, Mix) and isinstance(reader, Model):  # a transformer should read texts once
            x = reader.vectors(texts)
            proposed = self.model.best_by(texts, size, exclude, {str(self.reader): x})
            return self.with_votes(F.normalize(x, dim=1), proposed, k, exclude)
        return self.with_votes(self.unit_vectors(texts), self.model.best(texts, size, exclude), k, exclude)

    def with_votes(
        self, vectors: Vectors, proposed: tuple[Ints, Floats], k: int, exclude: csr_array | None = None
    ) -> tuple[Ints, Floats]:
        """Return the k best labels by the model's proposals and the votes for texts with these vectors."""
        ids, scores = proposed
        near = self.memory.nearest(as_queries(vectors))
        return self.memory.best_with(
            (ids, part_probabilities(self.model, scores)), near, self.weight, k, exclude
        )

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the logit of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        near = self.memory.nearest(as_queries(self.unit_vectors(texts)))
        probabilities = part_probabilities(self.model, self.model.score(texts, labels))
        return self.memory.score_with(probabilities, near, self.weight, labels)

    def shares(self, text: str, label: int) -> tuple[Share, ...]:
        """Return the probabilities of a label by model and memory; their weighted sum is the label's."""
        one = np.array([[label]])
        near = self.memory.nearest(as_queries(self.unit_vectors([text])))
        probability = float(part_probabilities(self.model, self.model.score([text], one))[0, 0])
        return (
            Share(INNER, float(self.memory.trust(near, self.weight)[0, 0]), probability),
            Share(MEMORY, self.weight, float(self.memory.votes_for(near, one)[0, 0])),
        )

    def votes_on(self, text: str, label: int) -> list[Vote]:
        """Return the votes of remembered points for or against a label, the strongest vote first."""
        return self.memory.votes_on(as_queries(self.unit_vectors([text])), label)

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text of which at least one token is known."""
        return self.model.knows(texts)

    def unit_vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the kind that the memory has as keys."""
        return reader_of(self.model, self.reader).unit_vectors(texts)

    def similar_labels(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels most like this one, by the model."""
        return self.model.similar_labels(label, most)

    def with_label_maker(self) -> ModelWithMemory:
        """Return this model after the fit that new labels need."""
        return replace(self, model=self.model.with_label_maker())

    def with_labels(self, labels: Sequence[NewLabel]) -> ModelWithMemory:
        """Return a model that also has these labels and remembers their texts and examples."""
        first = self.num_labels
        longer = self.model.with_labels(labels)
        texts = [longer.label_texts[first + at] for at in range(len(labels))]
        records = [Record(text, LABEL) for text in texts]
        numbers = list(range(first, first + len(labels)))
        for number, label in enumerate(labels, start=first):
            examples = [text for text in map(clean, label.examples) if text]
            records += [Record(text, EXAMPLE) for text in examples]
            numbers += [number] * len(examples)
        # Each record has the value 1 for its own label.
        ends = np.arange(len(numbers) + 1)
        values = csr_array((np.ones(len(numbers)), numbers, ends), shape=(len(numbers), longer.num_labels))
        memory = self.memory.widened(longer.num_labels)
        reader = reader_of(longer, self.reader)
        return replace(self, model=longer, memory=_appended(reader, memory, values, records))

    def with_examples(self, values: csr_array, records: Sequence[Record]) -> ModelWithMemory:
        """Return a model that also remembers these examples; this model does not change."""
        reader = reader_of(self.model, self.reader)
        return replace(self, memory=_appended(reader, self.memory, values, records))

    def without_examples(self, ids: Sequence[str]) -> ModelWithMemory:
        """Return a model without these examples; this model does not change."""
        return replace(self, memory=self.memory.without(ids))

    def facts(self) -> Facts:
        """Return the facts for `config.json`."""
        kinds = memory_facts(self.memory, self.weight, self.reader)
        return Facts(kinds, self.num_labels, max(1, len(self.memory)), self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write the memory into an existing folder, and the model into a folder inside it."""
        from gandalf.model.save import write_part  # imported here to avoid an import cycle

        write_memory(self.memory, folder)
        inner = folder / PARTS / INNER
        inner.mkdir(parents=True, exist_ok=True)
        write_part(self.model, inner)


def as_queries(vectors: Vectors) -> Queries:
    """Convert unit vectors of a model into the form that a memory searches."""
    if isinstance(vectors, Tensor):
        return vectors.detach().float().cpu().numpy()
    return vectors


def without_memory(part: Part) -> Part:
    """Return the model behind a memory, or the model itself."""
    return part.model if isinstance(part, ModelWithMemory) else part


def reader_of(model: Part, name: str | None) -> Part:
    """Return the part of a mix that makes the keys of a memory, or the model itself."""
    return model.part(name) if isinstance(model, Mix) and name is not None else model


def networks(part: Part) -> list[Model]:
    """Return the networks of a model: itself, or the networks among the parts of a mix."""
    model = without_memory(part)
    parts = model.parts if isinstance(model, Mix) else (model,)
    return [each for each in parts if isinstance(each, Model)]


@contextmanager
def no_trace_of_failure(part: Part) -> Iterator[None]:
    """If the body fails to make a longer model, free the rows and names that it added behind this model's.

    Otherwise the next longer model would find them there, and copy all rows. Use it where nobody has longer
    models but the body.
    """
    undo = list[Callable[[], None]]()
    for network in networks(part):
        count = network.num_labels
        undo += [partial(rows.cut, count) for rows in network.head.growing.values() if rows.is_end(count)]
    own = without_memory(part)
    for each in (own, *(own.parts if isinstance(own, Mix) else ())):
        shared = (names for names in (each.label_texts, each.label_ids) if isinstance(names, Names))
        undo += [names.cut for names in shared if names.is_end()]
    try:
        yield
    except BaseException:
        for cut in undo:
            cut()
        raise


def _appended(model: Part, memory: Memory, values: csr_array, records: Sequence[Record]) -> Memory:
    """Return the memory with further records, keyed by the model's vectors of their texts."""
    vectors = as_queries(model.unit_vectors([record.text for record in records]))
    return memory.appended(vectors, csr_array(values.astype(np.float32)), records)
