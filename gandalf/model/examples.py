"""Examples that count at once: texts with known labels, added to the memory of a model."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.formats.texts import clean
from gandalf.data.new_examples import Example
from gandalf.errors import DataError
from gandalf.memory.keys import keys_of
from gandalf.memory.memory import EXAMPLE, Block, Memory, Record, Voting
from gandalf.model.chosen_labels import KnownLabels
from gandalf.model.part import Part
from gandalf.model.with_memory import ModelWithMemory, as_queries

WEIGHT = 0.5  # of a memory that nothing was fitted for: an example and the model count the same
ASKED = 1_000  # label texts that tell how near two different texts are


def with_examples(
    model: Part, examples: Sequence[Example], known: KnownLabels | None = None
) -> ModelWithMemory:
    """Return a model that also remembers these examples; the given one stays.

    A model without a memory gets one, in which only these examples are. `known` spares a caller who adds
    often from listing all labels each time.
    """
    remembering = model if isinstance(model, ModelWithMemory) else with_empty_memory(model)
    chosen = with_ids(examples, remembering)
    values = _values(chosen, remembering.num_labels, known or KnownLabels(remembering))
    records = [Record(clean(each.text), EXAMPLE, each.id) for each in chosen]
    return remembering.with_examples(values, records)


def with_ids(examples: Sequence[Example], model: Part) -> list[Example]:
    """Return the examples with an id each, or refuse those that cannot be added."""
    if not examples:
        raise DataError("there is no example to add", remedy="give at least one text with its labels")
    taken = set(model.memory.examples) if isinstance(model, ModelWithMemory) else set[str]()
    found = []
    for each in examples:
        each = replace(each.checked(), id=each.id or uuid.uuid4().hex)
        if each.id in taken:
            raise DataError(f"there is an example {each.id!r} already", remedy="give another id, or none")
        taken.add(str(each.id))
        found.append(each)
    return found


def without_example(model: Part, id: str) -> Part:
    """Return a model without an example that was added; the given one stays."""
    if not isinstance(model, ModelWithMemory):
        raise DataError(f"there is no example {id!r}", remedy="give the id of an added example")
    return model.without_examples([id])


def with_empty_memory(model: Part) -> ModelWithMemory:
    """Return the model with a memory that holds nothing yet and doubts everything farther than labels are."""
    vectors = as_queries(model.unit_vectors(_some(model.label_texts)))
    none = np.empty(0, dtype=np.int64)
    values = csr_array(np.zeros((0, model.num_labels), dtype=np.float32))
    empty = Block(keys_of(vectors[none]), values, ())
    near = keys_of(vectors).nearest(vectors, 2)[1][:, 1:]  # the second: every text is nearest to itself
    near = near[np.isfinite(near)]
    doubt = round(float(np.median(near)), 3) if len(near) else 0.5
    return ModelWithMemory(model, Memory((empty,), Voting(doubt=doubt)), WEIGHT)


def _some(texts: Sequence[str]) -> list[str]:
    places = np.unique(np.linspace(0, len(texts) - 1, ASKED).astype(np.int64))
    return [texts[place] for place in places.tolist()]


def _values(examples: Sequence[Example], labels: int, known: KnownLabels) -> csr_array:
    """Return the values of the labels that the examples name."""  # shape: (examples, labels)
    rows, columns, values = list[int](), list[int](), list[float]()
    for row, example in enumerate(examples):
        said = example.values or [1.0] * len(example.labels)
        for name, value in zip(example.labels, said, strict=True):
            numbers = known.numbers(name)
            if not numbers:
                what = f"{name!r}, a label of the example {example.text[:60]!r}, is no label of the model"
                remedy = "name a label by its id or its whole text" + known.hint(name)
                raise DataError(what, remedy=f"{remedy}, or add it first: gandalf add-labels")
            rows += [row] * len(numbers)
            columns += numbers
            values += [value] * len(numbers)
    shape = (len(examples), labels)
    found = csr_array((np.array(values, dtype=np.float32), (rows, columns)), shape=shape)
    found.data = np.clip(found.data, -1, 1)  # a label that is named twice
    return found
