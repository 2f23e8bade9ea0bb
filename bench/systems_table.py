"""All systems side by side, in the layout of the paper's main table."""

from __future__ import annotations

from collections.abc import Iterator

from bench.studies import OWN_BASELINE, Run, systems_study, variant_name
from bench.tables import WHO_GAINS, Column, Line, Sample, best_rows, figure, number, table
from gandalf.systems import SYSTEMS

COLUMNS: dict[str, Column] = {
    **{f"{name}@{k}": figure(f"{name}@{k}") for name in ("P", "PSP") for k in (1, 3, 5)},
    "P@1 label text": WHO_GAINS["P@1 label text"],
    "P@1 new text": WHO_GAINS["P@1 new text"],
}

INTRODUCTION = """\
## All systems

Each system as its paper has it, with the paper's label points (+ G) and with ours (+ default), at equal
steps. A system's own baseline is D, but Renee's is Z1, since its published rows train on label texts too.
"""


def systems_lines(lines: list[Line]) -> list[Line]:
    """Those that are runs of the study."""
    wanted = {run.key for run in systems_study()}
    return [line for line in lines if line["key"] in wanted]


def systems_section(lines: list[Line]) -> Iterator[str]:
    """A table for each data set; nothing where no run was made."""
    if not (found := systems_lines(lines)):
        return
    yield INTRODUCTION
    every = len(systems_study())
    if missing := every - len({line["key"] for line in found}):
        yield f"**{missing} of {every} runs are still to be made.**\n"
    for data in dict.fromkeys(line["name"] for line in found):
        yield f"### {data}, all systems\n"
        yield systems_table([line for line in found if line["name"] == data]) + "\n"


def systems_table(lines: list[Line]) -> str:
    """A row for each system and its label points; of each column the best in bold."""
    groups: dict[str, list[Line]] = {}
    for system in SYSTEMS:
        for name in (OWN_BASELINE.get(system, "D"), "G", "default"):
            title = system if name == OWN_BASELINE.get(system, "D") else f"+ {name}"
            of_row = [line for line in lines if _is(line, system, name)]
            if of_row:
                groups[f"{system}/{title}"] = of_row
    samples = {
        name: {row: Sample.of(of, column) for row, of in groups.items()} for name, column in COLUMNS.items()
    }
    best = {name: best_rows(of_column) for name, of_column in samples.items()}
    rows = [
        [
            row.partition("/")[2],
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
