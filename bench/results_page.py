"""The pages of results from the stored lines of bench/engine.py, and tables of any other study.

python -m bench.results_page            writes docs/lab/results.md, bench/results/results.md with all tables,
                                        and what systems reach into docs/reference/systems.md
python -m bench.results_page STUDY      prints a study by the settings of its label points
python -m bench.results_page tuning --by system changes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.command import argument_parser
from bench.engine import ENGINE
from bench.machine import RESULTS, replaced
from bench.result_tables import (
    AUTO,
    AUTO_INTRODUCTION,
    MEANING,
    auto_table,
    evidence,
    systems_lines,
    systems_section,
)
from bench.short_page import FIRST, reached_table, short_page
from bench.studies import RUN_LISTS, VARIANTS, Run, variant_name
from bench.tables import (
    LABEL_POINTS,
    WHO_GAINS,
    Line,
    setting_table,
)
from gandalf.data.files import written
from gandalf.lab.store import read_lines

Groups = dict[str, list[Line]]  # lines by the name of their row

DOCS = Path(__file__).resolve().parents[1] / "docs" / "lab"
PAGE, WHOLE = DOCS / "results.md", RESULTS / "results.md"
SYSTEMS = DOCS.parent / "reference" / "systems.md"
ROWS = (*VARIANTS, AUTO)

INTRODUCTION = """\
# All results

The tables to read first are in [docs/lab/results.md](../../docs/lab/results.md), with encoder, epochs and
who is at a plateau. Every variant of every study stands in [report.md](report.md), and `python -m
bench.results_page STUDY` prints a study by its settings, known and new texts apart. Written by `python -m
bench.results_page` from the lines that `python -m bench.engine` stored in `bench/results/engine/`; not by
hand.

D: the training points alone. Z1: and label points whose one target is the label itself. G: and the paper's
label points. default: [shrunk targets](../../docs/guide/estimates.md), label points in the first 70 % of
steps ([why](../../docs/lab/who_gains.md)). auto: targets chosen on a share of the training points.

- All runs of a table take equal steps: an epoch is as many points as training points and labels together.
- The test split is scored once, at the end of a run, its filter applied. Figures are percentages. Settings
  stand in `bench/studies.py`.
- Mean over seeds ± standard deviation. Bold: the best row and those that it does not beat by more than noise,
  which is half the 95 % interval of a difference of two means, the spread between seeds pooled over the rows.
  It is the noise of training; the test points are the same in every row.
- FORMER
- Label text, new text: test points whose text is, and is not, the text of some label.
- Seconds are those of training. Other runs shared the card or the cores, more at some times than at others,
  so that they compare roughly at best. Memory is the peak of GPU memory, or of the whole process on a CPU.
""".replace("FORMER", MEANING.format(docs="../../docs/reference/"))


def page(lines: list[Line], chosen: list[Line], wanted: list[Run]) -> str:
    """Return the page: lines of all studies, those of `auto`, and the runs of the main study."""
    keys, chosen = {run.key for run in wanted}, latest(chosen)
    main = [line for line in lines if line["key"] in keys]
    others = [line for line in systems_lines(lines) if line["key"] not in keys]
    parts = [INTRODUCTION, measured_on([*main, *others, *chosen]), *systems_section(lines)]
    if of_auto := auto_table(grouped([*named(main), *((AUTO, line) for line in chosen)])):
        parts += [AUTO_INTRODUCTION, of_auto + "\n"]
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
