"""Compare the default of every system with D, Z1 and the paper's G, figure by figure, from stored runs.

    python -m bench.named_defaults

P@1, PSP@5 and C@5, on all texts, on texts that are a label's and on new texts: 9 comparisons with each rival
on each set. A difference counts if it is larger than the noise of seeds: half the 95 % interval of the
difference of two means, with the spread that all rows of the set have in common in that figure. A system with
one seed is judged by the spread of the others. Reads the test runs of the main studies in
bench/results/engine/.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from bench.command import argument_parser
from bench.machine import RESULTS
from bench.tables import (
    FIGURES,
    Column,
    Compared,
    Line,
    figure,
    noise,
    pooled,
    samples_of,
    table,
    verdict_cell,
    verdict_counts,
)
from gandalf.lab.store import read_lines
from gandalf.lab.variants import Run, variant_name

RIVALS, OWN = ("D", "Z1", "G"), "default"
TEXTS = {"all": None, "label texts": "label_text", "new texts": "new_text"}
COLUMNS: dict[str, Column] = {
    f"{name} {texts}": figure(name, part) for name, (texts, part) in product(FIGURES, TEXTS.items())
}
STORED = ("main.jsonl", "systems.jsonl")
Row = tuple[str, str, str]  # set, system, variant


def read_rows(folder: Path) -> dict[Row, list[Line]]:
    """Return the lines of the default and its rivals on the test split, by row."""
    found: dict[Row, list[Line]] = {}
    for line in read_lines(*(folder / name for name in STORED)):
        run = Run.of(line["run"])
        variant = variant_name(run)
        if run.split == "test" and variant in (OWN, *RIVALS):
            found.setdefault((line["name"], run.system, variant), []).append(line)
    for row, lines in found.items():
        if len({line["run"]["seed"] for line in lines}) < len(lines):
            raise ValueError(f"a seed of {row} is there with several settings")
    return found


def compared(rows: dict[Row, list[Line]]) -> Iterator[Compared]:
    """Yield every comparison of a default with a rival."""
    for column, samples in samples_of(rows, COLUMNS).items():
        sets = {row[0] for row in rows}
        spreads = {name: pooled(each for row, each in samples.items() if row[0] == name) for name in sets}
        for (name, system, variant), own in samples.items():
            for rival in RIVALS if variant == OWN else ():
                other = samples.get((name, system, rival))
                if other is not None and other.values and own.values:
                    value, half = own.mean - other.mean, noise(own, other, spreads[name])
                    yield Compared(name, rival, column, value, value - half, value + half, system)


def count_table(found: list[Compared]) -> str:
    """Return how often the default of each system is ahead, level and behind on each set."""
    sets, systems = (sorted({getattr(each, name) for each in found}) for name in ("data", "system"))

    def cell(name: str, system: str) -> str:
        return verdict_cell(each for each in found if (each.data, each.system) == (name, system))

    rows = [[f"`{system}`", *(cell(name, system) for name in sets)] for system in systems]
    return table(["ahead / level / behind", *(f"`{name}`" for name in sets)], rows)


def loss_table(found: list[Compared]) -> str:
    """Return where each default is behind, the largest loss first."""
    behind: dict[tuple[str, str], list[Compared]] = {}
    for each in sorted(found, key=lambda each: (each.data, each.system, each.difference)):
        if each.verdict == "behind":
            behind.setdefault((each.data, each.system), []).append(each)
    rows = [
        [f"`{name}`", f"`{system}`", "; ".join(f"{a.rival} {a.figure} {a.difference:+.1f}" for a in of)]
        for (name, system), of in behind.items()
    ]
    return table(["set", "system", "behind"], rows)


def main() -> None:
    """Print both tables, and the sum of the verdicts."""
    parser = argument_parser(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS / "engine")
    found = list(compared(read_rows(parser.parse_args().results)))
    print(f"{verdict_counts(found)}\n\n{count_table(found)}\n\n{loss_table(found)}")


if __name__ == "__main__":
    main()
