"""What goes wrong with a user's input, said in one sentence: where, what, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # quoted from someone's file; a terminal would obey them

# Stands on both sides of an argument in a message. It is invisible and in no one's file by chance.
_MARK = "\u2063"
_ARGUMENT = re.compile(f"{_MARK}([a-z_]+)=([^{_MARK}]*){_MARK}")
_ANY = "..."

Severity = Literal["error", "warning", "note"]


def argument(name: str, value: object = _ANY) -> str:
    """Name an argument in a message: `name=...` to a caller from Python, `--name` on the command line.

    With a value it is `name='value'` and `--name value`; True is a flag that is given.
    """
    return f"{_MARK}{name}={_ANY if value is _ANY else repr(value)}{_MARK}"


def _as_flag(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2]
    return f"--{name}" if value in (_ANY, "True") else f"--{name} {value.strip(chr(39))}"


@dataclass(frozen=True)
class Problem:
    """One finding about the input: its kind, where it is, what is wrong and the remedy."""

    kind: str  # a stable slug that scripts can match, such as "index-out-of-range"
    severity: Severity
    what: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None  # of a file counted from 1, the header included; of a DataFrame from 0

    def __str__(self) -> str:
        sentence = f"{self._where}{self.what}" + (f"; {self.remedy}" if self.remedy else "")
        return _CONTROL.sub("\ufffd", sentence.replace(_MARK, ""))

    @property
    def _where(self) -> str:
        if self.file is None:
            return ""
        if self.line is None:
            return f"{self.file}: "
        in_memory = self.file.startswith("<")  # as Python writes <stdin>
        return f"{self.file}, row {self.line}: " if in_memory else f"{self.file}:{self.line}: "

    def plain(self) -> Problem:
        """Return the same with the marks of arguments left out of its parts."""
        return replace(self, what=self.what.replace(_MARK, ""), remedy=self.remedy.replace(_MARK, ""))

    def with_flags(self) -> Problem:
        """Say the same on the command line: arguments are flags there."""
        what, remedy = (_ARGUMENT.sub(_as_flag, part) for part in (self.what, self.remedy))
        return replace(self, what=what, remedy=remedy)


class DataError(ValueError):
    """Bad input or usage. Its text is one sentence; the command prints it and exits with 2."""

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
        kind: str = "bad-input",
    ) -> None:
        self.problem = Problem(kind, "error", what, remedy, None if file is None else str(file), line)
        super().__init__(str(self.problem))


@dataclass
class Findings:
    """Collects what readers find.

    Strict (the default) raises the first error as a `DataError`; `gandalf check` collects instead, and
    the reader goes on after mending or dropping the entry. A kind is listed at most `per_kind` times
    for each file and counted beyond that.
    """

    strict: bool = True
    per_kind: int = 5
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def add(
        self,
        severity: Severity,
        kind: str,
        what: str,
        *,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        """Record one finding, or raise it if it is an error and the collector is strict."""
        problem = Problem(kind, severity, what, remedy, None if file is None else str(file), line)
        if self.strict and severity == "error":
            raise DataError(what, remedy=remedy, file=file, line=line, kind=kind)
        self.counts[kind, problem.file] += 1
        if self.counts[kind, problem.file] <= self.per_kind:
            self.problems.append(problem)

    def error(
        self,
        kind: str,
        what: str,
        *,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        """Record an error: the data cannot be used as it is."""
        self.add("error", kind, what, remedy=remedy, file=file, line=line)

    def warn(
        self,
        kind: str,
        what: str,
        *,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        """Record a warning: usable, but results will suffer or mislead."""
        self.add("warning", kind, what, remedy=remedy, file=file, line=line)

    def note(
        self,
        kind: str,
        what: str,
        *,
        remedy: str = "",
        file: str | Path | None = None,
        line: int | None = None,
    ) -> None:
        """Record a fact worth knowing that is no fault of the data."""
        self.add("note", kind, what, remedy=remedy, file=file, line=line)
