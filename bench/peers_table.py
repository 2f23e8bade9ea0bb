"""The tables of docs/peers.md, from what bench.peers_cpu has kept: python -m bench.peers_table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.machine import RESULTS
from bench.peers_cpu import HARD
from gandalf.peers import PEERS, POINTS, SOFT

FIGURES = ("P@1", "PSP@5", "C@5", "P@1, new text")
Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """The rows of a file of results."""
    found: list[Row] = json.loads(path.read_text("utf-8"))["results"]["rows"]
    return found


def by_points(rows: Iterable[Row]) -> list[str]:
    """One line for each trainer, a column for each kind of points; ours last."""
    found = list(rows)
    columns = [*POINTS]
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in PEERS:
        own = {row["points"]: row for row in found if row["trainer"] == name and _usual(row)}
        if own:
            lines.append(f"| {name} | " + " | ".join(shown(own.get(points)) for points in columns) + " |")
    for row in found:
        if row["points"] == "its own":
            lines.append(f"| **`{row['trainer']}`** | | | | {shown(row)} |")
    return lines


def by_soft(rows: Iterable[Row]) -> list[str]:
    """One line for each trainer, a column for each way in which soft targets reach it."""
    found = list(rows)
    columns = [name for name in SOFT if any(row["soft"] == name for row in found)]
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in dict.fromkeys(row["trainer"] for row in found):
        own = {row["soft"]: row for row in found if row["trainer"] == name}
        lines.append(f"| {name} | " + " | ".join(shown(own.get(soft)) for soft in columns) + " |")
    return lines


def shown(row: Row | None) -> str:
    """The figures of a row."""
    if row is None:
        return ""
    return " / ".join("-" if row[name] is None else f"{row[name]:.1f}" for name in FIGURES)


def _usual(row: Row) -> bool:
    return row["soft"] in (HARD, PEERS[row["trainer"]].soft)


def main() -> None:
    """Print them all."""
    print(" / ".join(FIGURES))
    for path in sorted(RESULTS.glob("peers_LF-*.json")):
        table = by_soft if path.stem.endswith("_validation") else by_points
        print(f"\n{path.stem}\n\n" + "\n".join(table(rows_of(path))))


if __name__ == "__main__":
    main()
