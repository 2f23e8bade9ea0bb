"""Make tables of results: figures over seeds, what is more than noise, and grids of settings."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from gandalf.lab.results import Column, Name, Sample, best_rows, figure, noise, pooled
from gandalf.lab.store import Line
from gandalf.metrics.evaluate import Scores, SubsetFigures

__all__ = ["Column", "Line", "Sample", "best_rows", "figure", "noise", "number", "pooled", "table"]

FIGURES = ("P@1", "PSP@5", "C@5")
KINDS_OF_TEXT = ("label_text", "new_text")
LABEL_POINTS = (
    "targets",
    "keep",
    "scale",
    "label_weight",
    "label_epochs",
)  # settings of theirs that are studied


WHO_GAINS: dict[str, Column] = {
    "P@1 label text": figure("P@1", "label_text"),
    "P@1 new text": figure("P@1", "new_text"),
    "PSP@5 label text": figure("PSP@5", "label_text"),
    "PSP@5 new text": figure("PSP@5", "new_text"),
    "P@1": figure("P@1"),
    "PSP@5": figure("PSP@5"),
}


# ---- P@1, PSP@5 and C@5


def figures(scores: Scores) -> dict[str, Any]:
    """Return the three figures of all test points, and of the two kinds of text apart."""

    def of(part: SubsetFigures | None) -> dict[str, float] | None:
        if part is None:
            return None
        return {"points": part.points} | {name: part.values[name] for name in FIGURES if part.values}

    return {**(of(scores.filtered) or {}), **{kind: of(getattr(scores, kind)) for kind in KINDS_OF_TEXT}}


def three(values: Mapping[str, Any] | None, sign: str = "") -> str:
    """Return the three figures as one cell; an empty cell without figures."""
    if not values or FIGURES[0] not in values:
        return ""
    return " ; ".join(f"{values[name]:{sign}.1f}" for name in FIGURES)


# ---- what is more than noise


@dataclass(frozen=True)
class Compared:
    """A row minus a rival in one figure of a data set, with the interval that chance explains."""

    data: str
    rival: str
    figure: str
    difference: float
    low: float
    high: float
    system: str = ""

    @property
    def verdict(self) -> str:
        """Return `ahead`, `level` or `behind`, by whether the interval excludes 0."""
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "level"

    @property
    def shown(self) -> str:
        """Return the difference with its interval."""
        return f"{self.difference:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


VERDICTS = ("ahead", "level", "behind")


def verdict_counts(found: Iterable[Compared]) -> str:
    """Count the verdicts in words."""
    counts = Counter(each.verdict for each in found)
    return ", ".join(f"{verdict} in {counts[verdict]}" for verdict in VERDICTS)


def verdict_cell(found: Iterable[Compared]) -> str:
    """Count the verdicts as one cell, `ahead / level / behind`; an empty cell without comparisons."""
    counts = Counter(each.verdict for each in found)
    return " / ".join(str(counts[verdict]) for verdict in VERDICTS) if counts else ""


def gain(samples: Mapping[Name, Sample], one: Name, other: Name) -> tuple[float, float]:
    """Return the mean of one row minus that of another, and the noise of that difference."""
    difference = samples[one].mean - samples[other].mean
    return difference, noise(samples[one], samples[other], pooled(samples.values()))


def samples_of(
    groups: Mapping[Name, list[Line]], columns: Mapping[str, Column]
) -> dict[str, dict[Name, Sample]]:
    """Return the sample of every row, column by column."""
    return {
        name: {row: Sample.of(lines, column) for row, lines in groups.items()}
        for name, column in columns.items()
    }


# ---- Markdown


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first column is words and the others numbers."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


def number(value: float, spread: float = math.nan, *, bold: bool = False, sign: str = "") -> str:
    """Return a figure, with its spread if known."""
    if math.isnan(value):
        return "–"
    mean = f"{value:{sign}.2f}"
    return (f"**{mean}**" if bold else mean) + ("" if math.isnan(spread) else f" ± {spread:.2f}")


def setting_table(lines: Iterable[Line], settings: Sequence[str], columns: Mapping[str, Column]) -> str:
    """Return a row for each combination of settings, with standard errors over seeds.

    Settings are dotted names, those of label points such as `scale`, or `changes`: all that the runs set.
    Runs that differ in more than their seed never share a row, even where no column tells them apart.
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
    if name == "changes":
        return " ".join(line["run"]["settings"])
    name = f"targets.{name}" if name in LABEL_POINTS else name
    of_points = name.startswith("targets.") and name != "targets.targets"
    if of_points and line["recipe"]["targets"]["targets"] == "none":
        return ""  # there are no label points that it could be a setting of
    value: Any = reduce(lambda found, part: found[part], name.split("."), line["recipe"])
    return f"{value:g}" if isinstance(value, float) else str(value)
