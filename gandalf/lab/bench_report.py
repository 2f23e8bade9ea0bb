"""Trainers side by side as a table: what each reaches, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

FIGURES = ("P@1", "P@5", "PSP@1", "PSP@5", "C@5", "P@1, new text")
COSTS = {"train_seconds": "train s", "predict_ms": "predict ms", "peak_mb": "peak MB", "model_mb": "model MB"}


def bench_report(data: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each trainer and its points; the best of each figure is bold."""
    caption = "predict ms: for each text, all at once, the model read; peak MB: training and predicting"
    table = Table(title=escape(data), title_justify="left", caption=caption, caption_justify="left")
    table.add_column("trainer", no_wrap=True)
    table.add_column("points", no_wrap=True)
    for name in (*FIGURES, *COSTS.values()):
        table.add_column(name, justify="right")
    best = {name: max((row[name] for row in rows if row[name] is not None), default=None) for name in FIGURES}
    for row in rows:
        shown = [_shown(row[name], row[name] == best[name]) for name in FIGURES]
        costs = [f"{row[name]:,.{1 if row[name] < 10 else 0}f}" for name in COSTS]
        table.add_row(escape(row["trainer"]), escape(row["points"]), *shown, *costs)
    return table


def told(row: Mapping[str, Any]) -> str:
    """Return a row's figures in a line, for whoever waits for the table."""
    found = ", ".join(f"{name} {row[name]:.2f}" for name in ("P@1", "PSP@5") if row[name] is not None)
    return f"{found}, trained in {row['train_seconds']:,.0f} s"


def _shown(value: float | None, best: bool) -> str:
    text = "-" if value is None else f"{value:.2f}"
    return f"[bold]{text}[/]" if best and value is not None else text
