"""Add examples, which are texts with known labels, to the memory of a model; they count at once."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.formats.texts import clean
from gandalf.data.matching import text_key
from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.memory.keys import keys_of
from gandalf.memory.memory import EXAMPLE, EntryGroup, Memory, Record, Voting
from gandalf.model.calibration import Calibration
from gandalf.model.known_labels import KnownLabels
from gandalf.model.part import Part, sample_label_texts
from gandalf.model.with_memory import ModelWithMemory, as_queries

WEIGHT = 0.5  # weight of a memory that was not fitted: examples and model count the same
SAMPLED = 1_000  # label texts that are compared to learn how near two different texts are


def with_examples(
    model: Part, examples: Sequence[Example], known: KnownLabels | None = None
) -> ModelWithMemory:
    """Return a model that also remembers these examples; the given model does not change.

    A model without a memory gets a memory of these examples alone. Give `known` if you add examples often:
    otherwise all labels are indexed each time.
    """
    if not examples:
        raise DataError("there is no example to add", remedy="give at least one text with its labels")
    remembering = model if isinstance(model, ModelWithMemory) else with_empty_memory(model)
    known = known or KnownLabels(remembering)
    chosen = [with_label_numbers(each, known) for each in examples_with_ids(examples)]
    _refuse_taken(chosen, remembering)
    texts = [clean(each.text) for each in chosen]
    for text, is_known in zip(texts, remembering.knows(texts).tolist(), strict=True):
        if not is_known:
            what = f"nothing in the example {text[:60]!r} is known to the model, so it would never be found"
            raise DataError(what, remedy="leave the example out, or train a model that reads such texts")
    records = [Record(text, EXAMPLE, each.id) for text, each in zip(texts, chosen, strict=True)]
    return remembering.with_examples(_value_matrix(chosen, remembering.num_labels), records)


def examples_for(model: Part, points: Dataset) -> list[Example]:
    """Return the labelled points of a data set as examples, with the model's numbers as labels."""
    numbers = _label_numbers(model, points)
    found = []
    for row, text in enumerate(points.need_texts("adding examples")[0]):
        of_row = slice(points.targets.indptr[row], points.targets.indptr[row + 1])
        labels = [numbers[label] for label in points.targets.indices[of_row].tolist()]
        id = None if points.ids is None else points.ids[row]
        if labels:
            found.append(Example(text, labels, points.targets.data[of_row].tolist(), id or None))
    return found


def with_new_labels(model: Part, points: Dataset) -> Part:
    """Return the model with the labels that the points use and the model does not have yet."""
    known, ids = KnownLabels(model), model.label_ids is not None
    new = [
        NewLabel(text, name if ids else None)
        for name, text in _used_labels(points).values()
        if not known.numbers(name) and not known.numbers(text)
    ]
    return model.with_labels(new) if new else model


def _label_numbers(model: Part, points: Dataset) -> dict[int, int]:
    """Return the model's number of each label that the points use, by id and text together."""
    known, found = KnownLabels(model), dict[int, int]()
    for label, (name, text) in _used_labels(points).items():
        numbers = known.numbers(name) or known.numbers(text)
        if not numbers:
            what = f"{text!r} is no label of the model"
            remedy = f"add it with --new-labels, or name a label that the model has{known.hint(text)}"
            raise DataError(what, remedy=remedy)
        known_text = model.label_texts[numbers[0]]
        if name != text and text_key(known_text) != text_key(text):
            what = f"the label {name!r} is {text[:60]!r} in the data, and {known_text[:60]!r} in the model"
            raise DataError(what, remedy="give the label texts that the model was trained with")
        found[label] = numbers[0]
    return found


def _used_labels(points: Dataset) -> dict[int, tuple[str, str]]:
    """Return name and text of each label that some point has; the name is the id, or else the text."""
    texts = points.need_texts("adding examples")[1]
    names = texts if points.label_ids is None else points.label_ids
    used = np.flatnonzero(points.label_frequencies > 0).tolist()
    return {at: (names[at], texts[at]) for at in used}


def examples_with_ids(examples: Sequence[Example]) -> list[Example]:
    """Return the checked examples, each with an id."""
    return [replace(each.checked(), id=each.id or uuid.uuid4().hex) for each in examples]


def with_label_numbers(example: Example, known: KnownLabels) -> Example:
    """Return the example with its labels as numbers; raise a DataError for a label that is unknown."""
    labels, values = list[int](), list[float]()
    for name, value in zip(example.labels, example.values or [1.0] * len(example.labels), strict=True):
        numbers = known.numbers(name)
        if not numbers:
            what = f"{name!r}, a label of the example {example.text[:60]!r}, is no label of the model"
            remedy = "name a label by its id or its whole text" + known.hint(name)
            raise DataError(what, remedy=f"{remedy}, or add it first: gandalf add-labels")
        labels += numbers
        values += [value] * len(numbers)
    if len(set(labels)) < len(labels):
        what = f"the example {example.text[:60]!r} names a label twice"
        raise DataError(what, remedy="name each label once")
    return replace(example, labels=labels, values=values)


def example_ids(model: Part) -> Collection[str]:
    """Return the ids of the examples that were added to a model."""
    return model.memory.examples if isinstance(model, ModelWithMemory) else ()


def _refuse_taken(examples: Sequence[Example], model: Part) -> None:
    """Refuse ids that another example has already."""
    taken, met = example_ids(model), set[str | None]()
    for each in examples:
        if each.id in taken or each.id in met:
            raise DataError(f"there is an example {each.id!r} already", remedy="give another id, or none")
        met.add(each.id)


def with_examples_of(model: Part, other: Part) -> Part:
    """Return the model with the examples that another model of the same labels remembers."""
    groups = other.memory.groups if isinstance(other, ModelWithMemory) else ()
    for group in groups:
        places = [at for at, record in enumerate(group.records) if record.kind == EXAMPLE]
        if places:
            remembering = model if isinstance(model, ModelWithMemory) else with_empty_memory(model)
            records = [group.records[at] for at in places]
            model = remembering.with_examples(csr_array(group.values[places]), records)
    return model


def without_example(model: Part, id: str) -> Part:
    """Return a model without one added example; the given model does not change."""
    if not isinstance(model, ModelWithMemory):
        raise DataError(f"there is no example {id!r}", remedy="give the id of an added example")
    return model.without_examples([id])


def with_empty_memory(model: Part) -> ModelWithMemory:
    """Return the model with an empty memory that doubts texts farther away than label texts are apart."""
    vectors = as_queries(model.unit_vectors(sample_label_texts(model, SAMPLED)))
    none = np.empty(0, dtype=np.int64)
    values = csr_array(np.zeros((0, model.num_labels), dtype=np.float32))
    empty = EntryGroup(keys_of(vectors[none]), values, ())
    near = keys_of(vectors).nearest(vectors, 2)[1][:, 1:]  # the second: each text is nearest to itself
    near = near[np.isfinite(near)]
    doubt = round(float(np.median(near)), 3) if len(near) else 0.5
    calibration = None if model.calibration is None else Calibration()  # its probabilities are calibrated
    return ModelWithMemory(model, Memory((empty,), Voting(doubt=doubt)), WEIGHT, calibration)


def _value_matrix(examples: Sequence[Example], labels: int) -> csr_array:
    """Return the matrix of the values of examples, whose labels are numbers."""  # shape: (examples, labels)
    rows = np.repeat(np.arange(len(examples)), [len(each.labels) for each in examples])
    columns = [int(label) for each in examples for label in each.labels]
    values = np.array([value for each in examples for value in each.values or ()], dtype=np.float32)
    return csr_array((values, (rows, columns)), shape=(len(examples), labels))
