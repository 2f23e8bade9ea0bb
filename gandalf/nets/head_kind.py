"""What a run must know of a head before it is built: what its rows are made of, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from gandalf.nets.kinds import HEADS

TextPart = Literal[
    "own", "averaged"
]  # a label's own text, and the texts of its neighbours in the label graph
# Standard deviation of a label's scores over the training texts. On four development sets the start has its
# lowest loss between 0.5 and 1.0, and its highest P@1 about here.
SPREAD = 0.9


@dataclass(frozen=True)
class HeadKind:
    """One way to make the labels' rows: free ones, or free ones mixed with label texts."""

    texts: tuple[TextPart, ...] = ()  # that are mixed with free rows
    mix: Callable[[int, int], nn.Module] | None = None  # by the numbers of a row and the parts to mix
    spread: float = SPREAD  # of the first scores
    row_values: int = 0  # vectors that a label's row keeps for the way back, counted in tests
    slower: float = 1.0  # times what an update with free rows takes


def head_kind(name: str) -> HeadKind:
    """Return a kind of head by its name."""
    found: HeadKind = HEADS.load(name)
    return found


TABLE = HeadKind()
