"""Collect what results say of a claim, figure by figure, and what that rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gandalf.lab.convergence import plateau
from gandalf.lab.results import (
    BOTH,
    OF_POINTS,
    OF_SEEDS,
    PARTS,
    UNKNOWN,
    Contrast,
    ResultPlace,
    Results,
    figure,
    mean,
)
from gandalf.lab.variants import OWN_BASELINE

MARGIN = 1.0  # points: a row that may be worse by this much was not shown to be as good


@dataclass(frozen=True)
class Finding:
    """The evidence of one figure for or against a claim; `yes` is None if chance may explain it."""

    yes: bool | None
    no: bool
    numbers: str
    reduced: bool = False  # nothing can be told because the training was too short
    on: Contrast | None = None  # that it rests on; None: on means alone, without an interval

    @property
    def untold(self) -> bool:
        """Return True if there are figures, and nothing tells whether they may be chance."""
        return self.yes is None and self.on is not None and not self.on.by


@dataclass(frozen=True, eq=False)
class View:
    """The results of one data set and one kind of text."""

    results: Results
    data: str
    part: str
    settled: bool = False  # only systems that were trained to a plateau

    @property
    def places(self) -> list[ResultPlace]:
        """Return the places of this data set."""
        found = [place for place in self.results.places() if place.data == self.data]
        return [place for place in found if not self.settled or plateau(self.results, place).reached]

    def value(self, place: ResultPlace, row: str, name: str) -> float | None:
        """Return a figure's mean over seeds, or None."""
        lines = self.results.rows(place).get(row)
        found = None if lines is None else mean(lines, figure(name, PARTS[self.part]))
        return None if found is None or np.isnan(found) else found

    def contrast(self, place: ResultPlace, one: str, other: str, name: str) -> Contrast | None:
        """Compare two rows of one system."""
        return self.across((place, one), (place, other), name)

    def across(
        self, one: tuple[ResultPlace, str], other: tuple[ResultPlace, str], name: str
    ) -> Contrast | None:
        """Compare two rows, which may be of two systems."""
        first, second = (self.results.rows(place).get(row) for place, row in (one, other))
        if first is None or second is None:
            return None
        found = self.results.contrast(first, second, name, self.part)
        systems = tuple(dict.fromkeys((one[0].system, other[0].system)))
        return None if np.isnan(found.difference) else replace(found, systems=systems)

    def beats(self, one: str, other: str | None, names: Iterable[str]) -> Iterator[Finding]:
        """Yield for each figure if a row beats another, or its system's own baseline."""
        for place in self.places:
            for name in names:
                base = other or OWN_BASELINE.get(place.system, "D")
                found = self.contrast(place, one, base, name)
                if found is not None:
                    yield better(found, f"{place.system} {name}")

    def best(self, one: str, others: Sequence[str], names: Iterable[str]) -> Iterator[Finding]:
        """Return for each figure whether a row is better than each of the others."""
        return self._against(one, others, names, better)

    def no_worse(self, one: str, others: Sequence[str], names: Iterable[str]) -> Iterator[Finding]:
        """Return for each figure whether a row is at least as good as each of the others."""
        return self._against(one, others, names, as_good)

    def _against(
        self, one: str, others: Sequence[str], names: Iterable[str], judge: Callable[[Contrast, str], Finding]
    ) -> Iterator[Finding]:
        for place in self.places:
            for name in names:
                for other in others:
                    found = self.contrast(place, one, other, name)
                    if found is not None:
                        yield judge(found, f"{place.system} {name} against {other}")


def better(found: Contrast, what: str) -> Finding:
    """Judge "better": by more than chance. Where nothing tells what chance is, nothing is told."""
    numbers = told_of(found, what)
    if not found.by:
        return Finding(None, False, numbers, on=found)
    return Finding(
        found.difference > 0 and found.real, found.difference < 0 and found.real, numbers, on=found
    )


def as_good(found: Contrast, what: str) -> Finding:
    """Judge "at least as good": not worse by more than chance, and a loss of MARGIN is ruled out."""
    numbers = told_of(found, what)
    if not found.by:
        return Finding(None, False, numbers, on=found)
    worse = found.difference < 0 and found.real
    return Finding(not worse and found.low > -MARGIN, worse, numbers, on=found)


def told_of(found: Contrast, what: str) -> str:
    """Return the difference and its interval in words."""
    sure = f" ({found.low:+.2f} to {found.high:+.2f})" if found.by else " (no interval)"
    return f"{what} {found.difference:+.2f}{sure}"


# Kinds of intervals, from the most that they tell to the least, as a table has room for them.
MARKS = {
    BOTH: "points and seeds",
    OF_POINTS: "points alone",
    OF_SEEDS: "seeds alone",
    UNKNOWN: "no interval",
}


@dataclass(frozen=True)
class Basis:
    """Everything that a reader needs to weigh a verdict."""

    seeds: tuple[int, ...]  # of the rows that were compared, sorted
    points: tuple[int, ...]  # test points of the figures, sorted
    intervals: dict[str, int]  # figures by the kind of their interval
    settled: tuple[str, ...]  # systems that were compared and are at a plateau
    unsettled: tuple[str, ...]  # systems that were compared or left out since they are not
    needs_plateau: bool

    @staticmethod
    def of(view: View, findings: Sequence[Finding], needs_plateau: bool) -> Basis:
        """Return what the findings of a view rest on."""
        places = [place for place in view.results.places() if place.data == view.data]
        settled = [place for place in places if plateau(view.results, place).reached]
        on = [each.on for each in findings if each.on is not None]
        compared = {system for each in on for system in each.systems} or {each.system for each in view.places}
        means = len(findings) - len(on)
        kinds = Counter(each.by for each in on) + Counter({UNKNOWN: means})
        rows = [lines for place in view.places for lines in view.results.rows(place).values()]
        part = PARTS[view.part]
        figures = [
            line["figures"] if part is None else line["figures"].get(part) for of in rows for line in of
        ]
        return Basis(
            _numbers([each.seeds for each in on] or map(len, rows)),
            _numbers([each.points for each in on] or [(each or {}).get("points", 0) for each in figures]),
            dict(kinds),
            _names(place for place in settled if place.system in compared),
            _names(place for place in places if place not in settled),
            needs_plateau,
        )

    @property
    def mark(self) -> str:
        """Name the least that any of its intervals is over."""
        return next((MARKS[kind] for kind in reversed(MARKS) if self.intervals.get(kind)), "")

    def __str__(self) -> str:
        parts = [_span(self.seeds, "seed"), _span(self.points, "test point"), *self._kinds()]
        if self.needs_plateau:
            parts.append(f"at a plateau: {', '.join(self.settled) or 'none'}")
            if self.unsettled:
                parts.append(f"not at a plateau: {', '.join(self.unsettled)}")
        return "; ".join(part for part in parts if part)

    def _kinds(self) -> list[str]:
        known = [(MARKS[kind], self.intervals[kind]) for kind in MARKS if self.intervals.get(kind)]
        if len(known) == 1:
            return [_kind(known[0][0])]
        return [f"{_kind(mark)} in {number}" for mark, number in known]


def _kind(mark: str) -> str:
    return mark if mark == MARKS[UNKNOWN] else f"interval over {mark}"


def _names(places: Iterable[ResultPlace]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.system for place in places))


def _numbers(found: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({number for number in found if number}))


def _span(numbers: tuple[int, ...], what: str) -> str:
    """Return a number of things, or the least and the greatest where there are several."""
    if not numbers:
        return ""
    least, most = numbers[0], numbers[-1]
    many = "" if most == 1 else "s"
    return f"{least:,} {what}{many}" if least == most else f"{least:,} to {most:,} {what}s"
