"""Labels by what people and programs call them: ids, texts, numbers, and parts of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gandalf.data.matching import text_key
from gandalf.errors import DataError
from gandalf.model import Part

END = "\n"  # no key holds one


class LabelNames:
    """The names of a model's labels; what each kind of question needs is prepared when it is first asked."""

    def __init__(self, model: Part) -> None:
        self._texts, self._ids, self._count = model.label_texts, model.label_ids, model.num_labels

    def numbers(self, names: Iterable[str | int]) -> tuple[int, ...]:
        """The labels of that number, id or whole text; a text that several share names them all."""
        return tuple(dict.fromkeys(label for name in names for label in self._of(name)))

    def one(self, name: str | int) -> int:
        """The first of them."""
        return self._of(name)[0]

    def describe(self, label: int) -> dict[str, str | int | None]:
        """Number, id and text of a label."""
        return {
            "label": label,
            "id": None if self._ids is None else self._ids[label],
            "text": self._texts[label],
        }

    def search(self, words: str, most: int) -> list[int]:
        """Labels whose text begins with the words, then those that hold them, each in their order."""
        wanted = text_key(words)
        if not wanted:
            return list(range(min(most, self._count)))
        found = dict.fromkeys(self._places(END + wanted, most))
        for label in self._places(wanted, most):
            if len(found) >= most:
                break
            found.setdefault(label)
        return list(found)

    def _of(self, name: str | int) -> list[int]:
        if isinstance(name, int):
            found = [name] if 0 <= name < self._count else []
        else:
            found = self._by_id.get(name) or self._by_text.get(text_key(name), [])
        if not found:
            what = f"there is no label {str(name)[:100]!r}"
            raise DataError(what, remedy="name a label by its number, its id or its whole text")
        return found

    def _places(self, wanted: str, most: int) -> Iterator[int]:
        """Labels in whose keys the text stands, at most so many of them."""
        keys, starts = self._keys
        at, given, last = keys.find(wanted), 0, -1
        while at >= 0 and given < most:
            label = int(np.searchsorted(starts, at + wanted.startswith(END), side="right")) - 1
            if label != last:
                yield label
                given, last = given + 1, label
            at = keys.find(wanted, int(starts[label + 1]) - 1)  # on from the end before the next label

    @cached_property
    def _by_id(self) -> dict[str, list[int]]:
        return _places_of(self._ids or ())

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        return _places_of(map(text_key, self._texts))

    @cached_property
    def _keys(self) -> tuple[str, npt.NDArray[np.int64]]:
        """All keys, each after an end, and where each begins; one more beginning at the very end."""
        keys = [text_key(text) for text in self._texts]
        starts = np.cumsum([1, *(len(key) + 1 for key in keys)])
        return END + END.join(keys) + END, starts


def _places_of(names: Iterable[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        found.setdefault(name, []).append(number)
    return found
