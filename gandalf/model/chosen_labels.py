"""Labels that are to be added to a trained model: checked against those that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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


class Names(list[str]):
    """Texts or ids of labels that are found by a key. Longer lists share the index of shorter ones.

    So an added label costs its own entry. A list never changes: the index may know numbers beyond its end.
    """

    def __init__(self, names: Iterable[str], key: Callable[[str], str]) -> None:
        super().__init__(names)
        self.key = key
        self._index: dict[str, list[int]] = {}
        self._indexed = [0]  # names in the index, which all lists that share it have to know
        self._enter(0)

    def numbers(self, name: str) -> list[int]:
        """Return the places of all names of the same key."""
        return [number for number in self._index.get(self.key(name), ()) if number < len(self)]

    def longer(self, more: Iterable[str]) -> Names:
        """Return a list that goes on with these names; this one stays."""
        if self._indexed[0] != len(self):  # another list has gone on from this one
            return Names([*self, *more], self.key)
        found = Names((), self.key)
        found.extend(self)
        found.extend(more)
        found._index, found._indexed = self._index, self._indexed
        found._enter(len(self))
        return found

    def _enter(self, first: int) -> None:
        for number in range(first, len(self)):
            self._index.setdefault(self.key(self[number]), []).append(number)
        self._indexed[0] = len(self)


def indexed(names: Sequence[str], key: Callable[[str], str]) -> Names:
    """Return the names with an index, which they may have already."""
    return names if isinstance(names, Names) and names.key is key else Names(names, key)


@dataclass(frozen=True)
class Chosen:
    """Labels to add, the numbers of their known neighbours, and texts and ids of all labels afterwards."""

    labels: list[NewLabel]
    neighbours: list[list[int]]
    texts: Names
    ids: Names | None


def checked_labels(model: Labelled, labels: Sequence[NewLabel]) -> Chosen:
    """Return the labels with clean texts, or refuse those that cannot be added."""
    if not labels:
        raise DataError("there is no label to add", remedy="give at least one text")
    labels = [replace(label, text=clean(label.text)) for label in labels]
    texts = indexed(model.label_texts, text_key)
    _refuse_known(texts, labels)
    neighbours, ids = _neighbours(model, labels), _ids(model, labels)
    return Chosen(labels, neighbours, texts.longer(label.text for label in labels), ids)


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


def _refuse_known(known: Names, labels: Sequence[NewLabel]) -> None:
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
    """Return all ids; a new label without one goes by its text."""
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


class KnownLabels:
    """The labels of a model by what people call them: id, text or number."""

    def __init__(self, model: Labelled) -> None:
        self._model = model
        self._ids = indexed(model.label_ids or [], str)
        self._texts = indexed(model.label_texts, text_key)

    def numbers(self, name: str | int) -> list[int]:
        """Return the labels of that id, else of that text, which several may share; none if it is unknown."""
        if isinstance(name, str):
            return self._ids.numbers(name) or self._texts.numbers(name)
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
