"""Show what a run tried on held-out points, as terminal tables: kinds of targets, models, baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

FIGURES = ("P@1", "PSP@5", "C@5")
REASON_WIDTH = 44  # columns of a model's reason; a longer reason goes on in the next line


def targets_report(choice: Mapping[str, Any]) -> Group:
    """Return the kinds of targets that `--targets auto` tried, the chosen one marked, and the reason.

    `choice` is the entry "choice" of `metrics.json`.
    """
    reason = f"Targets: {choice['why']}"
    return Group(_targets_table(choice), reason) if choice["tried"] else Group(reason)


def search_report(metrics: Mapping[str, Any]) -> Group:
    """Return the models that a search tried, and the baselines, from `metrics.json`."""
    search = metrics.get("search")
    if search is None:
        baselines = [_row(each) for each in metrics.get("baselines", [])]
        tables = [_models_table("Baselines on the same held-out points", baselines)] if baselines else []
        return Group(*tables)
    reason = f"Chosen: {escape(search['why'])}"
    if not search["held_out_points"]:
        return Group(reason)
    rows = [_row(each) for each in search["baselines"]]
    rows += [
        _row(each, f"weight {each['weight']:.0%}" if each["weight"] else str(each["note"]))
        for each in search["tried"]
    ]
    if search["chosen"]:
        rows.append(_row({"name": "chosen", **search["chosen"]}))
    title = f"Tried on {search['held_out_points']:,} held-out training points"
    return Group(_models_table(title, rows), reason)


def _targets_table(choice: Mapping[str, Any]) -> Table:
    metric, chosen = choice["metric"], choice["chosen"]
    columns = {metric: metric, "label_text": "text is a label's", "new_text": "new text", "PSP@5": "PSP@5"}
    shown = {key: title for key, title in columns.items() if key in choice["tried"][0]["figures"]}
    table = Table(title="Targets tried on held-out training points", title_justify="left")
    for title in ("", "targets", "weight", *shown.values()):
        table.add_column(title, justify="left" if title in ("", "targets") else "right")
    table.add_column(f"{choice['by']}, against the default", justify="right")
    for each in choice["tried"]:
        is_chosen = all(each[name] == value for name, value in chosen.items())
        figures = (f"{each['figures'][key]:.2f}" for key in shown)
        mark, weight = "*" if is_chosen else "", f"{each['label_weight']:g}"
        cells = (mark, each["targets"], weight, *figures, _difference(each["difference"]))
        table.add_row(*cells, style="bold" if is_chosen else None)
    return table


def _difference(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "the default"
    return f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"


def _models_table(title: str, rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", *FIGURES, "seconds", ""):
        table.add_column(name, justify="right" if name in (*FIGURES, "seconds") else "left")
    table.columns[-1].max_width = REASON_WIDTH
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == "chosen" else None)
    return table


def _row(model: Mapping[str, Any], reason: str = "") -> tuple[str, ...]:
    figures = (f"{model[name]:.2f}" if name in model else "-" for name in FIGURES)
    seconds = f"{model['seconds']:,.1f}" if model.get("seconds") else ""
    return (escape(model["name"]), *figures, seconds, escape(reason))
