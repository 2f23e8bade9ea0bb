"""Stored lines of runs as tables: figures over seeds, what is more than noise, and grids of settings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from gandalf.lab.results import Column, Sample, best_rows, figure, noise, pooled
from gandalf.lab.store import Line

__all__ = ["Column", "Line", "Sample", "best_rows", "figure", "noise", "number", "pooled", "table"]

LABEL_POINTS = ("targets", "scale", "label_weight", "label_epochs")  # settings of theirs that are studied


WHO_GAINS: dict[str, Column] = {
    "P@1 label text": figure("P@1", "label_text"),
    "P@1 new text": figure("P@1", "new_text"),
    "PSP@5 label text": figure("PSP@5", "label_text"),
    "PSP@5 new text": figure("PSP@5", "new_text"),
    "P@1": figure("P@1"),
    "PSP@5": figure("PSP@5"),
}


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
