"""How rates were chosen: the runs in bench/results/engine/tuning.jsonl, scored on held-out training points.

    python -m bench.tuning

The runs were made by `python -m bench.engine FILE.json`; each line holds the run and its whole recipe, since
the recipes of the systems have changed by what was found.
"""

from __future__ import annotations

from typing import Any

from bench.engine import ENGINE, read_lines
from bench.tables import table

GIVEN = ("targets.label_epochs", "text.max_length")  # of every run of a system: nothing to compare
FIGURES = ("P@1", "new text", "PSP@5")


def row(line: dict[str, Any]) -> list[str]:
    """One run as a row of the table."""
    run, figures = line["run"], line["figures"]
    changes = [each for each in run["settings"] if not each.startswith(GIVEN)]
    values = (figures["P@1"], figures["new_text"]["P@1"], figures["PSP@5"])
    named = (run["system"], line["name"], run["targets"], " ".join(changes) or "(as it was)")
    return [*named, *(f"{value:.1f}" for value in values)]


def main() -> None:
    """Print the table."""
    lines = read_lines(ENGINE / "tuning.jsonl")
    print(table(("system", "data", "targets", "changed", *FIGURES), sorted(map(row, lines))))


if __name__ == "__main__":
    main()
