"""Variants side by side: their figures, their answers and what tells them apart, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from gandalf.data.formats.texts import clean
from gandalf.lab.side_by_side import OURS, Answer, SideBySide
from gandalf.metrics.bootstrap import Difference, Differences
from gandalf.metrics.evaluate import SubsetFigures

ALL = tuple(f"{family}@{k}" for family in ("P", "PSP", "C") for k in (1, 3, 5))
APART = ("P@1", "P@5", "PSP@5", "C@5")  # of the two kinds of text
TOLD = ("P@1", "PSP@5")  # of the differences
NAME = 30  # characters of a label in the terminal; the page has all
MARKS = {True: "✓ ", False: "", None: ""}


@dataclass(frozen=True)
class Row:
    """A figure of every variant; `best` marks the highest, and all that equal it as shown."""

    name: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]


@dataclass(frozen=True)
class Section:
    """Rows under one heading."""

    title: str
    rows: tuple[Row, ...]


def sections(found: SideBySide) -> list[Section]:
    """Every figure that is shown: all test texts, the two kinds apart, head to tail, and the training."""
    scores = [entry.scores for entry in found.entries]
    parts: list[tuple[str, Sequence[SubsetFigures | None], tuple[str, ...]]] = [
        ("all test texts", [each.filtered for each in scores], ALL),
        ("known items: the text is a label's", [each.label_text for each in scores], APART),
        ("new texts", [each.new_text for each in scores], APART),
    ]
    shown = [Section(f"{title} ({_points(of)})", _rows(of, names)) for title, of, names in parts if _any(of)]
    trained = [entry.training for entry in found.entries]
    return [
        *shown,
        Section("part of P@5, labels from head to tail", tuple(_bins(found))),
        Section(
            "training",
            (
                _plain("updates", [f"{each['steps']:,}" for each in trained]),
                _plain("label texts", [f"{each['label_points']:,}" for each in trained]),
                _plain("seconds", [f"{each['seconds']:.0f}" for each in trained]),
            ),
        ),
    ]


def _any(parts: Sequence[SubsetFigures | None]) -> bool:
    return all(part is not None and part.points for part in parts)


def _points(parts: Sequence[SubsetFigures | None]) -> str:
    return f"{parts[0].points:,}" if parts[0] is not None else ""


def _rows(parts: Sequence[SubsetFigures | None], names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(_figures(name, [part.values[name] for part in parts if part is not None]) for name in names)


def _bins(found: SideBySide) -> Iterator[Row]:
    for number, bins in enumerate(zip(*(entry.scores.bins for entry in found.entries), strict=True), 1):
        size = f"{bins[0].labels:,} labels, {bins[0].mean_frequency:.1f} points each"
        yield _figures(f"{number}: {size}", [each.contribution for each in bins])


def _figures(name: str, values: Sequence[float]) -> Row:
    cells = tuple(f"{value:.1f}" for value in values)
    highest = f"{max(values):.1f}"
    return Row(name, cells, tuple(cell == highest for cell in cells))


def _plain(name: str, cells: Sequence[str]) -> Row:
    return Row(name, tuple(cells), (False,) * len(cells))


def comparison_table(found: SideBySide) -> Table:
    """All figures, one column for each variant."""
    title = f"{escape(found.data)}: test figures in percent after equal updates; bold: highest"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for entry in found.entries:
        table.add_column(entry.name, justify="right")
    for section in sections(found):
        table.add_section()
        table.add_row(f"[italic]{section.title}[/]")
        for row in section.rows:
            marked = (f"[bold]{c}[/]" if best else c for c, best in zip(row.cells, row.best, strict=True))
            table.add_row(f"  {row.name}", *marked)
    return table


def answers_tables(found: SideBySide) -> Group:
    """What each variant answers to each query."""
    return Group(f"Queries: {found.questions.rule}", *(_query(found, n) for n in found.questions.numbers))


def _query(found: SideBySide, number: int) -> Table:
    text = escape(clean(found.questions.texts[number]))
    table = Table(title=f"\n[bold]{text}[/]", title_justify="left", box=None, pad_edge=False)
    for entry in found.entries:
        table.add_column(entry.name, no_wrap=True, overflow="ellipsis", width=NAME)
    answers = [entry.answers[number] for entry in found.entries]
    for place in range(max(map(len, answers))):
        table.add_row(*(_answer(each[place]) if place < len(each) else "" for each in answers))
    return table


def _answer(answer: Answer) -> str:
    return f"{MARKS[answer.right]}{escape(clean(answer.label))}"


@dataclass(frozen=True)
class Verdict:
    """Ours against another variant on one kind of text."""

    other: str
    texts: str
    differences: Differences


def verdicts(found: SideBySide) -> list[Verdict]:
    """Ours against each of the others, on new texts and on texts of labels, where there are such."""
    parts = [
        Verdict(other, texts, part)
        for other, each in found.differences.items()
        for texts, part in (("new texts", each.new_text), ("texts of labels", each.label_text))
        if part is not None and _points_of(found, texts)
    ]
    whole = [Verdict(other, "all texts", each.every) for other, each in found.differences.items()]
    return parts or whole


def _points_of(found: SideBySide, texts: str) -> int:
    scores = found.entries[0].scores
    part = {"new texts": scores.new_text, "texts of labels": scores.label_text}[texts]
    return 0 if part is None else part.points


def sentence(verdict: Verdict, name: str = "P@1") -> str:
    """One figure's difference in words."""
    found = verdict.differences[name]
    more = "more than chance" if found.real else "which may be chance"
    return f"{OURS} against {verdict.other} on {verdict.texts}: {name} {interval(found)}, {more}"


def interval(found: Difference) -> str:
    """The difference and its 95 % interval."""
    return f"{found.difference:+.1f} {span(found)}"


def span(found: Difference) -> str:
    """The interval alone."""
    return f"({found.low:+.1f} to {found.high:+.1f})"


def verdict_table(found: SideBySide) -> Table:
    """Ours against the others with intervals."""
    title = "Differences in points with 95 % intervals; bold: more than chance"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in TOLD:
        table.add_column(name, justify="right", no_wrap=True)
    for each in verdicts(found):
        shown = (each.differences[name] for name in TOLD)
        cells = (f"[bold]{interval(one)}[/]" if one.real else interval(one) for one in shown)
        table.add_row(f"{OURS} - {each.other}, {each.texts}", *cells)
    return table
