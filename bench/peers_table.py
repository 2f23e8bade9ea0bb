"""Write the tables of docs/lab/peers.md from what bench.peers_cpu and bench.engine have kept.

python -m bench.peers_table
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.command import argument_parser
from bench.engine import ENGINE
from bench.machine import RESULTS, replaced
from bench.peers_cpu import HARD, OWN
from bench.studies import keys_of, main_study, systems_study
from bench.tables import Line, Sample, figure
from gandalf.lab.peers import PEERS, POINTS, SOFT
from gandalf.lab.store import read_lines
from gandalf.lab.variants import Run, variant_name

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "peers.md"
FIGURES = ("P@1", "PSP@5", "C@5", "P@1, new text")
SETS = {
    "LF-ManSeeAlso-9K": "LF-ManSeeAlso-9K (`man`)",
    "LF-WebSeeAlsoTitles-6K": "LF-WebSeeAlsoTitles-6K",
    "LF-DocsSeeAlsoTitles-79K": "LF-DocsSeeAlsoTitles-79K",
}
# Of the study of all systems: those of words alone and the best one, in the columns of their label points.
STORED = ("astec", "decaf", "renee")
COMPARED = {
    ("astec", "default"): "`astec`",
    ("astec", "shrunk"): "`astec --label-epochs 1`",
    ("decaf", "default"): "`decaf`",
    ("renee", "default"): "`renee`",
}
# Of the validation runs of bench.engine: a system, and the share of its updates that meet label points.
HELD = {
    ("astec", 0.7): "`astec`",
    ("astec", 1.0): "`astec --label-epochs 1`",
    ("decaf", 0.4): "`decaf --label-epochs 0.4`",
}
COLUMNS = dict(zip(("D", "Z1", "G", "default"), POINTS, strict=True))
OF_LINES = dict(zip(FIGURES, (*map(figure, FIGURES[:3]), figure("P@1", "new_text")), strict=True))
Row = dict[str, Any]


# ---- the tables


def by_points(rows: Iterable[Row], stored: Iterable[Line] = ()) -> list[str]:
    """Return a line for each trainer, a column for each kind of points; ours last."""
    found = list(rows)
    lines = _head([*POINTS])
    for name in PEERS:
        own = {row["points"]: row for row in found if row["trainer"] == name and _usual(row)}
        if own:
            lines.append(_line(name, [shown(own.get(points)) for points in POINTS]))
    for row in found:
        if row["points"] == OWN:
            seeds = f", {row['runs']} seeds" if "runs" in row else ""
            lines.append(_line(f"**`{row['trainer']}`** (CPU{seeds})", [*[""] * 3, shown(row)]))
    return lines + of_systems(stored)


def of_systems(stored: Iterable[Line]) -> list[str]:
    """Return lines of the study of all systems, which learn from every training point."""
    groups: dict[tuple[str, str], dict[str, list[Line]]] = {}
    for line in stored:
        column = COLUMNS.get(variant_name(Run.of(line["run"])) or "")
        if line["run"]["system"] in STORED and column:
            key = (line["run"]["system"], "GPU" if line["device"] == "cuda" else "CPU")
            groups.setdefault(key, {}).setdefault(column, []).append(line)
    lines = []
    for (system, device), of_row in sorted(groups.items()):
        seeds = max(map(len, of_row.values()))
        name = f"**`{system}`**, all points ({device}, {seeds} seed{'s' * (seeds > 1)})"
        lines.append(_line(name, [_sampled(of_row.get(points, [])) for points in POINTS]))
    return lines


def hard_comparison() -> list[str]:
    """Return the best figure that any other trainer reached with any points, and ours, on every set."""
    sets = list(SETS)
    lines = ["| | " + " | ".join(SETS.values()) + " |", "|---" * (len(sets) + 1) + "|"]
    lines.append(
        _line("the best of the others, figure by figure", [best(rows_of(f"peers_{name}")) for name in sets])
    )
    for system in ("parabel", "astec"):
        own = [[row for row in rows_of(f"peers_{name}") if _is_own(row, system)] for name in sets]
        lines.append(_line(f"`{system}` (CPU)", [shown(rows[0]) if rows else "" for rows in own]))
    for (system, label_points), words in COMPARED.items():
        lines.append(
            _line(f"{words}, all points", [_stored_cell(name, system, label_points) for name in sets])
        )
    return lines


def best(rows: Iterable[Row]) -> str:
    """Return each figure of the trainer that has most of it."""
    found = [row for row in rows if row["trainer"] in PEERS and _usual(row)]
    known = {name: [float(row[name]) for row in found if row[name] is not None] for name in FIGURES}
    return " / ".join(f"{max(values):.1f}" if values else "-" for values in known.values())


def _is_own(row: Row, system: str) -> bool:
    return bool(row["points"] == OWN and row["trainer"] == system)


def _stored_cell(data: str, system: str, label_points: str) -> str:
    lines = [
        line
        for line in lines_of(data)
        if line["run"]["system"] == system and variant_name(Run.of(line["run"])) == label_points
    ]
    devices = {line["device"] for line in lines}
    return _sampled(lines) + (" (GPU)" if devices == {"cuda"} else " (CPU)" if lines else "")


def held_out(data: str) -> list[str]:
    """Return others and ours on the cuts of bench.engine, the means of three."""
    lines = ["| | " + " / ".join(FIGURES) + " |", "|---|---|"]
    lines += [_line(row["trainer"], [shown(row)]) for row in rows_of(f"peers_{data}_cuts")]
    stored = [line for name in ("who_gains", "fewer") for line in read_lines(ENGINE / f"{name}.jsonl")]
    for (system, share), words in HELD.items():
        own = [line for line in stored if _is_plain(line, data, system, share)]
        lines.append(_line(f"{words} ({len(own)} seeds)", [_sampled(own)]))
    return lines


def _is_plain(line: Line, data: str, system: str, share: float) -> bool:
    """Return True if the line is of the system's recipe but for how long it meets label points."""
    run, targets = line["run"], line["recipe"]["targets"]
    named = (line["name"], run["system"], run["split"], run["targets"], targets["label_epochs"])
    others = [word for word in run["settings"] if not word.startswith("targets.label_epochs=")]
    return named == (data, system, "validation", "shrunk", share) and not others


def costs(rows: Iterable[Row]) -> list[str]:
    """Return the costs of runs on an unshared machine, with all the points that there are."""
    lines = ["| | train, s | predict a text, ms | peak MB | model, MB |", "|---|---|---|---|---|"]
    for row in rows:
        if row["points"] in (OWN, "D + calibrated") and not row["machine_shared"]:
            name = f"**`{row['trainer']}`**" if row["points"] == OWN else row["trainer"]
            numbers = (f"{row['train_seconds']:.1f}", f"{row['predict_ms']:.2f}", f"{row['peak_mb']:,}")
            lines.append(_line(name, [*numbers, f"{row['model_mb']:.0f}"]))
    return lines


def by_soft(rows: Iterable[Row]) -> list[str]:
    """Return a line for each trainer, a column for each way of soft targets; ours take weights."""
    found = [{**row, "soft": "weights"} if row["points"] == OWN else row for row in rows]
    columns = [name for name in SOFT if any(row["soft"] == name for row in found)]
    lines = _head(columns)
    for name in (name for name in PEERS if any(row["trainer"] == name for row in found)):
        own = {row["soft"]: row for row in found if row["trainer"] == name}
        lines.append(_line(name, [shown(own.get(soft)) for soft in columns]))
    for row in (row for row in found if row["points"] == OWN):
        lines.append(_line(f"**`{row['trainer']}`**", [*[""] * (len(columns) - 1), shown(row)]))
    return lines


def apart(rows: Iterable[Row]) -> list[str]:
    """Return how far several runs of one row lie apart at most, a line for each trainer."""
    lines = []
    repeated = [row for row in rows if "runs" in row]
    for name in dict.fromkeys(row["trainer"] for row in repeated):
        own = [row for row in repeated if row["trainer"] == name]
        furthest = " / ".join(f"{max(row['apart'][each] or 0 for row in own):.1f}" for each in FIGURES)
        lines.append(f"Means of {own[0]['runs']} runs of `{name}`, which lie apart by at most {furthest}.")
    return ["", *lines] if lines else []


def shown(row: Row | None) -> str:
    """Return the figures of a row."""
    if row is None:
        return ""
    return " / ".join("-" if row[name] is None else f"{row[name]:.1f}" for name in FIGURES)


def _sampled(lines: list[Line]) -> str:
    samples = [Sample.of(lines, column) for column in OF_LINES.values()]
    return " / ".join(f"{sample.mean:.1f}" for sample in samples) if lines else ""


def _head(columns: list[str]) -> list[str]:
    return ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]


def _line(name: str, cells: list[str]) -> str:
    return f"| {name} |" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _usual(row: Row) -> bool:
    return row["soft"] in (HARD, PEERS[row["trainer"]].soft)


# ---- the page


def rows_of(name: str) -> list[Row]:
    """Return the rows that were kept under the name; none where no such run was made."""
    path = RESULTS / f"{name}.json"
    found: list[Row] = json.loads(path.read_text("utf-8"))["results"]["rows"] if path.is_file() else []
    return found


def lines_of(data: str) -> list[Line]:
    """Return the lines of the studies of label points and of all systems on the data."""
    lines = [line for name in ("main", "systems") for line in read_lines(ENGINE / f"{name}.jsonl")]
    wanted = keys_of((*main_study(), *systems_study()), {line["key"] for line in lines})
    return [line for line in lines if line["name"] == data and line["key"] in wanted]


def section(tables: Callable[[str], list[str]]) -> str:
    """Return a table for each data set that has one."""
    found = {title: tables(name) for name, title in SETS.items()}
    return "\n\n".join(f"{title}:\n\n" + "\n".join(lines) for title, lines in found.items() if lines)


def point_tables(data: str) -> list[str]:
    """Return the tables with and without label points, on the test split."""
    rows = rows_of(f"peers_{data}")
    return by_points(rows, lines_of(data)) + apart(rows) if rows else []


def soft_tables(data: str) -> list[str]:
    """Return the tables of each way for soft targets, on held-out training points."""
    rows = rows_of(f"peers_{data}_validation")
    return by_soft(rows) + apart(rows) if rows else []


def main() -> None:
    """Write them all."""
    argument_parser(__doc__).parse_args()
    text = PAGE.read_text("utf-8")
    for mark, tables in (("SOFT_TABLES", soft_tables), ("POINT_TABLES", point_tables)):
        text = replaced(text, mark, section(tables))
    text = replaced(text, "HARD_TABLE", "\n".join(hard_comparison()))
    text = replaced(text, "COST_TABLE", "\n".join(costs(rows_of("peers_costs_LF-ManSeeAlso-9K"))))
    text = replaced(text, "HELD_TABLE", "\n".join(held_out("LF-ManSeeAlso-9K")))
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
