"""Keep tensors in memory with spare rows at the end, so that adding rows does not copy all rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import torch
from torch import Tensor

SPARE = 8  # one spare row for each 8 rows
LEAST = 1_024  # least number of spare rows


class GrowingRows:
    """Memory with spare rows that tensors of different lengths share: each is a view of its first rows.

    Rows are only ever added.
    """

    def __init__(self, first: Tensor, more: int = 0) -> None:
        spare = max(LEAST, len(first) // SPARE)
        self._memory = first.new_empty(len(first) + more + spare, *first.shape[1:])
        self._memory[: len(first)] = first
        self._used = len(first)
        self._adding = threading.Lock()

    def first(self, count: int) -> Tensor:
        """Return the first rows."""
        return self._memory[:count]

    def append(self, count: int, more: Tensor) -> bool:
        """Add rows after the first `count`; return False if other rows are there or no spare row is left."""
        end = count + len(more)
        with self._adding:
            if end <= self._used:  # the same rows were added before
                return torch.equal(self._memory[count:end], more)
            if count != self._used or end > len(self._memory):
                return False
            self._memory[count:end] = more
            self._used = end
        return True

    def is_end(self, count: int) -> bool:
        """Return True if no rows were added after the first `count`."""
        return self._used == count

    def cut(self, count: int) -> None:
        """Free the rows after the first `count`; no tensor that is still in use may have them."""
        with self._adding:
            self._used = count


Growing = Mapping[str, GrowingRows]


def as_growing(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Growing]:
    """Return the same tensors, each copied into memory with spare rows, and this memory by name."""
    growing = {name: GrowingRows(tensor) for name, tensor in tensors.items()}
    return {name: growing[name].first(len(tensor)) for name, tensor in tensors.items()}, growing


def with_more_rows(
    tensors: Mapping[str, Tensor], more: Mapping[str, Tensor], growing: Growing
) -> tuple[dict[str, Tensor], Growing]:
    """Return the tensors with more rows, and their memory by name; the given tensors do not change.

    Tensors in `growing` share their rows with the longer ones; without it, all rows are copied.
    """
    if not growing:
        return {name: torch.cat([old, more[name].to(old)]) for name, old in tensors.items()}, {}
    found, places = dict[str, Tensor](), dict[str, GrowingRows]()
    for name, old in tensors.items():
        new, own = more[name].to(old), growing[name]
        if not own.append(len(old), new):
            own = GrowingRows(old, len(new))
            own.append(len(old), new)
        found[name], places[name] = own.first(len(old) + len(new)), own
    return found, places
