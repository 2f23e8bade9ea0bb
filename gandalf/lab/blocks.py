"""Define the parts of a report: sections of text, tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A word or a figure; `order` is what a table is sorted by."""

    text: str
    order: float | str
    best: bool = False
    chance: bool = False  # the difference to the first row may be chance
    more: str = ""  # told only to those who ask
    note: str = ""  # in small letters behind the text
    bar: float | None = None  # drawn behind the figure, from 0 to 1


@dataclass(frozen=True)
class TableBlock:
    """Rows of cells, the first of each its name."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A chart as SVG, and what it shows."""

    svg: str
    caption: str
    legend: str = ""


@dataclass(frozen=True)
class Answers:
    """A query and what each model answered: a name, and labels with whether they are right."""

    query: str
    of: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]


Block = str | TableBlock | Picture | Answers


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: Sequence[Block] = ()
    name: str = ""  # of the study, for links
    pictures: Sequence[Picture] = field(default=())


def words(text: str) -> Cell:
    """Return a cell of text."""
    return Cell(text, text)


def number(value: float | None, form: str = ".2f") -> Cell:
    """Return a cell with a figure, or a dash for None and NaN."""
    if value is None or value != value:
        return Cell("–", float("-inf"))
    return Cell(f"{value:{form}}", value)
