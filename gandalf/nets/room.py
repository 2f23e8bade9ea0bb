"""Keep tensors in memory with room at the end, so that new rows can be added without copying all rows."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import torch
from torch import Tensor

SPARE = 8  # the room has one spare row for each 8 rows
LEAST = 1_024  # least number of spare rows


class Room:
    """Memory shared by tensors of different lengths, each of which is a view of its first rows; rows are only
    added."""

    def __init__(self, first: Tensor, more: int = 0) -> None:
        spare = max(LEAST, len(first) // SPARE)
        self._memory = first.new_empty(len(first) + more + spare, *first.shape[1:])
        self._memory[: len(first)] = first
        self._used = len(first)
        self._adding = threading.Lock()

    def first(self, count: int) -> Tensor:
        """Return the first rows."""
        return self._memory[:count]

    def hold(self, count: int, more: Tensor) -> bool:
        """Add rows after the first `count`; return False if other rows are there or the room is full."""
        end = count + len(more)
        with self._adding:
            if end <= self._used:  # the same rows were added before
                return torch.equal(self._memory[count:end], more)
            if count != self._used or end > len(self._memory):
                return False
            self._memory[count:end] = more
            self._used = end
        return True


Rooms = Mapping[str, Room]


def with_rooms(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Rooms]:
    """Return the same tensors, each in a new room."""
    rooms = {name: Room(tensor) for name, tensor in tensors.items()}
    return {name: rooms[name].first(len(tensor)) for name, tensor in tensors.items()}, rooms


def lengthened(
    tensors: Mapping[str, Tensor], more: Mapping[str, Tensor], rooms: Rooms
) -> tuple[dict[str, Tensor], Rooms]:
    """Return the tensors with more rows, and their rooms; the given tensors do not change.

    Tensors in rooms share their rows with the longer ones; other tensors are copied.
    """
    if not rooms:
        return {name: torch.cat([old, more[name].to(old)]) for name, old in tensors.items()}, {}
    found, places = dict[str, Tensor](), dict[str, Room]()
    for name, old in tensors.items():
        new, room = more[name].to(old), rooms[name]
        if not room.hold(len(old), new):
            room = Room(old, len(new))
            room.hold(len(old), new)
        found[name], places[name] = room.first(len(old) + len(new)), room
    return found, places
