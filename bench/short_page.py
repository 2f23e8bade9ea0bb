"""Make the first tables of docs/lab/results.md; bench/results/results.md has all others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.result_tables import (
    COLUMNS,
    MEANING,
    Evidence,
    gains,
    gains_table,
    grouped,
    is_former,
    marked,
    trained_section,
)
from bench.studies import OWN_BASELINE
from bench.tables import WHO_GAINS, Column, Line, Sample, figure, number, table
from gandalf.lab.results import ResultPlace, Results
from gandalf.lab.study_pages import table_text
from gandalf.lab.study_tables import length_table
from gandalf.systems import NETWORKS

REACHED = ("P@1", "PSP@5")
SHOWN = ("D", "Z1", "G", "default")
FIRST = "astec"
GAINS = """\
## What label points add

To each system's own baseline, ± the noise of seeds where there are several; bold: a loss beyond that.
"""
FIGURES: dict[str, Column] = {
    "P@1": figure("P@1"),
    "P@1 label text": WHO_GAINS["P@1 label text"],
    "P@1 new text": WHO_GAINS["P@1 new text"],
    "PSP@5": figure("PSP@5"),
    "C@1": figure("C@1"),
    "C@5": figure("C@5"),
}
TITLE = """\
# Results

Written by `python -m bench.results_page` from the lines in `bench/results/engine/`; not by hand. Every
figure of these rows: [results.md](../../bench/results/results.md). Every study:
[report.md](../../bench/results/report.md).
"""
READING = """\
D: the training points alone. Z1: and label points whose one target is the label itself. G: and the paper's.
default: what `gandalf train` does with a named system ([why](who_gains.md)). A system's own baseline is D,
and that of `renee` Z1. Percentages on the test split, its filter applied, at equal steps: an epoch is N + L
points whatever the targets. Label text, new text: test points whose text is, and is not, some label's. ± is
the noise of seeds alone; test points drawn anew move a difference more
([how much](../guide/reproduce.md#claims)).
"""


def short_page(
    lines: list[Line], others: Mapping[str, dict[str, list[Line]]], folder: Path, known: Evidence
) -> str:
    """Return the page from lines of all systems, rows of one system by set, and who is at a plateau."""
    lengths = Results.read(folder)
    places = [place for place in lengths.study("convergence") if _is_whole(place)]
    return "\n".join(
        [
            TITLE,
            f"{answer(lines, known)}\n",
            READING + (f"{MEANING.format(docs='../reference/')}\n" if any(map(is_former, lines)) else ""),
            GAINS,
            f"{gains_table(lines)}\n",
            f"## `{FIRST}` on four sets\n\nMean of three seeds ± standard deviation.\n",
            f"{first_table(others)}\n",
            trained_section(lines, known),
            "## At equal steps, and each at its own best length\n",
            f"{table_text(length_table(lengths, places))}\n",
        ]
    )


def _is_whole(place: ResultPlace) -> bool:
    return "?" not in place.data


def answer(lines: list[Line], known: Evidence) -> str:
    """Return three sentences: what rises, how sure that is, and what falls."""
    ours = {name: gains(lines, "default", name) for name in ("P@1", "PSP@5", "C@1")}
    paper = gains(lines, "G", "P@1")
    p1, every = ours["P@1"], len(ours["P@1"])
    seeded = [(gain, half) for gain, half in p1.values() if half == half]
    sure = sum(gain > half for gain, half in seeded)
    settled = sum(known.get(place, "").startswith("at a plateau") for place in p1)
    rises = {name: sum(gain > 0 for gain, _ in found.values()) for name, found in ours.items()}
    falls = [gain for gain, _ in ours["C@1"].values() if gain < 0]
    losers = sorted({system for (_, system), (gain, _) in ours["C@1"].items() if gain < 0})
    return (
        f"**The default's label points raise the mean P@1 of {rises['P@1']} of {every} pairs of system and "
        f"set over the system's own baseline ({_range(p1)} points), and PSP@5 of {rises['PSP@5']} "
        f"({_range(ours['PSP@5'])}); the paper's raise P@1 of {sum(g > 0 for g, _ in paper.values())}.** "
        f"The rise of P@1 is more than the noise of seeds in {sure} of the {len(seeded)} pairs that have "
        f"several; the other {every - len(seeded)} have one seed, and {every - settled} of the {every} are "
        "not shown to be at a plateau, so nothing is claimed of those. Coverage falls with the default for "
        f"{' and '.join(f'`{each}`' for each in losers) or 'none'}: C@1 by "
        f"{min(map(abs, falls), default=0):.1f} to {max(map(abs, falls), default=0):.1f} in "
        f"{len(falls)} pairs."
    )


def _range(found: Mapping[tuple[str, str], tuple[float, float]]) -> str:
    values = [gain for gain, _ in found.values()]
    return f"{min(values):+.1f} to {max(values):+.1f}"


def reached_table(lines: list[Line]) -> str:
    """Return P@1 and PSP@5 of each system on each set, its own baseline and the default's label points."""
    sets = list({line["name"]: None for line in sorted(lines, key=lambda line: line["figures"]["points"])})
    by_set = {data: grouped([line for line in lines if line["name"] == data]) for data in sets}
    best = {
        (data, name): max(Sample.of(of, COLUMNS[name]).mean for of in by_set[data].values())
        for data in sets
        for name in REACHED
    }

    def cell(data: str, row: tuple[str, str]) -> str:
        if not (of := by_set[data].get(row)):
            return ""
        means = {name: Sample.of(of, COLUMNS[name]).mean for name in REACHED}
        told = (
            f"**{mean:.1f}**" if mean == best[data, name] else f"{mean:.1f}" for name, mean in means.items()
        )
        return marked(", ".join(told), of)

    rows = []
    for system in (each for each in NETWORKS if any(line["run"]["system"] == each for line in lines)):
        own = OWN_BASELINE.get(system, "D")
        name = f"`{system}`" + (f" ({own})" if own != "D" else "")
        rows.append([name, *(cell(data, (system, each)) for data in sets for each in (own, "default"))])
    return table(["", *(f"{data}{more}" for data in sets for more in ("", ", + default"))], rows)


def first_table(groups: Mapping[str, dict[str, list[Line]]]) -> str:
    """Return the rows of one system on each data set."""
    rows = []
    for data, by_row in groups.items():
        for row in (each for each in SHOWN if each in by_row):
            samples = [Sample.of(by_row[row], column) for column in FIGURES.values()]
            rows.append([f"{data}, {row}", *(number(each.mean, each.deviation) for each in samples)])
    return table(["", *FIGURES], rows)
