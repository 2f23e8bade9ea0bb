"""The pages of results from the stored lines of bench/engine.py, and tables of any other study.

python -m bench.results_page            writes docs/lab/results.md, bench/results/results.md with all tables,
                                        and what systems reach into docs/reference/systems.md
python -m bench.results_page STUDY      prints a study by the settings of its label points
python -m bench.results_page tuning --by system changes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bench.command import argument_parser
from bench.engine import ENGINE
from bench.machine import RESULTS, replaced
from bench.result_tables import (
    AUTO,
    AUTO_INTRODUCTION,
    MEANING,
    auto_table,
    evidence,
    marked,
    systems_lines,
    systems_section,
)
from bench.short_page import FIRST, reached_table, short_page
from bench.studies import RUN_LISTS, VARIANTS, Run, variant_name
from bench.tables import (
    LABEL_POINTS,
    WHO_GAINS,
    Column,
    Line,
    best_rows,
    figure,
    gain,
    number,
    samples_of,
    setting_table,
    table,
)
from gandalf.data.files import written
from gandalf.lab.measure import KEPT
from gandalf.lab.store import read_lines

Groups = dict[str, list[Line]]  # lines by the name of their row

DOCS = Path(__file__).resolve().parents[1] / "docs" / "lab"
PAGE, WHOLE = DOCS / "results.md", RESULTS / "results.md"
SYSTEMS = DOCS.parent / "reference" / "systems.md"
ROWS = (*VARIANTS, AUTO)
BASES = ("D", "Z1")  # that gains are told against
SCORES: dict[str, Column] = {
    **{name: figure(name) for name in KEPT},
    "P@1 label text": figure("P@1", "label_text"),
    "P@1 new text": figure("P@1", "new_text"),
}
GAINS = ("P@1", "PSP@5", "P@1 label text", "P@1 new text")

INTRODUCTION = """\
# All results

The tables to read first are in [docs/lab/results.md](../../docs/lab/results.md).
Written by `python -m bench.results_page` from the lines that `python -m bench.engine main` stored in
`bench/results/engine/`; not by hand.

| | trained on |
| --- | --- |
| D | the training points alone |
| Z | label points alone: each label's text, its targets the ratios of the label graph |
| U(G,N) | as many points as D has, drawn uniformly from G |
| Z1 | D and label points whose one target is the label itself |
| G | D and Z: Gandalf as in the paper |
| shrunk, calibrated | D and label points with [better estimates](../../docs/guide/estimates.md) as targets |
| default | shrunk, label points in the first 70 % of steps ([why](../../docs/lab/who_gains.md)) |
| auto | D and the label points that were chosen on a share of the training points |

- Label points are met to the end, but in `default`, and in `auto`, which chooses targets for that recipe.
- All runs of a table take equal steps, since an epoch is as many points as D and Z have together, whatever
  the targets; where they do not, the line above the table says so.
- The test split is scored once, at the end of a run. Settings stand in `bench/studies.py` and are the same
  for all variants. The filter of each data set is applied. Figures are percentages.
- Mean over seeds ± standard deviation. Bold: the best row and those that it does not beat by more than noise,
  which is half the 95 % interval of a difference of two means, the spread between seeds pooled over the rows.
  Gains are given ± that noise and are bold where they are larger. It is the noise of training; the test
  points are the same in every row.
- FORMER
- What label points add to each system's own baseline, encoder, epochs and whether a system is at a plateau:
  [docs/lab/results.md](../../docs/lab/results.md#how-they-were-trained).
- Label text, new text: test points whose text is, and is not, the text of some label.
- Seconds are those of training. Other runs shared the card or the cores, more at some times than at others,
  so that they compare roughly at best. Memory is the peak of GPU memory, or of the whole process on a CPU.
""".replace("FORMER", MEANING.format(docs="../../docs/reference/"))


def page(lines: list[Line], chosen: list[Line], wanted: list[Run]) -> str:
    """Return the page: lines of all studies, those of `auto`, and the runs of the main study."""
    keys, every = {run.key for run in wanted}, lines
    lines, chosen = [line for line in lines if line["key"] in keys], latest(chosen)
    others = [line for line in systems_lines(every) if line["key"] not in keys]
    parts = [INTRODUCTION, measured_on([*lines, *others, *chosen]), *systems_section(every)]
    if missing := len(keys) - len(lines):
        parts.append(f"**{missing} of {len(keys)} runs are still to be made.**\n")
    places = grouped([*named(lines), *((AUTO, line) for line in chosen)])
    if of_auto := auto_table(places):
        parts += [AUTO_INTRODUCTION, of_auto + "\n"]
    for data in dict.fromkeys(data for data, _ in places):
        parts.append(f"## {data}\n")
        for (name, system), groups in places.items():
            parts += section(system, groups) if name == data else ()
    return "\n".join(parts)


def grouped(rows: list[tuple[str, Line]]) -> dict[tuple[str, str], Groups]:
    """Return named lines by data set and system, then by row, in the order of the introduction."""
    found: dict[tuple[str, str], Groups] = {}
    for row in ROWS:
        for name, line in rows:
            if name == row:
                found.setdefault(place(line), {}).setdefault(row, []).append(line)
    return found


def place(line: Line) -> tuple[str, str]:
    """Return data set and system: what a table is about."""
    return line["name"], line["run"]["system"]


def named(lines: Iterable[Line]) -> Iterator[tuple[str, Line]]:
    """Yield each line with the name of its variant."""
    for line in lines:
        name = variant_name(Run.of(line["run"]))
        if name is not None:
            yield name, line


def latest(lines: Iterable[Line]) -> list[Line]:
    """Return the last choice for each data set, system and seed; chosen settings name no variant."""
    return list({(*place(line), line["run"]["seed"]): line for line in lines}.values())


def section(system: str, groups: Groups) -> Iterator[str]:
    """Yield what was run, the figures, the gains and what `auto` chose, of a system on a data set."""
    yield f"### {system}\n"
    yield about(groups)
    yield score_table(groups) + "\n"
    if any(base in groups for base in BASES) and len(groups) > 1:
        yield gain_table(groups) + "\n"
    for line in groups.get(AUTO, []):
        targets = line["recipe"]["targets"]
        choice = ", ".join(f"{name} {targets[name]}" for name in LABEL_POINTS)
        yield f"- auto, seed {line['run']['seed']}: {choice}"
    if AUTO in groups:
        yield ""


def about(groups: Groups) -> str:
    """Return seeds, steps, device, points and settings of a table."""
    lines = [line for of_row in groups.values() for line in of_row]
    figures = lines[0]["figures"]
    known, new = ((figures[part] or {}).get("points", 0) for part in ("label_text", "new_text"))
    settings = [  # those of all rows; what makes a row what it is stands in the introduction
        text
        for row, of_row in groups.items()
        if row != AUTO
        for text in of_row[0]["run"]["settings"]
        if text not in VARIANTS[row].settings
    ]
    return (
        f"Seeds: {spread(len(of_row) for of_row in groups.values())}. "
        f"Steps: {spread(line['steps'] for line in lines)}, on {_listed(line['device'] for line in lines)}. "
        f"Test points: {figures['points']:,}, {known:,} with the text of a label and {new:,} with a new one. "
        f"Settings: {_listed(f'`{text}`' for text in settings) or 'those of the system'}.\n"
    )


def spread(numbers: Iterable[int]) -> str:
    """Return a number, or the least and the greatest of several."""
    found = sorted(set(numbers))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def measured_on(lines: Iterable[Line]) -> str:
    """Return machines and commits."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        had = line["machine"]
        gpu = f"{had['gpu']}, " if line["device"] == "cuda" else ""
        processors = f"{gpu}{had['cpu']} with {had['cores']} cores"
        what = f"{processors}, Python {had['python']}, torch {had['torch']}"
        found.setdefault(what, []).append(line)
    return "".join(
        f"- {what}: {len(of_it)} runs, {spread(line['jobs'] for line in of_it)} at once, "
        f"commit {_listed(line['commit'] for line in of_it)}\n"
        for what, of_it in found.items()
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def score_table(groups: Groups) -> str:
    """Return all figures of every variant, the best of each column in bold."""
    columns = samples_of(groups, SCORES)
    best = {name: best_rows(samples) for name, samples in columns.items()}
    rows = []
    for row, lines in groups.items():
        cells = [
            number(samples[row].mean, samples[row].deviation, bold=row in best[name])
            for name, samples in columns.items()
        ]
        seconds = float(np.mean([line["seconds"] for line in lines]))
        memory = max(line["peak_memory"] for line in lines) / 2**20
        rows.append([marked(row, lines), *cells, f"{seconds:,.1f}", f"{memory:,.0f}"])
    return table(["", *SCORES, "seconds", "peak MB"], rows)


def gain_table(groups: Groups) -> str:
    """Return what each variant gains against those that know less, in bold where it exceeds noise."""
    bases = [base for base in BASES if base in groups]
    samples = samples_of(groups, {name: SCORES[name] for name in GAINS})

    def cell(row: str, base: str, name: str) -> str:
        more, half = gain(samples[name], row, base)
        return "" if row == base else number(more, half, bold=abs(more) > half, sign="+")

    pairs = [(base, name) for base in bases for name in GAINS]
    rows = [
        [marked(row, lines), *(cell(row, base, name) for base, name in pairs)]
        for row, lines in groups.items()
        if row != bases[0]
    ]
    return table(["", *(f"{name} − {base}" for base, name in pairs)], rows)


def study_tables(lines: list[Line], settings: list[str]) -> Iterator[str]:
    """Yield the tables of any study by its settings, one for each data set and system."""
    for data, system in dict.fromkeys(map(place, lines)):
        here = [line for line in lines if place(line) == (data, system)]
        yield f"**{data}, {system}**\n\n{setting_table(here, settings, WHO_GAINS)}\n"


def main() -> None:
    """Write the page, or print a study."""
    parser = argument_parser(__doc__)
    parser.add_argument("study", nargs="?", help="print the tables of this study")
    parser.add_argument("--by", nargs="+", default=list(LABEL_POINTS), help="settings that make a row")
    parser.add_argument("--from", type=Path, default=ENGINE, dest="folder", help="folder with stored lines")
    parser.add_argument("--to", type=Path, default=PAGE, help="the short page")
    parser.add_argument("--systems", type=Path, default=SYSTEMS, help="the page that says what each reaches")
    parser.add_argument("--all-to", type=Path, default=WHOLE, help="the page with all tables")
    chosen = parser.parse_args()

    def stored(study: str) -> list[Line]:
        return read_lines(chosen.folder / f"{study}.jsonl")

    if chosen.study:
        print(*study_tables(stored(chosen.study), chosen.by), sep="\n")
        return
    lines, known = [*stored("main"), *stored("systems")], evidence(chosen.folder)
    texts = {
        chosen.all_to: page(lines, stored(AUTO), RUN_LISTS["main"]()),
        chosen.to: short_page(systems_lines(lines), of_first(lines), chosen.folder, known),
    }
    if chosen.systems.exists():
        reached = reached_table(systems_lines(lines))
        texts[chosen.systems] = replaced(chosen.systems.read_text("utf-8"), "REACHED", reached)
    for path, text in texts.items():
        with written(path) as file:
            file.write(text)
        print(path)


def of_first(lines: list[Line]) -> dict[str, Groups]:
    """Return the rows of the main study of one system, by data set."""
    keys = {run.key for run in RUN_LISTS["main"]()}
    places = grouped(list(named(line for line in lines if line["key"] in keys)))
    return {data: groups for (data, system), groups in places.items() if system == FIRST}


if __name__ == "__main__":
    main()
