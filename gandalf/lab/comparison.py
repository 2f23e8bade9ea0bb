"""Hold variants that were trained side by side, and tell how they differ in tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from gandalf.data.formats.texts import clean
from gandalf.graph.postulate import Diagnosis
from gandalf.metrics.bootstrap import Comparison, Difference, Differences
from gandalf.metrics.evaluate import Scores, SubsetFigures

OURS = "default"  # the variant that the others are compared with


@dataclass(frozen=True)
class Treatment:
    """One way to treat the label texts: a recipe with some settings changed."""

    name: str
    what: str  # in a few words
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A label that a model gave to a query."""

    label: str
    probability: float
    right: bool | None  # None where nobody knows


@dataclass(frozen=True, eq=False)
class TrainedTreatment:
    """A trained variant: its figures, the course of its training and its answers."""

    variant: Treatment
    scores: Scores  # on the test split
    held: Scores | None  # on the training points held out for validation, where there are any
    history: list[dict[str, Any]]  # of the validations
    training: dict[str, Any]  # points, updates, seconds
    answers: tuple[tuple[Answer, ...], ...]  # of each query, best first

    @property
    def name(self) -> str:
        """Return the name of the treatment."""
        return self.variant.name

    @property
    def steps(self) -> int:
        """Return the number of updates."""
        return int(self.training["steps"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "what": self.variant.what,
            "settings": list(self.variant.settings),
            "test": self.scores.as_dict(),
            "held_out": None if self.held is None else self.held.as_dict(),
            "validation": self.history,
            "training": self.training,
        }


@dataclass(frozen=True)
class Questions:
    """The queries that every model answers, and the rule that chose them."""

    texts: tuple[str, ...]
    rule: str

    @property
    def numbers(self) -> range:
        """Return the numbers of the queries."""
        return range(len(self.texts))


@dataclass(frozen=True, eq=False)
class SideBySide:
    """All treatments, the differences between them, and the one that was saved."""

    data: str
    points: int
    held_out: int  # of them, for validation; those with a label that can be asked for are scored
    labels: int
    recipe: dict[str, Any]
    entries: tuple[TrainedTreatment, ...]
    questions: Questions
    differences: dict[str, Comparison]  # ours minus the variant of that name, on the test split
    saved: str
    why: str
    diagnosis: Diagnosis

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "data": {
                "name": self.data,
                "points": self.points,
                "held_out": self.held_out,
                "labels": self.labels,
            },
            "recipe": self.recipe,
            "variants": {entry.name: entry.as_dict() for entry in self.entries},
            "differences": {f"{OURS} - {name}": each.as_dict() for name, each in self.differences.items()},
            "queries": {"rule": self.questions.rule, "asked": [*map(self._asked, self.questions.numbers)]},
            "saved": {"variant": self.saved, "why": self.why},
            "diagnosis": self.diagnosis.as_dict(),
        }

    def _asked(self, number: int) -> dict[str, Any]:
        answers = {entry.name: [asdict(each) for each in entry.answers[number]] for entry in self.entries}
        return {"text": self.questions.texts[number], "answers": answers}


ALL = tuple(f"{family}@{k}" for family in ("P", "PSP", "C") for k in (1, 3, 5))
APART = ("P@1", "P@5", "PSP@5", "C@5")  # of the two kinds of text
TOLD = ("P@1", "PSP@5")  # of the differences
NAME = 30  # characters of a label in the terminal; the page has all
MARKS = {True: "✓ ", False: "", None: ""}


@dataclass(frozen=True)
class FigureRow:
    """A figure of every variant; `best` marks the highest, and all that equal it as shown."""

    name: str
    cells: tuple[str, ...]
    best: tuple[bool, ...]


@dataclass(frozen=True)
class FigureGroup:
    """Rows under one heading."""

    title: str
    rows: tuple[FigureRow, ...]


def figure_groups(found: SideBySide) -> list[FigureGroup]:
    """Return every figure: of all test texts, of known and new texts, of head to tail, of the training."""
    scores = [entry.scores for entry in found.entries]
    parts: list[tuple[str, Sequence[SubsetFigures | None], tuple[str, ...]]] = [
        ("all test texts", [each.filtered for each in scores], ALL),
        ("known items: the text is a label's", [each.label_text for each in scores], APART),
        ("new texts", [each.new_text for each in scores], APART),
    ]
    shown = [
        FigureGroup(f"{title} ({_points(of)})", _rows(of, names)) for title, of, names in parts if _any(of)
    ]
    trained = [entry.training for entry in found.entries]
    return [
        *shown,
        FigureGroup("part of P@5, labels from head to tail", tuple(_bins(found))),
        FigureGroup(
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


def _rows(parts: Sequence[SubsetFigures | None], names: Sequence[str]) -> tuple[FigureRow, ...]:
    return tuple(_figures(name, [part.values[name] for part in parts if part is not None]) for name in names)


def _bins(found: SideBySide) -> Iterator[FigureRow]:
    for number, bins in enumerate(zip(*(entry.scores.bins for entry in found.entries), strict=True), 1):
        size = f"{bins[0].labels:,} labels, {bins[0].mean_frequency:.1f} points each"
        yield _figures(f"{number}: {size}", [each.contribution for each in bins])


def _figures(name: str, values: Sequence[float]) -> FigureRow:
    cells = tuple(f"{value:.1f}" for value in values)
    highest = f"{max(values):.1f}"
    return FigureRow(name, cells, tuple(cell == highest for cell in cells))


def _plain(name: str, cells: Sequence[str]) -> FigureRow:
    return FigureRow(name, tuple(cells), (False,) * len(cells))


def comparison_table(found: SideBySide) -> Table:
    """Return the table of all figures, a column for each treatment."""
    title = f"{escape(found.data)}: test figures in percent after equal updates; bold: highest"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for entry in found.entries:
        table.add_column(entry.name, justify="right")
    for section in figure_groups(found):
        table.add_section()
        table.add_row(f"[italic]{section.title}[/]")
        for row in section.rows:
            marked = (f"[bold]{c}[/]" if best else c for c, best in zip(row.cells, row.best, strict=True))
            table.add_row(f"  {row.name}", *marked)
    return table


def answers_tables(found: SideBySide) -> Group:
    """Return the answers of each treatment to each query."""
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
class OursAgainst:
    """Ours against another variant on one kind of text."""

    other: str
    texts: str
    differences: Differences


def ours_against_others(found: SideBySide) -> list[OursAgainst]:
    """Compare ours with each of the others on new texts and on label texts, or on all without these."""
    parts = [
        OursAgainst(other, texts, part)
        for other, each in found.differences.items()
        for texts, part in (("new texts", each.new_text), ("texts of labels", each.label_text))
        if part is not None and _points_of(found, texts)
    ]
    whole = [OursAgainst(other, "all texts", each.every) for other, each in found.differences.items()]
    return parts or whole


def _points_of(found: SideBySide, texts: str) -> int:
    scores = found.entries[0].scores
    part = {"new texts": scores.new_text, "texts of labels": scores.label_text}[texts]
    return 0 if part is None else part.points


def sentence(verdict: OursAgainst, name: str = "P@1") -> str:
    """Return the difference of one figure in words."""
    found = verdict.differences[name]
    more = "more than chance" if found.real else "which may be chance"
    return f"{OURS} against {verdict.other} on {verdict.texts}: {name} {interval(found)}, {more}"


def interval(found: Difference) -> str:
    """Return the difference and its 95 % interval."""
    return f"{found.difference:+.1f} {span(found)}"


def span(found: Difference) -> str:
    """Return the interval alone."""
    return f"({found.low:+.1f} to {found.high:+.1f})"


def difference_table(found: SideBySide) -> Table:
    """Return the table of differences of ours to the others."""
    title = "Differences in points with 95 % intervals; bold: more than chance"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in TOLD:
        table.add_column(name, justify="right", no_wrap=True)
    for each in ours_against_others(found):
        shown = (each.differences[name] for name in TOLD)
        cells = (f"[bold]{interval(one)}[/]" if one.real else interval(one) for one in shown)
        table.add_row(f"{OURS} - {each.other}, {each.texts}", *cells)
    return table
