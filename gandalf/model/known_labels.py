"""Look a label of a model up by its id, text or number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Protocol, overload

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


class Names(Sequence[str]):
    """Texts or ids of labels, with an index by key. The names never change.

    A longer sequence shares names and index with the shorter sequence that it extends, so that adding a label
    costs one entry, however many labels there are. What is shared may hold names beyond the end of a shorter
    sequence.
    """

    def __init__(self, names: Iterable[str], key: Callable[[str], str]) -> None:
        self.key = key
        self._shared = list(names)
        self._count = len(self._shared)
        self._index: dict[str, list[int]] = {}
        self._enter(0)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self._shared[at] for at in range(self._count)[place]]
        return self._shared[range(self._count)[place]]

    def __iter__(self) -> Iterator[str]:
        return islice(self._shared, self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | Names) and list(self) == list(other)

    def __repr__(self) -> str:
        return repr(list(self))

    def numbers(self, name: str) -> list[int]:
        """Return the positions of all names with the same key."""
        return [number for number in self._index.get(self.key(name), ()) if number < self._count]

    def longer(self, more: Iterable[str]) -> Names:
        """Return the names with these names behind them; this sequence does not change."""
        if len(self._shared) != self._count:  # another sequence has extended what is shared
            return Names([*self, *more], self.key)
        found = copy(self)
        found._shared.extend(more)
        found._count = len(found._shared)
        found._enter(self._count)
        return found

    def is_end(self) -> bool:
        """Return True if no other sequence has extended what is shared."""
        return len(self._shared) == self._count

    def cut(self) -> None:
        """Remove what other sequences have added to what is shared; none of them may still be in use."""
        for name in reversed(self._shared[self._count :]):
            self._index[self.key(name)].pop()
        del self._shared[self._count :]

    def _enter(self, first: int) -> None:
        for number in range(first, self._count):
            self._index.setdefault(self.key(self._shared[number]), []).append(number)


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
