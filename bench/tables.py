"""Stored lines of runs as tables: figures over seeds, what is more than noise, and grids of settings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from scipy.special import stdtrit

Line = dict[str, Any]
Column = Callable[[Line], float | None]
Name = TypeVar("Name")  # of a row
LABEL_POINTS = ("targets", "scale", "label_weight", "label_epochs")  # settings of theirs that are studied


def figure(name: str, part: str | None = None) -> Column:
    """A column: a figure of all points, or of one part of them."""

    def of(line: Line) -> float | None:
        found = line["figures"] if part is None else line["figures"][part]
        value = None if found is None else found.get(name)
        return None if value is None else float(value)

    return of


WHO_GAINS: dict[str, Column] = {
    "P@1 label text": figure("P@1", "label_text"),
    "P@1 new text": figure("P@1", "new_text"),
    "PSP@5 label text": figure("PSP@5", "label_text"),
    "PSP@5 new text": figure("PSP@5", "new_text"),
    "P@1": figure("P@1"),
    "PSP@5": figure("PSP@5"),
}


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


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its first column words and the others numbers."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


def number(value: float, spread: float = math.nan, *, bold: bool = False, sign: str = "") -> str:
    """A figure, with its spread where there is one."""
    if math.isnan(value):
        return "–"
    mean = f"{value:{sign}.2f}"
    return (f"**{mean}**" if bold else mean) + ("" if math.isnan(spread) else f" ± {spread:.2f}")


def setting_table(lines: Iterable[Line], settings: Sequence[str], columns: Mapping[str, Column]) -> str:
    """A row for each combination of settings, with standard errors over seeds.

    Settings are dotted names, or those of label points such as `scale`. Runs that differ in more than their
    seed never share a row, even where no column tells them apart.
    """
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(json.dumps({**line["run"], "seed": None}, sort_keys=True), []).append(line)
    rows = []
    for of_row in groups.values():
        samples = [Sample.of(of_row, column) for column in columns.values()]
        cells = [number(sample.mean, sample.error) for sample in samples]
        rows.append([*(_setting(of_row[0], name) for name in settings), *cells, str(len(of_row))])
    return table([*(name.rpartition(".")[2] for name in settings), *columns, "seeds"], rows)


def _setting(line: Line, name: str) -> str:
    name = f"targets.{name}" if name in LABEL_POINTS else name
    of_points = name.startswith("targets.") and name != "targets.targets"
    if of_points and line["recipe"]["targets"]["targets"] == "none":
        return ""  # there are no label points that it could be a setting of
    value: Any = reduce(lambda found, part: found[part], name.split("."), line["recipe"])
    return f"{value:g}" if isinstance(value, float) else str(value)
