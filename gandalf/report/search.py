"""Show the models that a search tried, and the baselines on the same held-out points, as terminal tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

FIGURES = ("P@1", "PSP@5", "C@5")
MOST = 44  # characters of a verdict in a line


def search_report(metrics: Mapping[str, Any]) -> Group:
    """Return tables from `metrics.json`: the models that a search tried, and the baselines."""
    found = metrics.get("search")
    if found is None:
        rivals = [_row(each) for each in metrics.get("baselines", [])]
        return Group(*([_table("Baselines on the same held-out points", rivals)] if rivals else []))
    if not found["held_out_points"]:
        return Group(f"Chosen: {escape(found['why'])}")
    rows = [_row(each) for each in found["baselines"]]
    rows += [_row(each, _verdict(each)) for each in found["tried"]]
    if found["chosen"]:
        rows.append(_row({"name": "chosen", **found["chosen"]}))
    title = f"Tried on {found['held_out_points']:,} held-out training points"
    return Group(_table(title, rows), f"Chosen: {escape(found['why'])}")


def _table(title: str, rows: list[tuple[str, ...]]) -> Table:
    found = Table(title=title, title_justify="left")
    for name in ("", *FIGURES, "seconds", ""):
        found.add_column(name, justify="right" if name in (*FIGURES, "seconds") else "left")
    found.columns[-1].max_width = MOST  # longer reasons go on in the next line
    for row in rows:
        found.add_row(*row, style="bold" if row[0] == "chosen" else None)
    return found


def _row(each: Mapping[str, Any], verdict: str = "") -> tuple[str, ...]:
    figures = (f"{each[name]:.2f}" if name in each else "-" for name in FIGURES)
    seconds = f"{each['seconds']:,.1f}" if each.get("seconds") else ""
    return (escape(each["name"]), *figures, seconds, escape(verdict))


def _verdict(each: Mapping[str, Any]) -> str:
    return f"weight {each['weight']:.0%}" if each["weight"] else str(each["note"])
