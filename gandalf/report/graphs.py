"""Show the label graph and the diagnosis as tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from gandalf.data.sentences import weighted_count
from gandalf.graph.neighbours import Neighbourhood
from gandalf.graph.postulate import Diagnosis, EstimateQuality
from gandalf.report.bars import bar
from gandalf.report.plots import figure, save

if TYPE_CHECKING:
    from gandalf.runs.choose import Gains

SHOWN = 20  # neighbours of a label in a table or picture


def neighbour_table(found: Neighbourhood, shown: int = SHOWN) -> Table:
    """Return a table of a label's targets as bars, with their counts."""
    title = f"{escape(found.text)}  [dim]({weighted_count(found.frequency, 'point')})[/]"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("target", justify="right")
    table.add_column("", min_width=20)
    table.add_column("together", justify="right")
    table.add_column("its points", justify="right")
    table.add_column("label")
    for one in found.neighbours[:shown]:
        cells = (f"{one.target:.2f}", bar(one.target, 1.0, 20), f"{one.together:g}", f"{one.frequency:g}")
        table.add_row(*cells, escape(one.text))
    more = len(found.neighbours) - shown
    if more > 0:
        table.caption = f"and {more} more"
    if not found.neighbours:
        table.add_row("", "", "", "", "[dim]no neighbours above the threshold: its only target is itself[/]")
    return table


def plot_neighbours(found: Sequence[Neighbourhood], path: Path, shown: int = SHOWN) -> None:
    """Draw bar charts of labels and their neighbours, one below the other."""
    rows = [max(1, min(shown, len(one.neighbours))) for one in found]
    drawn, axes = figure(9.0, 0.9 * len(found) + 0.28 * sum(rows), rows=len(found), height_ratios=rows)
    for one, place in zip(found, axes, strict=True):
        top = one.neighbours[:shown]
        place.barh([_short(n.text) for n in top], [n.target for n in top], color="C0")
        for at, neighbour in enumerate(top):
            place.text(
                neighbour.target + 0.01,
                at,
                f"{neighbour.together:g}/{one.frequency:g}",
                va="center",
                fontsize=8,
            )
        place.set_ylim(max(len(top), 1) - 0.5, -0.5)
        place.set_xlim(0, 1.12)
        place.set_title(_short(one.text), loc="left", fontsize=10)
    axes[-1].set_xlabel("target; beside the bar: points together / points of the label")
    save(drawn, path)


def quality_table(found: Diagnosis) -> Table:
    """Return a table of the estimates beside the observed targets of held-out texts."""
    table = Table(title="Estimates against observed targets, texts held out", title_justify="left")
    table.add_column("targets")
    for heading in ("log loss", "squared error", "mean target", "observed", "links recalled", "pairs kept"):
        table.add_column(heading, justify="right")
    for one in found.estimates:
        name = f"[bold]{one.name} *[/]" if one.name == found.recommended else one.name
        losses = (f"{one.log_loss:.4f}", f"{one.squared_error:.4f}", f"{one.mean_estimate:.3f}")
        table.add_row(name, *losses, f"{found.mean_observed:.3f}", f"{one.recall:.1%}", f"{one.kept:.1%}")
    if found.reachable is not None:
        table.caption = f"* recommended. No graph can recall more than {found.reachable:.1%} of the links."
    return table


def reliability_table(one: EstimateQuality) -> Table:
    """Return a table of mean estimate and mean observed target; for a reliable estimate the two are equal."""
    table = Table(title=f"Reliability of {one.name}", title_justify="left", box=None)
    for heading in ("estimate", "pairs", "mean", "observed"):
        table.add_column(heading, justify="right")
    table.add_column("", min_width=20)
    for row in one.reliability:
        step = f"{row.low:.1f}-{row.high:.1f}"
        table.add_row(
            step, f"{row.pairs:,}", f"{row.estimate:.2f}", f"{row.observed:.2f}", bar(row.observed, 1.0, 20)
        )
    return table


def gains_table(found: Gains) -> Table:
    """Return a table of each kind of label points on held-out points, and its gain over no label points."""
    title = f"Label points on {found.held:,} held-out training points, {found.epochs:g} epochs each"
    table = Table(title=title, title_justify="left")
    table.add_column("label points")
    names, deciding = list(found.tried[0].figures), list(found.tried[-1].gained)
    for heading in (*names, *(f"{name} gained" for name in deciding)):
        table.add_column(heading, justify="right")
    for one in found.tried:
        gained = (one.gained[name] for name in deciding if one.gained)
        cells = [f"{each.difference:+.2f} ({each.low:+.2f} to {each.high:+.2f})" for each in gained]
        table.add_row(one.targets, *(f"{one.figures[name]:.2f}" for name in names), *cells)
    return table


def plot_reliability(found: Diagnosis, path: Path, title: str = "") -> None:
    """Draw observed target against estimate, a line for each kind; a reliable one lies on the diagonal."""
    drawn, (axes,) = figure(5.5, 5.0)
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="reliable")
    for at, one in enumerate(q for q in found.estimates if q.mean_estimate > 0):
        across = [row.estimate for row in one.reliability]
        up = [row.observed for row in one.reliability]
        axes.plot(across, up, color=f"C{at}", linewidth=1.5, label=one.name)
        # The area of a dot shows its number of pairs, because the log loss counts pairs, not steps.
        sizes = [4 + 200 * row.pairs / max(found.pairs, 1) for row in one.reliability]
        axes.scatter(across, up, s=sizes, color=f"C{at}", alpha=0.7)
    axes.set_xlabel("estimated target")
    axes.set_ylabel("observed target (held-out texts)")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_title(title)
    axes.legend()
    save(drawn, path)


def _short(text: str, most: int = 55) -> str:
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.replace("$", r"\$")  # matplotlib reads text between two $ as a formula
