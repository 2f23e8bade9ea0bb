"""Define what a run must know before it builds a head: the parts of its rows, and their cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from gandalf.nets.kinds import HEADS

# A label's own text, or the texts of its neighbours in the label graph.
TextPart = Literal["own", "averaged"]
# Standard deviation of a label's scores over the training texts. On four development sets the start has its
# lowest loss between 0.5 and 1.0, and its highest P@1 about here.
SPREAD = 0.9


@dataclass(frozen=True)
class HeadKind:
    """One way to make the labels' rows: free ones, or free ones mixed with label texts."""

    texts: tuple[TextPart, ...] = ()  # parts that are mixed with free rows
    mix: Callable[[int, int], nn.Module] | None = None  # takes the size of a row and the number of parts
    spread: float = SPREAD  # of the first scores
    row_values: int = 0  # vectors that a label's row stores for the backward pass, counted in tests
    slower: float = 1.0  # time of an update, as a multiple of that with free rows


def head_kind(name: str) -> HeadKind:
    """Return a kind of head by its name."""
    found: HeadKind = HEADS.load(name)
    return found


TABLE = HeadKind()
