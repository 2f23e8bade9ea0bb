"""Processes that train one model together, as the loop sees them; and a process alone.

Every operation must be reached by all ranks, in the same order. `ONE` stands for a process alone: all of its
operations give back what they were given, so that nobody has to ask which of the two it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class LostRankError(Exception):
    """Some ranks are gone, and the others cannot go on."""


class Ranks(Protocol):
    """The processes that train together, seen from one of them."""

    rank: int
    world: int
    here: int  # ranks on this machine
    sent: Counter[str]  # bytes handed over, by what they are

    def meet(self, device: str) -> None:
        """Open the lines to the others, from this device or `auto`; before, only `say` can be done."""
        ...

    def share(self, total: int) -> slice:
        """The part of so many points or labels that is this rank's."""
        ...

    def gathered(self, own: Tensor, total: int) -> Tensor:
        """Rows of all ranks, of which each gives its share."""  # shape: (own, ...) -> (total, ...)
        ...

    def summed(self, tensor: Tensor, what: str) -> Tensor:
        """The sum over ranks, in the tensor's place."""
        ...

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, through which a gradient finds its way back."""
        ...

    def guarded(self) -> AbstractContextManager[None]:
        """A body in which messages may not go through."""
        ...

    def sum_gradients(self, leaves: Sequence[Tensor]) -> None:
        """Give all ranks the sum of their gradients; who has none adds nothing."""
        ...

    def any(self, flag: bool) -> bool:
        """Whether it is so for any rank."""
        ...

    def first(self, work: Callable[[], Value]) -> Value:
        """What the first rank finds; a `DataError` is everybody's."""
        ...

    def everyone(self, value: Value) -> list[Value]:
        """The values of all ranks."""
        ...

    def alike(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the first one's numbers."""
        ...

    def collected(self, own: Tensor, total: int) -> Tensor:
        """Rows of all ranks for the first one, on the host, a rank at a time; the others keep their own."""
        ...

    def say(self, sentence: str) -> None:
        """Tell whoever watches, once."""
        ...


class One:
    """A process alone."""

    rank, world, here = 0, 1, 1

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def meet(self, device: str) -> None:
        """There are no others."""

    def share(self, total: int) -> slice:
        """All of it."""
        return slice(0, total)

    def gathered(self, own: Tensor, total: int) -> Tensor:
        """Its own."""
        return own

    def summed(self, tensor: Tensor, what: str) -> Tensor:
        """Itself."""
        return tensor

    def total(self, tensor: Tensor) -> Tensor:
        """Itself."""
        return tensor

    def guarded(self) -> AbstractContextManager[None]:
        """There are no messages."""
        return nullcontext()

    def sum_gradients(self, leaves: Sequence[Tensor]) -> None:
        """They are the sum already."""

    def any(self, flag: bool) -> bool:
        """Whether it is so."""
        return flag

    def first(self, work: Callable[[], Value]) -> Value:
        """Do it."""
        return work()

    def everyone(self, value: Value) -> list[Value]:
        """Its own."""
        return [value]

    def alike(self, tensors: Sequence[Tensor]) -> None:
        """They are."""

    def collected(self, own: Tensor, total: int) -> Tensor:
        """Its own."""
        return own

    def say(self, sentence: str) -> None:
        """Nobody waits for anybody, and there is nothing to tell."""


ONE = One()
