"""One figure over seeds, and when two differ by more than noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

from gandalf.lab.store import Line

Column = Callable[[Line], float | None]
Name = TypeVar("Name")  # of a row


def figure(name: str, part: str | None = None) -> Column:
    """A column: a figure of all points, or of one part of them."""

    def of(line: Line) -> float | None:
        found = line["figures"] if part is None else line["figures"][part]
        value = None if found is None else found.get(name)
        return None if value is None else float(value)

    return of


@dataclass(frozen=True)
class Sample:
    """One figure over seeds."""

    values: tuple[float, ...]

    @staticmethod
    def of(lines: Iterable[Line], column: Column) -> Sample:
        """The figure of each line that has it."""
        return Sample(tuple(value for value in map(column, lines) if value is not None))

    @property
    def mean(self) -> float:
        """Mean, NaN of nothing."""
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """Standard deviation, NaN of fewer than two."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(len(self.values)) if self.values else math.nan


def pooled(samples: Iterable[Sample]) -> tuple[float, int]:
    """The spread between seeds that the samples have in common, and its degrees of freedom."""
    repeated = [sample for sample in samples if len(sample.values) > 1]
    freedom = sum(len(sample.values) - 1 for sample in repeated)
    squares = sum((len(sample.values) - 1) * sample.deviation**2 for sample in repeated)
    return (math.sqrt(squares / freedom), freedom) if freedom else (math.nan, 0)


def noise(one: Sample, other: Sample, spread: tuple[float, int]) -> float:
    """Half the 95 % interval of the difference of two means; NaN where no seed was repeated."""
    deviation, freedom = spread
    if not freedom or not one.values or not other.values:
        return math.nan
    of_means = math.sqrt(1 / len(one.values) + 1 / len(other.values))
    return float(stdtrit(freedom, 0.975)) * deviation * of_means


def best_rows(samples: Mapping[Name, Sample]) -> set[Name]:
    """The rows that no other beats by more than noise; none where that leaves no row out."""
    known = {name: sample for name, sample in samples.items() if sample.values}
    spread = pooled(known.values())
    if not spread[1]:
        return set()
    top = max(known.values(), key=lambda sample: sample.mean)
    best = {name for name, sample in known.items() if top.mean - sample.mean <= noise(top, sample, spread)}
    return best if len(best) < len(known) else set()
