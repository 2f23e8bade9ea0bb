"""What results say, figure by figure: the parts that a verdict on a claim is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gandalf.lab.plateau import plateau
from gandalf.lab.results import PARTS, Contrast, ResultPlace, Results, mean
from gandalf.lab.samples import figure
from gandalf.lab.variants import OWN_BASELINE

MARGIN = 1.0  # points: a row that may be worse by this much was not shown to be as good


@dataclass(frozen=True)
class Finding:
    """What one part of the results says of a claim; None where nothing can be told."""

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
        """Systems on this data set."""
        found = [place for place in self.results.places() if place.data == self.data]
        return [place for place in found if not self.settled or plateau(self.results, place).reached]

    def value(self, place: ResultPlace, row: str, name: str) -> float | None:
        """A figure's mean over seeds."""
        lines = self.results.rows(place).get(row)
        found = None if lines is None else mean(lines, figure(name, PARTS[self.part]))
        return None if found is None or np.isnan(found) else found

    def contrast(self, place: ResultPlace, one: str, other: str, name: str) -> Contrast | None:
        """A row minus another of the same system."""
        return self.across((place, one), (place, other), name)

    def across(
        self, one: tuple[ResultPlace, str], other: tuple[ResultPlace, str], name: str
    ) -> Contrast | None:
        """A row minus one that may be of another system."""
        first, second = (self.results.rows(place).get(row) for place, row in (one, other))
        if first is None or second is None:
            return None
        found = self.results.contrast(first, second, name, self.part)
        systems = tuple(dict.fromkeys((one[0].system, other[0].system)))
        return None if np.isnan(found.difference) else replace(found, systems=systems)

    def beats(self, one: str, other: str | None, names: Iterable[str]) -> Iterator[Finding]:
        """Whether a row is better than another, or than its system's own baseline, figure by figure."""
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
    """The difference and its interval in words."""
    sure = f" ({found.low:+.2f} to {found.high:+.2f})" if found.by else " (no interval)"
    return f"{what} {found.difference:+.2f}{sure}"
