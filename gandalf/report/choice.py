"""Show the candidates of `--targets auto` as a terminal table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table


def choice_report(table: Mapping[str, Any]) -> Group:
    """Return the candidates with their figures on held-out training points, the chosen one marked, and the
    reason.

    `table` is the entry "choice" of `metrics.json`.
    """
    reason = f"Targets: {table['why']}"
    return Group(_candidates(table), reason) if table["tried"] else Group(reason)


def _candidates(table: Mapping[str, Any]) -> Table:
    metric, chosen = table["metric"], table["chosen"]
    columns = {metric: metric, "label_text": "text is a label's", "new_text": "new text", "PSP@5": "PSP@5"}
    shown = {key: title for key, title in columns.items() if key in table["tried"][0]["figures"]}
    found = Table(title="Targets tried on held-out training points", title_justify="left")
    for title in ("", "targets", "weight", *shown.values()):
        found.add_column(title, justify="left" if title in ("", "targets") else "right")
    found.add_column(f"{table['by']}, against the default", justify="right")
    for each in table["tried"]:
        is_chosen = all(each[name] == value for name, value in chosen.items())
        figures = (f"{each['figures'][key]:.2f}" for key in shown)
        mark, weight = "*" if is_chosen else "", f"{each['label_weight']:g}"
        cells = (mark, each["targets"], weight, *figures, _difference(each["difference"]))
        found.add_row(*cells, style="bold" if is_chosen else None)
    return found


def _difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "the default"
    return f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"
