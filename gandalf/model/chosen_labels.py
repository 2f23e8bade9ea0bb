"""Labels that are to be added to a trained model: checked against those that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gandalf.data.formats.texts import clean
from gandalf.data.matching import text_key
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError

ADDED = "added_labels"  # in a model's config: a record for each time that labels were added


class Labelled(Protocol):
    """A model as far as the names of its labels go."""

    @property
    def label_texts(self) -> Sequence[str]:
        """Texts of the labels."""
        ...

    @property
    def label_ids(self) -> Sequence[str] | None:
        """Ids of the labels, if they have any."""
        ...

    @property
    def num_labels(self) -> int:
        """Number of labels L."""
        ...


@dataclass(frozen=True)
class Chosen:
    """Labels to add, the numbers of each one's known neighbours, and the ids of all labels afterwards."""

    labels: list[NewLabel]
    neighbours: list[list[int]]
    ids: list[str] | None


def checked_labels(model: Labelled, labels: Sequence[NewLabel]) -> Chosen:
    """Return the labels with clean texts, or refuse those that cannot be added."""
    if not labels:
        raise DataError("there is no label to add", remedy="give at least one text")
    labels = [replace(label, text=clean(label.text)) for label in labels]
    _refuse_known(model, labels)
    return Chosen(labels, _neighbours(model, labels), _ids(model, labels))


def added(config: dict[str, Any]) -> int:
    """Return how many of a model's labels, the last ones, were added without training."""
    return sum(int(record["labels"]) for record in config.get(ADDED, []))


def with_record(config: dict[str, Any], labels: Sequence[NewLabel], **more: object) -> dict[str, Any]:
    """Return the config with a record of the labels that are added, and of how they were made."""
    record = {
        "labels": len(labels),
        "with_examples": sum(bool(label.examples) for label in labels),
        "with_neighbours": sum(bool(label.neighbours) for label in labels),
        **more,
    }
    return {**config, ADDED: [*config.get(ADDED, []), record]}


def _refuse_known(model: Labelled, labels: Sequence[NewLabel]) -> None:
    known = {text_key(text) for text in model.label_texts}
    met: set[str] = set()
    for label in labels:
        key = text_key(label.text)
        if not key:
            raise label.refused("the label has no text, so nothing is known of it", "write the text")
        if key in known:
            raise label.refused(f"{label.text!r} is a label of the model already", "leave it out")
        if key in met:
            raise label.refused(f"{label.text!r} is there twice", "leave one out")
        met.add(key)


def _ids(model: Labelled, labels: Sequence[NewLabel]) -> list[str] | None:
    """Return all ids; a new label without one goes by its text."""
    if model.label_ids is None:
        for label in labels:
            if label.id is not None:
                what = f"{label.text!r} has the id {label.id!r}, and the model's labels have none"
                raise label.refused(what, "leave ids out")
        return None
    met = set(model.label_ids)
    found = list(model.label_ids)
    for label in labels:
        id = label.text if label.id is None else label.id
        if id in met:
            raise label.refused(f"the id {id!r} of {label.text!r} is taken", "give another id")
        met.add(id)
        found.append(id)
    return found


class KnownLabels:
    """The labels of a model by what people call them: id, text or number."""

    def __init__(self, model: Labelled) -> None:
        self._model = model
        self._ids: dict[str, list[int]] = {}
        for number, id in enumerate(model.label_ids or []):
            self._ids.setdefault(id, []).append(number)
        self._texts: dict[str, list[int]] = {}
        for number, text in enumerate(model.label_texts):
            self._texts.setdefault(text_key(text), []).append(number)

    def numbers(self, name: str | int) -> list[int]:
        """Return the labels of that id, else of that text, which several may share; none if it is unknown."""
        if isinstance(name, str):
            return self._ids.get(name) or self._texts.get(text_key(name), [])
        return [name] if 0 <= name < self._model.num_labels else []

    def hint(self, name: str | int) -> str:
        """Return a known label whose text begins with what was written, if there is one."""
        key, texts = text_key(str(name)), self._model.label_texts
        found = next((text for text in texts if key and text_key(text).startswith(key)), None)
        return "" if found is None else f", such as {found!r}"


def _neighbours(model: Labelled, labels: Sequence[NewLabel]) -> list[list[int]]:
    """Return the neighbours' numbers of each label; a text that several known labels share names them all."""
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
