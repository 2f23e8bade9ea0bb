"""All systems side by side, in the layout of the paper's main table."""

from __future__ import annotations

from collections.abc import Iterator

from bench.former import marked
from bench.studies import OWN_BASELINE, Run, keys_of, systems_study, variant_name
from bench.tables import WHO_GAINS, Column, Line, Sample, best_rows, figure, noise, number, pooled, table
from gandalf.systems import NETWORKS

COLUMNS: dict[str, Column] = {
    **{f"{name}@{k}": figure(f"{name}@{k}") for name in ("P", "PSP") for k in (1, 3, 5)},
    "C@1": figure("C@1"),
    "P@1 label text": WHO_GAINS["P@1 label text"],
    "P@1 new text": WHO_GAINS["P@1 new text"],
}

GAINED = ("P@1", "PSP@5", "C@1", "P@1 new text")
Row = tuple[str, str]  # a system, and its label points

GAINS = """\
### What label points add

To each system's own baseline, ± noise of seeds where there are several; bold where it is a loss beyond that.
"""

INTRODUCTION = """\
## All systems

Each system as its paper has it, with the paper's label points (+ G) and with ours (+ default), at equal
steps. A system's own baseline is D, but Renee's is Z1, since its published rows train on label texts too.
"""


def systems_lines(lines: list[Line]) -> list[Line]:
    """Those that are runs of the study."""
    wanted = keys_of(systems_study(), {line["key"] for line in lines})
    return [line for line in lines if line["key"] in wanted]


def systems_section(lines: list[Line]) -> Iterator[str]:
    """A table for each data set; nothing where no run was made."""
    if not (found := systems_lines(lines)):
        return
    yield INTRODUCTION
    every = len(systems_study())
    if missing := every - len({line["key"] for line in found}):
        yield f"**{missing} of {every} runs are still to be made.**\n"
    yield GAINS
    yield gains_table(found) + "\n"
    for data in dict.fromkeys(line["name"] for line in found):
        yield f"### {data}, all systems\n"
        yield systems_table([line for line in found if line["name"] == data]) + "\n"


def gains_table(lines: list[Line]) -> str:
    """What label points add to each system's own baseline, bold where it is a loss beyond noise."""
    rows = []
    for data in dict.fromkeys(line["name"] for line in lines):
        groups = grouped([line for line in lines if line["name"] == data])
        samples = {
            name: {row: Sample.of(of_row, COLUMNS[name]) for row, of_row in groups.items()} for name in GAINED
        }
        for system in NETWORKS:
            own = (system, OWN_BASELINE.get(system, "D"))
            cells = [
                _gain(samples[name], own, (system, points)) for points in ("G", "default") for name in GAINED
            ]
            if any(cells):
                of_system = (line for row, of in groups.items() if row[0] == system for line in of)
                rows.append([marked(f"{data}, {system}", of_system), *cells])
    return table(["", *(f"{points}: {name}" for points in ("+ G", "+ default") for name in GAINED)], rows)


def _gain(samples: dict[Row, Sample], own: Row, other: Row) -> str:
    if own not in samples or other not in samples:
        return ""
    gain = samples[other].mean - samples[own].mean
    half = noise(samples[other], samples[own], pooled(samples.values()))
    return number(gain, half, bold=gain < -half, sign="+")


def grouped(lines: list[Line]) -> dict[Row, list[Line]]:
    """Lines by system and label points, in the order of the table."""
    rows = [(system, name) for system in NETWORKS for name in (OWN_BASELINE.get(system, "D"), "G", "default")]
    groups = {row: [line for line in lines if _is(line, *row)] for row in rows}
    return {row: of_row for row, of_row in groups.items() if of_row}


def systems_table(lines: list[Line]) -> str:
    """A row for each system and its label points; of each column the best in bold."""
    groups = grouped(lines)
    samples = {
        name: {row: Sample.of(of, column) for row, of in groups.items()} for name, column in COLUMNS.items()
    }
    best = {name: best_rows(of_column) for name, of_column in samples.items()}
    rows = [
        [
            marked(f"+ {row[1]}" if row[1] in ("G", "default") else row[0], of_row),
            *(
                number(samples[name][row].mean, samples[name][row].deviation, bold=row in best[name])
                for name in COLUMNS
            ),
            f"{min(line['seconds'] for line in of_row):,.0f}",
            f"{max(line['peak_memory'] for line in of_row) / 2**20:,.0f}",
            str(len(of_row)),
        ]
        for row, of_row in groups.items()
    ]
    return table(["", *COLUMNS, "seconds", "peak MB", "seeds"], rows)


def _is(line: Line, system: str, name: str) -> bool:
    run = Run.of(line["run"])
    return run.system == system and variant_name(run) == name
