"""Show progress: bars on a terminal; elsewhere lines for commands, and nothing for the library."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
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
_by_lines: ContextVar[bool] = ContextVar("by_lines", default=False)
EVERY = 30.0  # seconds between two lines
_UNITS = ((3600.0, "h"), (60.0, "min"))


class Lines:
    """Progress for the log of a job: a line on standard error every half minute."""

    def __init__(self, description: str, total: float | None, done: float = 0.0) -> None:
        self._description, self._total, self._first, self._done = description, total, done, done
        self._started = self._told = time.monotonic()
        self.note = ""  # stands at the end of the line

    def advance(self, amount: float) -> None:
        """Move on; write a line if the last one is old enough."""
        self._done += amount
        now = time.monotonic()
        if now - self._told >= EVERY:
            self._told = now
            sys.stderr.write(f"{self._line(now - self._started)}\n")
            sys.stderr.flush()

    def _line(self, seconds: float) -> str:
        parts = []
        if self._total:
            parts.append(f"{min(self._done / self._total, 1):.0%}")
            moved = self._done - self._first
            if moved > 0:
                parts.append(f"{duration_in_words((self._total - self._done) * seconds / moved)} left")
        return f"{self._description}: " + ", ".join([*parts, *([self.note] if self.note else [])])


def duration_in_words(seconds: float) -> str:
    """Return a length of time in words, rounded as a forecast deserves: `2.5 h`, `12 min`, `40 s`."""
    seconds = max(seconds, 0.0)
    for length, unit in _UNITS:
        if seconds >= 1.5 * length:
            return f"{seconds / length:.{0 if seconds >= 10 * length else 1}f} {unit}"
    return f"{seconds:.0f} s"


def show_progress_by_lines() -> None:
    """Write progress as lines where no terminal shows bars. Commands call this; the library stays silent."""
    _by_lines.set(True)


def lines(description: str, total: float | None, done: float = 0.0) -> Lines | None:
    """Return progress as lines; None in a library call, on a terminal, and inside another bar."""
    wanted = _by_lines.get() and not _within_another.get() and not sys.stderr.isatty()
    return Lines(description, total, done) if wanted else None


@contextmanager
def without_bars() -> Iterator[None]:
    """Show no bars inside the body, because an outer bar shows the progress of the whole."""
    token = _within_another.set(True)
    try:
        yield
    finally:
        _within_another.reset(token)


def terminal_bar(*columns: ProgressColumn) -> Progress | None:
    """Return a bar on standard error, which keeps `--json` on standard output clean; None without a
    terminal."""
    if _within_another.get() or not sys.stderr.isatty():
        return None
    # Show other output above the bar if it also goes to the terminal.
    redirect = sys.stdout.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=redirect)


def _bar() -> Progress | None:
    return terminal_bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items, and show the progress."""
    bar = _bar()
    if bar is None:
        written = lines(description, total if total is not None else _length(items))
        for item in items:
            yield item
            if written is not None:
                written.advance(1)
        return
    with bar:
        yield from bar.track(items, total=total, description=description)


def _length(items: Iterable[object]) -> int | None:
    return len(items) if isinstance(items, Sized) else None


class Meter:
    """A bar measured in work units, for loops with steps of different cost."""

    def __init__(self, bar: Progress | None, description: str, total: float) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(description, total=total)
        self._lines = lines(description, total) if bar is None else None

    def advance(self, amount: float) -> None:
        """Move the bar forward. Several threads may call this."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)
        if self._lines is not None:
            self._lines.advance(amount)


@contextmanager
def meter(description: str, total: float) -> Iterator[Meter]:
    """Open a bar; the body moves it with `advance`."""
    bar = _bar()
    if bar is None:
        yield Meter(None, description, total)
        return
    with bar:
        yield Meter(bar, description, total)
