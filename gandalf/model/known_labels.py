"""Look a label of a model up by its id, text or number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gandalf.data.matching import text_key


class Labelled(Protocol):
    """A model whose labels have texts and perhaps ids."""

    @property
    def label_texts(self) -> Sequence[str]:
        """Return the text of each label."""
        ...

    @property
    def label_ids(self) -> Sequence[str] | None:
        """Return the id of each label, or None if labels have no ids."""
        ...

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        ...


class Names(list[str]):
    """Texts or ids of labels, with an index by key. A list never changes.

    A longer list shares the index of the shorter list that it extends, so that adding a label costs one
    entry. The shared index may hold numbers beyond the end of a shorter list.
    """

    def __init__(self, names: Iterable[str], key: Callable[[str], str]) -> None:
        super().__init__(names)
        self.key = key
        self._index: dict[str, list[int]] = {}
        self._indexed = [0]  # number of names in the index; all lists that share the index share this list
        self._enter(0)

    def numbers(self, name: str) -> list[int]:
        """Return the positions of all names with the same key."""
        return [number for number in self._index.get(self.key(name), ()) if number < len(self)]

    def longer(self, more: Iterable[str]) -> Names:
        """Return a list with these names behind its own; this list does not change."""
        if self._indexed[0] != len(self):  # another list has extended the shared index
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
    """Return the names with an index; names that have the index already are returned as they are."""
    return names if isinstance(names, Names) and names.key is key else Names(names, key)


class KnownLabels:
    """The labels of a model, looked up by id, text or number."""

    def __init__(self, model: Labelled) -> None:
        self._model = model
        self._ids = indexed(model.label_ids or [], str)
        self._texts = indexed(model.label_texts, text_key)

    def numbers(self, name: str | int) -> list[int]:
        """Return the labels with that id, else with that text, else with that number; [] if there is none.

        A string is an id or a text, an int is a number. Several labels may share a text.
        """
        if isinstance(name, str):
            return self._ids.numbers(name) or self._texts.numbers(name)
        return [name] if 0 <= name < self._model.num_labels else []

    def hint(self, name: str | int) -> str:
        """Return ", such as ..." with a known text that begins like the name, or ""."""
        key, texts = text_key(str(name)), self._model.label_texts
        found = next((text for text in texts if key and text_key(text).startswith(key)), None)
        return "" if found is None else f", such as {found!r}"
