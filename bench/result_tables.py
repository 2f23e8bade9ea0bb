"""Make the tables of the pages of results: all systems side by side, auto, and how long each was trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path

from bench.studies import OWN_BASELINE, Run, keys_of, systems_study, variant_name
from bench.tables import WHO_GAINS, Column, Line, Sample, best_rows, figure, gain, number, samples_of, table
from gandalf.lab.convergence import plateau
from gandalf.lab.results import Results
from gandalf.lab.study_tables import encoder_of
from gandalf.systems import NETWORKS

CHANGED = ("inceptionxml", "inceptionxml-lf", "siamesexml", "ngame", "renee")  # since commit 0f17dd6
MARK = " †"
MEANING = "†: with [former parts]({docs}systems.md#former-parts), not run again."


def is_former(line: Line) -> bool:
    """Return True if the line's system had other parts when it was measured."""
    # Recipes name the share of a cluster since the commit that followed.
    return line["run"]["system"] in CHANGED and "cluster_share" not in line["recipe"].get("siamese", {})


def marked(name: str, lines: Iterable[Line]) -> str:
    """Return the name of a row, marked if one of its lines is of former parts."""
    return name + MARK if any(map(is_former, lines)) else name


COLUMNS: dict[str, Column] = {
    **{f"{name}@{k}": figure(f"{name}@{k}") for name in ("P", "PSP") for k in (1, 3, 5)},
    "C@1": figure("C@1"),
    "P@1 label text": WHO_GAINS["P@1 label text"],
    "P@1 new text": WHO_GAINS["P@1 new text"],
}

GAINED = ("P@1", "PSP@5", "C@1", "P@1 new text")
Row = tuple[str, str]  # a system, and its label points

SYSTEMS_INTRODUCTION = """\
## All systems

Each system as its paper has it, with the paper's label points (+ G) and with ours (+ default), at equal
steps. A system's own baseline is D, but Renee's is Z1, since its published rows train on label texts too.
"""


def systems_lines(lines: list[Line]) -> list[Line]:
    """Return the lines of the study of all systems."""
    wanted = keys_of(systems_study(), {line["key"] for line in lines})
    return [line for line in lines if line["key"] in wanted]


def systems_section(lines: list[Line]) -> Iterator[str]:
    """Yield a table for each data set."""
    if not (found := systems_lines(lines)):
        return
    yield SYSTEMS_INTRODUCTION
    every = len(systems_study())
    if missing := every - len({line["key"] for line in found}):
        yield f"**{missing} of {every} runs are still to be made.**\n"
    for data in dict.fromkeys(line["name"] for line in found):
        yield f"### {data}, all systems\n"
        yield systems_table([line for line in found if line["name"] == data]) + "\n"


def gains(lines: list[Line], points: str, name: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Return what label points add to each system's own baseline, and its noise, by data set and system."""
    found = {}
    for data in dict.fromkeys(line["name"] for line in lines):
        groups = grouped([line for line in lines if line["name"] == data])
        samples = {row: Sample.of(of_row, COLUMNS[name]) for row, of_row in groups.items()}
        for system in NETWORKS:
            own, other = (system, OWN_BASELINE.get(system, "D")), (system, points)
            if own in samples and other in samples:
                found[data, system] = gain(samples, other, own)
    return found


def gains_table(lines: list[Line]) -> str:
    """Return what label points add to each system's own baseline; a loss beyond noise is bold."""
    columns = [gains(lines, points, name) for points in ("G", "default") for name in GAINED]
    rows = []
    for data, system in product(dict.fromkeys(line["name"] for line in lines), NETWORKS):
        if any((data, system) in column for column in columns):
            of_system = [line for line in lines if (line["name"], line["run"]["system"]) == (data, system)]
            cells = [_gain_cell(column.get((data, system))) for column in columns]
            rows.append([marked(f"{data}, {system}", of_system), *cells])
    return table(["", *(f"{points}: {name}" for points in ("+ G", "+ default") for name in GAINED)], rows)


def _gain_cell(found: tuple[float, float] | None) -> str:
    if found is None:
        return ""
    more, half = found
    return number(more, half, bold=more < -half, sign="+")


def grouped(lines: list[Line]) -> dict[Row, list[Line]]:
    """Group lines by system and label points, in the order of the table."""
    rows = [(system, name) for system in NETWORKS for name in (OWN_BASELINE.get(system, "D"), "G", "default")]
    groups = {row: [line for line in lines if _is(line, *row)] for row in rows}
    return {row: of_row for row, of_row in groups.items() if of_row}


def systems_table(lines: list[Line]) -> str:
    """Return a row for each system and its label points; of each column the best in bold."""
    groups = grouped(lines)
    samples = samples_of(groups, COLUMNS)
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


Evidence = Mapping[tuple[str, str], str]  # by the names of data set and system

TRAINED_INTRODUCTION = """\
## How they were trained

At a plateau: twice the steps move P@1 of D and of G on held-out training points by less than a point, up or
down; all else is called reduced ([verdicts.md](verdicts.md#who-is-at-a-plateau)). Steps
are those of all stages together.
"""
UNKNOWN = "reduced: not run"


def evidence(folder: Path) -> Evidence:
    """Return the evidence of the stored convergence study, by data set and system."""
    found = Results.read(folder)
    return {
        (next(iter(rows.values()))[0]["name"], place.system): marked(
            str(plateau(found, place)), (line for lines in rows.values() for line in lines)
        )
        for place, rows in found.study("convergence").items()
    }


def trained_section(lines: list[Line], known: Evidence) -> str:
    """Return a row for each system on each set."""
    places = {(line["name"], line["run"]["system"]): line for line in lines}
    rows = [
        [f"{data}, {system}", *_length(line), known.get((data, system), UNKNOWN)]
        for (data, system), line in sorted(places.items())
    ]
    made = table(["", "encoder", "epochs", "steps", "evidence"], rows)
    return f"{TRAINED_INTRODUCTION}\n{made}\n"


def _length(line: Line) -> list[str]:
    recipe = line["recipe"]
    return [encoder_of(recipe) or "–", f"{recipe['training']['epochs']:g}", f"{line['steps']:,}"]


AUTO = "auto"
AUTO_COLUMNS: dict[str, Column] = {
    "P@1": figure("P@1"),
    "PSP@5": figure("PSP@5"),
    "P@1 new text": figure("P@1", "new_text"),
}
AUTO_INTRODUCTION = """\
## auto against the best fixed choice

`--targets auto` chooses on a share of the training points; the best fixed row of each figure was found on the
test split, which nobody has beforehand. Difference ± noise; bold where auto is worse by more than that.
"""


def auto_table(places: Mapping[tuple[str, str], Mapping[str, list[Line]]]) -> str:
    """Return `auto` beside the best fixed row, for each data set and system."""
    rows = []
    for (data, system), groups in places.items():
        if AUTO not in groups or len(groups) == 1:
            continue
        cells = [_auto_cells(samples) for samples in samples_of(groups, AUTO_COLUMNS).values()]
        rows.append([f"{data}, {system}", *(cell for pair in cells for cell in pair), str(len(groups[AUTO]))])
    head = [title for name in AUTO_COLUMNS for title in (f"best {name}", "auto − best")]
    return table(["", *head, "seeds of auto"], rows) if rows else ""


def _auto_cells(samples: Mapping[str, Sample]) -> tuple[str, str]:
    fixed = {row: sample for row, sample in samples.items() if row != AUTO and sample.values}
    name, best = max(fixed.items(), key=lambda pair: pair[1].mean)
    lost, half = gain(samples, AUTO, name)
    return f"{name} {best.mean:.2f}", number(lost, half, bold=lost < -half, sign="+")
