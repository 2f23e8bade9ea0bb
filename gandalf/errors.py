"""Report problems with a user's input in one sentence: where, what, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypedDict, Unpack

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # a message may quote them from a file; a terminal obeys them

# This mark encloses an argument in a message. It is invisible, and hardly occurs in files.
_MARK = "\u2063"
_ARGUMENT = re.compile(f"{_MARK}([a-z_]+)=([^{_MARK}]*){_MARK}")
_ANY = "..."

Severity = Literal["error", "warning", "note"]


def argument(name: str, value: object = _ANY) -> str:
    """Name an argument in a message: shown as `name=...` in Python, and as `--name` on the command line.

    With a value it is shown as `name='value'` and `--name value`; with the value True as the flag `--name`.
    """
    return f"{_MARK}{name}={_ANY if value is _ANY else repr(value)}{_MARK}"


def _as_flag(found: re.Match[str]) -> str:
    name, value = found[1].replace("_", "-"), found[2]
    return f"--{name}" if value in (_ANY, "True") else f"--{name} {value.strip(chr(39))}"


@dataclass(frozen=True)
class Problem:
    """A finding about the input: its kind, its place, what is wrong, and the remedy."""

    kind: str  # a stable name that scripts can match, such as "index-out-of-range"
    severity: Severity
    what: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None  # of a file, from 1, the header included; of a DataFrame, from 0

    def __str__(self) -> str:
        sentence = f"{self._where}{self.what}" + (f"; {self.remedy}" if self.remedy else "")
        return _CONTROL.sub("\ufffd", sentence.replace(_MARK, ""))

    @property
    def _where(self) -> str:
        if self.file is None:
            return ""
        if self.line is None:
            return f"{self.file}: "
        in_memory = self.file.startswith("<")  # such as <DataFrame>
        return f"{self.file}, row {self.line}: " if in_memory else f"{self.file}:{self.line}: "

    def plain(self) -> Problem:
        """Return the problem without the marks around arguments."""
        return replace(self, what=self.what.replace(_MARK, ""), remedy=self.remedy.replace(_MARK, ""))

    def with_flags(self) -> Problem:
        """Return the problem for the command line, with arguments as flags."""
        what, remedy = (_ARGUMENT.sub(_as_flag, part) for part in (self.what, self.remedy))
        return replace(self, what=what, remedy=remedy)


class DataError(ValueError):
    """Bad input or usage. Its text is one sentence, which the command prints before it exits with 2."""

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


class Details(TypedDict, total=False):
    """Remedy and place of a finding."""

    remedy: str
    file: str | Path | None
    line: int | None


@dataclass
class Findings:
    """Collect the findings of readers.

    With `strict` (the default), the first error is raised as a `DataError`. `gandalf check` collects errors
    instead, and the reader continues after it has corrected or dropped the entry. A kind is listed at most
    `per_kind` times for each file; further findings are only counted.
    """

    strict: bool = True
    per_kind: int = 5
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def add(self, severity: Severity, kind: str, what: str, **details: Unpack[Details]) -> None:
        """Record a finding; raise it if it is an error and `strict` is set."""
        error = DataError(what, kind=kind, **details)
        if self.strict and severity == "error":
            raise error
        problem = replace(error.problem, severity=severity)
        self.counts[kind, problem.file] += 1
        if self.counts[kind, problem.file] <= self.per_kind:
            self.problems.append(problem)

    def error(self, kind: str, what: str, **details: Unpack[Details]) -> None:
        """Record an error: the data cannot be used."""
        self.add("error", kind, what, **details)

    def warn(self, kind: str, what: str, **details: Unpack[Details]) -> None:
        """Record a warning: the data can be used, but results will be worse or misleading."""
        self.add("warning", kind, what, **details)

    def note(self, kind: str, what: str, **details: Unpack[Details]) -> None:
        """Record a note: a fact about the data that is no error."""
        self.add("note", kind, what, **details)
