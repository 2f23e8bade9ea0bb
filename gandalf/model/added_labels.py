"""Check new labels against the labels of a trained model, before they are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gandalf.data.formats.texts import clean
from gandalf.data.matching import text_key
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model.known_labels import KnownLabels, Labelled, Names, indexed

ADDED = "added_labels"  # key of a model's config: one record for each addition of labels


@dataclass(frozen=True)
class LabelsToAdd:
    """Labels to add, the numbers of their neighbours, and texts and ids of all labels afterwards."""

    labels: list[NewLabel]
    neighbours: list[list[int]]
    texts: Names
    ids: Names | None


def checked_labels(model: Labelled, labels: Sequence[NewLabel]) -> LabelsToAdd:
    """Return the labels with clean texts; raise a DataError for a label that cannot be added."""
    if not labels:
        raise DataError("there is no label to add", remedy="give at least one text")
    labels = [replace(label, text=clean(label.text)) for label in labels]
    texts = indexed(model.label_texts, text_key)
    _refuse_known(texts, labels)
    neighbours, ids = _neighbours(model, labels), _ids(model, labels)
    return LabelsToAdd(labels, neighbours, texts.longer(label.text for label in labels), ids)


def count_added(config: Mapping[str, Any]) -> int:
    """Return the number of labels that were added without training; they are the model's last labels."""
    return sum(int(record["labels"]) for record in config.get(ADDED, []))


def with_record(config: dict[str, Any], labels: Sequence[NewLabel], **more: object) -> dict[str, Any]:
    """Return the config with a further record: the number of added labels, and how they were made."""
    record = {
        "labels": len(labels),
        "with_examples": sum(bool(label.examples) for label in labels),
        "with_neighbours": sum(bool(label.neighbours) for label in labels),
        **more,
    }
    return {**config, ADDED: [*config.get(ADDED, []), record]}


def _refuse_known(known: Names, labels: Sequence[NewLabel]) -> None:
    """Refuse a label without a text, or with the text of a known or another new label."""
    met: set[str] = set()
    for label in labels:
        key = text_key(label.text)
        if not key:
            raise label.refused("the label has no text, so nothing is known of it", "write the text")
        if known.numbers(label.text):
            raise label.refused(f"{label.text!r} is a label of the model already", "leave it out")
        if key in met:
            raise label.refused(f"{label.text!r} is there twice", "leave one out")
        met.add(key)


def _ids(model: Labelled, labels: Sequence[NewLabel]) -> Names | None:
    """Return the ids of all labels, or None without ids; the id of a new label without one is its text."""
    if model.label_ids is None:
        for label in labels:
            if label.id is not None:
                what = f"{label.text!r} has the id {label.id!r}, and the model's labels have none"
                raise label.refused(what, "leave ids out")
        return None
    known, new = indexed(model.label_ids, str), dict[str, None]()
    for label in labels:
        id = label.text if label.id is None else label.id
        if known.numbers(id) or id in new:
            raise label.refused(f"the id {id!r} of {label.text!r} is taken", "give another id")
        new[id] = None
    return known.longer(new)


def _neighbours(model: Labelled, labels: Sequence[NewLabel]) -> list[list[int]]:
    """Return the numbers of each label's neighbours; a text names all known labels that have it."""
    if not any(label.neighbours for label in labels):
        return [[] for _ in labels]
    known = KnownLabels(model)

    def numbers(label: NewLabel, name: str | int) -> list[int]:
        found = known.numbers(name)
        if not found:
            what = f"the neighbour {name!r} of {label.text!r} is no label of the model"
            raise label.refused(what, "name a known label by its id or its whole text" + known.hint(name))
        return found

    return [
        list(dict.fromkeys(number for name in label.neighbours for number in numbers(label, name)))
        for label in labels
    ]
