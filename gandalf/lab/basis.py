"""What a verdict rests on: seeds, test points, the kind of its intervals, and who is at a plateau."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gandalf.lab.evidence import Finding, View
from gandalf.lab.plateau import plateau
from gandalf.lab.results import BOTH, OF_POINTS, OF_SEEDS, PARTS, UNKNOWN, ResultPlace

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
