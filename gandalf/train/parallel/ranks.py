"""Define ranks: processes that train one model together, or one process that trains alone.

All ranks must call the same operations in the same order. `ONE` returns what it is given, so callers need
not ask how many ranks there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from torch import Tensor

Value = TypeVar("Value")


class LostRankError(Exception):
    """Some ranks are gone, so the others cannot go on."""


def share(total: int, rank: int, world: int) -> slice:
    """Return the range of `total` points or labels that belongs to a rank; ranges differ by at most one."""
    return slice(total * rank // world, total * (rank + 1) // world)


class Ranks:
    """All processes of a training, seen from one of them: here the only process, in `Several` one of many."""

    rank: int = 0
    world: int = 1
    local_world: int = 1  # ranks on this machine

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()  # bytes sent, by content

    def connect(self, device: str) -> None:
        """Connect to the other ranks from a device, or `auto`; before this only `say_once` works."""

    def share(self, total: int) -> slice:
        """Return the range of `total` points or labels that belongs to this rank."""
        return share(total, self.rank, self.world)

    def gather(self, own: Tensor, total: int) -> Tensor:
        """Return the rows of all ranks; each rank gives its share."""  # shape: (own, ...) -> (total, ...)
        return own

    def sum_in_place(self, tensor: Tensor, what: str) -> Tensor:
        """Replace the tensor by its sum over ranks and return it; `what` names it in `sent`."""
        return tensor

    def differentiable_sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over ranks, with a gradient."""
        return tensor

    def name_lost_ranks(self) -> AbstractContextManager[None]:
        """Turn a failed message in the body into a `LostRankError` that names the lost ranks."""
        return nullcontext()

    def sum_gradients(self, leaves: Sequence[Tensor]) -> None:
        """Replace each leaf's gradient by its sum over ranks; a rank without a gradient adds zero."""

    def any_rank(self, flag: bool) -> bool:
        """Return True if the flag is set on any rank."""
        return flag

    def on_first(self, work: Callable[[], Value]) -> Value:
        """Call `work` on rank 0 alone and return its value, or raise its `DataError`, on every rank."""
        return work()

    def values_of_all(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in rank order."""
        return [value]

    def synchronise(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors by those of rank 0."""

    def gather_on_first(self, own: Tensor, total: int) -> Tensor:
        """Return the rows of all ranks on rank 0's host, received rank by rank; other ranks keep theirs."""
        return own

    def say_once(self, sentence: str) -> None:
        """Write the sentence to stderr once, whichever of several ranks comes first."""


ONE = Ranks()
