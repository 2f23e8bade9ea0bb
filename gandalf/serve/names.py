"""Find a model's labels by number, id, whole text or a part of their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gandalf.data.matching import text_key
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.model.known_labels import KnownLabels

END = "\n"  # separates keys, since no key holds a line break


class LabelNames:
    """The names of a model's labels; each index is made at its first use."""

    def __init__(self, model: Part) -> None:
        self._model = model
        self._texts, self._ids, self._count = model.label_texts, model.label_ids, model.num_labels

    def numbers(self, names: Iterable[str | int]) -> tuple[int, ...]:
        """Return the labels with these numbers, ids or whole texts; a text names all labels that have it."""
        return tuple(dict.fromkeys(label for name in names for label in self._find(name)))

    def one(self, name: str | int) -> int:
        """Return the first label with this number, id or whole text."""
        return self._find(name)[0]

    def describe(self, label: int) -> dict[str, str | int | None]:
        """Return number, id and text of a label."""
        return {
            "label": label,
            "id": None if self._ids is None else self._ids[label],
            "text": self._texts[label],
        }

    def search(self, words: str, most: int) -> list[int]:
        """Return labels whose text begins with the words, then labels whose text contains them."""
        wanted = text_key(words)
        if not wanted:
            return list(range(min(most, self._count)))
        found = dict.fromkeys(self._containing(END + wanted, most))
        for label in self._containing(wanted, most):
            if len(found) >= most:
                break
            found.setdefault(label)
        return list(found)

    def _find(self, name: str | int) -> list[int]:
        """Return the labels of this name; raise a DataError if there is none."""
        found = self._known.numbers(name)
        if not found:
            what = f"there is no label {str(name)[:100]!r}"
            raise DataError(what, remedy="name a label by its number, its id or its whole text")
        return found

    def _containing(self, wanted: str, most: int) -> Iterator[int]:
        """Yield at most `most` labels whose key contains the text."""
        keys, starts = self._keys
        at, yielded, last = keys.find(wanted), 0, -1
        while at >= 0 and yielded < most:
            label = int(np.searchsorted(starts, at + wanted.startswith(END), side="right")) - 1
            if label != last:
                yield label
                yielded, last = yielded + 1, label
            at = keys.find(wanted, int(starts[label + 1]) - 1)  # go on at the separator before the next label

    @cached_property
    def _known(self) -> KnownLabels:
        return KnownLabels(self._model)

    @cached_property
    def _keys(self) -> tuple[str, npt.NDArray[np.int64]]:
        """Return all keys as one string with END around each, and the start of each key and of the end."""
        keys = [text_key(text) for text in self._texts]
        starts = np.cumsum([1, *(len(key) + 1 for key in keys)])
        return END + END.join(keys) + END, starts
