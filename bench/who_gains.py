"""The tables of docs/lab/who_gains.md, from the lines that `python -m bench.engine who_gains` stored.

python -m bench.who_gains
"""

from __future__ import annotations

from bench.engine import ENGINE, read_lines
from bench.tables import Line, Sample, figure, table

COLUMNS = {
    "P@1": figure("P@1"),
    "label's text": figure("P@1", "label_text"),
    "new text": figure("P@1", "new_text"),
    "PSP@5": figure("PSP@5"),
    "PSP@5, new text": figure("PSP@5", "new_text"),
}
NAMES = {"none": "D", "self": "Z1", "ratio": "G (ratio)", "shrunk": "shrunk", "calibrated": "calibrated"}
Key = tuple[int, float, float, float]


def key(line: Line) -> Key:
    """Where a row stands: by estimate, then what was done to the label points, most of them first."""
    said = line["recipe"]["targets"]
    done = (said["label_epochs"], said["label_weight"], said["scale"])
    return (list(NAMES).index(said["targets"]), *(-value for value in done))


def name(row: Key) -> str:
    """The row in words."""
    early, weight, scale = (-value for value in row[1:])
    parts = [list(NAMES.values())[row[0]]]
    parts += [f"targets x {scale:g}"] if scale != 1 else []
    parts += [f"weight {weight:g}"] if weight != 1 else []
    parts += [f"first {early:.0%} of the steps".replace("%", " %")] if early != 1 else []
    return ", ".join(parts)


def cell(sample: Sample) -> str:
    """Mean, and its standard error where there are several seeds."""
    error = f" ± {sample.error:.1f}" if len(sample.values) > 1 else ""
    return f"{sample.mean:.1f}{error}"


def main() -> None:
    """Print a table for each data set and system."""
    lines = read_lines(ENGINE / "who_gains.jsonl")
    for data, system in dict.fromkeys((line["name"], line["run"]["system"]) for line in lines):
        here = [line for line in lines if (line["name"], line["run"]["system"]) == (data, system)]
        rows: dict[Key, list[Line]] = {}
        for line in sorted(here, key=key):
            rows.setdefault(key(line), []).append(line)
        cells = [
            [name(row), *(cell(Sample.of(of_row, column)) for column in COLUMNS.values())]
            for row, of_row in rows.items()
        ]
        print(f"**{data}, {system}**\n\n{table(['', *COLUMNS], cells)}\n")


if __name__ == "__main__":
    main()
