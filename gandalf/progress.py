"""Progress bars on a terminal, silence everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

Item = TypeVar("Item")
_within_another: ContextVar[bool] = ContextVar("within_another", default=False)


@contextmanager
def one_bar_only() -> Iterator[None]:
    """No bars inside the body: whoever opened one above it tells how far along everything is."""
    token = _within_another.set(True)
    try:
        yield
    finally:
        _within_another.reset(token)


def on_terminal(*columns: ProgressColumn) -> Progress | None:
    """A bar on standard error, so that `--json` on standard output stays clean; none when nobody watches."""
    if _within_another.get() or not sys.stderr.isatty():
        return None
    # What is printed meanwhile goes above the bar, unless it goes elsewhere.
    redirect = sys.stdout.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect)


def _bar() -> Progress | None:
    return on_terminal(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, showing how far along they are."""
    bar = _bar()
    if bar is None:
        yield from items
        return
    with bar:
        yield from bar.track(items, total=total, description=description)


class Meter:
    """Handle to a bar measured in work units, for loops that advance unevenly."""

    def __init__(self, bar: Progress | None, description: str, total: float) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(description, total=total)

    def advance(self, amount: float) -> None:
        """Move the bar forward. Safe to call from several threads."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)


@contextmanager
def meter(description: str, total: float) -> Iterator[Meter]:
    """Open a bar that the body moves with `advance`."""
    bar = _bar()
    if bar is None:
        yield Meter(None, description, total)
        return
    with bar:
        yield Meter(bar, description, total)
