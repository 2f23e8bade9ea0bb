"""Progress bars on a terminal, silence everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Item = TypeVar("Item")


def _bar() -> Progress:
    # stderr, so that `--json` on stdout stays clean; disabled when nobody watches.
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, showing how far along they are."""
    with _bar() as bar:
        yield from bar.track(items, total=total, description=description)


class Meter:
    """Handle to a bar measured in work units, for loops that advance unevenly."""

    def __init__(self, bar: Progress, description: str, total: float) -> None:
        self._bar, self._task = bar, bar.add_task(description, total=total)

    def advance(self, amount: float) -> None:
        """Move the bar forward. Safe to call from several threads."""
        self._bar.advance(self._task, amount)


@contextmanager
def meter(description: str, total: float) -> Iterator[Meter]:
    """Open a bar that the body moves with `advance`."""
    with _bar() as bar:
        yield Meter(bar, description, total)
