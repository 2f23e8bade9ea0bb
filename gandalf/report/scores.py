"""Show scores, label bins and differences as terminal tables, with a verdict in sentences."""

from __future__ import annotations

from itertools import groupby

from rich.console import Group
from rich.table import Table

from gandalf.data.sentences import counted
from gandalf.metrics.bins import BinContribution
from gandalf.metrics.bootstrap import Comparison, Difference, Differences
from gandalf.metrics.evaluate import Scores, SubsetFigures
from gandalf.report.bars import bar

SOURCES = {"name": "by the set's name", "default": "default", "given": "given"}


def score_report(scores: Scores) -> Group:
    """Return all figures of one prediction set, the label bins, and the propensity constants."""
    used = scores.propensity
    constants = (
        f"Propensities: A = {used.A:g}, B = {used.B:g} ({SOURCES[used.source]}), from the training points."
    )
    return Group(_figures(scores), _bins(scores.bins), constants, *_unanswered(scores))


def _unanswered(scores: Scores) -> list[str]:
    """Return a sentence about each k for which there are too few predictions."""
    if not scores.unanswered_ks:
        return []
    figures = " and ".join(f"@{k}" for k in scores.unanswered_ks)
    most = counted(scores.most_labels, "label")
    return [
        f"No point has more than {most} predicted: figures {figures} count the empty places as misses."
        f" Predict {max(scores.unanswered_ks)} labels for each point, or choose a smaller --k."
    ]


def difference_report(comparison: Comparison, ks: tuple[int, ...]) -> Group:
    """Return the difference of two prediction sets by metric, with intervals and a verdict."""
    parts = {
        "all points": comparison.every,
        "text is a label's": comparison.label_text,
        "new text": comparison.new_text,
    }
    shown = {name: part for name, part in parts.items() if part}
    # Without a frame, and with p for all points only, so that three intervals fit into 80 columns.
    title = "First minus other, in points, with 95 % intervals; bold is real"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("p, all", justify="right")
    for name, over_all in comparison.every.items():
        table.add_row(name, *(_interval(part[name]) for part in shown.values()), f"{over_all.p:.3f}")
    headlines = (f"P@{ks[0]}", f"PSP@{ks[-1]}")
    return Group(table, *(f"{name}: {verdict(part, headlines)}" for name, part in shown.items()))


def verdict(differences: Differences, names: tuple[str, ...]) -> str:
    """Return a sentence that says for each metric which set is better, and whether this may be chance."""
    return "; ".join(f"{name} {_verdict(differences[name])}" for name in names) + "."


def _verdict(found: Difference) -> str:
    if not found.real:
        return f"differs by {found.difference:+.2f}, which may be chance"
    better = "first" if found.difference > 0 else "other"
    return f"the {better} is better by {abs(found.difference):.2f}, and that is real"


def _figures(scores: Scores) -> Table:
    parts: dict[str, SubsetFigures | None] = {
        "filtered": scores.filtered,
        "unfiltered": scores.unfiltered,
        "text is a label's": scores.label_text,
        "new text": scores.new_text,
    }
    shown = {name: part for name, part in parts.items() if part is not None}
    table = Table(title="Scores in percent", title_justify="left")
    table.add_column("")
    for name in shown:
        table.add_column(name, justify="right")
    for _, names in groupby(scores.filtered.values, key=_family):
        table.add_section()
        for name in names:
            table.add_row(name, *(_number(part.values.get(name)) for part in shown.values()))
    table.add_section()
    table.add_row("points", *(f"{part.points:,}" for part in shown.values()))
    return table


def _bins(bins: tuple[BinContribution, ...]) -> Table:
    title = "Contribution to P@5 of five bins with equal numbers of training positives, head first"
    table = Table(title=title, title_justify="left", box=None)
    for heading in ("bin", "labels", "mean frequency", "P@5"):
        table.add_column(heading, justify="right")
    table.add_column("")
    highest = max(each.contribution for each in bins)
    for number, each in enumerate(bins, start=1):
        drawn = bar(each.contribution, highest, width=30)
        cells = (f"{each.labels:,}", f"{each.mean_frequency:.1f}", f"{each.contribution:.2f}")
        table.add_row(str(number), *cells, drawn)
    return table


def _interval(found: Difference) -> str:
    numbers = f"{found.difference:+.2f} ({found.low:+.2f} {found.high:+.2f})"
    return f"[bold]{numbers}[/]" if found.real else numbers


def _family(name: str) -> str:
    return name.split("@")[0]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
