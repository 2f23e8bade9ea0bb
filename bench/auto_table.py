"""Is `auto` within noise of the best fixed choice? One row for each data set and system."""

from __future__ import annotations

from collections.abc import Mapping

from bench.tables import Column, Line, Sample, figure, noise, number, pooled, table

AUTO = "auto"
COLUMNS: dict[str, Column] = {
    "P@1": figure("P@1"),
    "PSP@5": figure("PSP@5"),
    "P@1 new text": figure("P@1", "new_text"),
}
INTRODUCTION = """\
## auto against the best fixed choice

`--targets auto` chooses on a share of the training points; the best fixed row of each figure was found on the
test split, which nobody has beforehand. Difference ± noise; bold where auto is worse by more than that.
"""


def auto_table(places: Mapping[tuple[str, str], Mapping[str, list[Line]]]) -> str:
    """`auto` of each data set and system beside the best row that is not `auto`."""
    rows = []
    for (data, system), groups in places.items():
        if AUTO not in groups or len(groups) == 1:
            continue
        cells = [_cells(groups, column) for column in COLUMNS.values()]
        rows.append([f"{data}, {system}", *(cell for pair in cells for cell in pair), str(len(groups[AUTO]))])
    head = [title for name in COLUMNS for title in (f"best {name}", "auto − best")]
    return table(["", *head, "seeds of auto"], rows) if rows else ""


def _cells(groups: Mapping[str, list[Line]], column: Column) -> tuple[str, str]:
    samples = {row: Sample.of(lines, column) for row, lines in groups.items()}
    fixed = {row: sample for row, sample in samples.items() if row != AUTO and sample.values}
    name, best = max(fixed.items(), key=lambda pair: pair[1].mean)
    half = noise(samples[AUTO], best, pooled(samples.values()))
    lost = samples[AUTO].mean - best.mean
    return f"{name} {best.mean:.2f}", number(lost, half, bold=lost < -half, sign="+")
