"""Compare the default of every system with D, Z1 and the paper's G, figure by figure, from stored runs.

    python -m bench.named_defaults

P@1, PSP@5 and C@5, on all texts, on texts that are a label's and on new texts: 9 comparisons with each rival
on each set. A difference counts if it is larger than the noise of seeds: half the 95 % interval of the
difference of two means, with the spread that all rows of the set have in common in that figure. A system with
one seed is judged by the spread of the others. Reads the test runs of the main studies in
bench/results/engine/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from bench.command import argument_parser
from bench.machine import RESULTS
from bench.tables import Column, Line, Sample, figure, noise, pooled, table
from gandalf.lab.store import read_lines
from gandalf.lab.variants import Run, variant_name

RIVALS, OWN = ("D", "Z1", "G"), "default"
FIGURES = ("P@1", "PSP@5", "C@5")
TEXTS = {"all": None, "label texts": "label_text", "new texts": "new_text"}
COLUMNS: dict[str, Column] = {
    f"{name} {texts}": figure(name, part) for name, (texts, part) in product(FIGURES, TEXTS.items())
}
STORED = ("main.jsonl", "systems.jsonl")
Row = tuple[str, str, str]  # set, system, variant


@dataclass(frozen=True)
class Gap:
    """The default minus a rival, in one figure, and how large it may be by chance."""

    rival: str
    column: str
    value: float
    noise: float

    @property
    def verdict(self) -> str:
        """Return `ahead`, `level` or `behind`."""
        if abs(self.value) <= self.noise:
            return "level"
        return "ahead" if self.value > 0 else "behind"


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


def gaps(rows: dict[Row, list[Line]]) -> Iterator[tuple[str, str, Gap]]:
    """Yield every comparison with its set and system."""
    for column, of in COLUMNS.items():
        samples = {row: Sample.of(lines, of) for row, lines in rows.items()}
        sets = {row[0] for row in rows}
        spreads = {name: pooled(each for row, each in samples.items() if row[0] == name) for name in sets}
        for (name, system, variant), own in samples.items():
            for rival in RIVALS if variant == OWN else ():
                other = samples.get((name, system, rival))
                if other is not None and other.values and own.values:
                    yield (
                        name,
                        system,
                        Gap(rival, column, own.mean - other.mean, noise(own, other, spreads[name])),
                    )


def count_table(rows: dict[Row, list[Line]]) -> str:
    """Return how often the default of each system is ahead, level and behind on each set."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for name, system, gap in gaps(rows):
        counts.setdefault((name, system), Counter())[gap.verdict] += 1
    sets, systems = (sorted({key[at] for key in counts}) for at in (0, 1))
    cells = [[f"`{system}`", *(_counted(counts.get((name, system))) for name in sets)] for system in systems]
    return table(["ahead / level / behind", *(f"`{name}`" for name in sets)], cells)


def loss_table(rows: dict[Row, list[Line]]) -> str:
    """Return where each default is behind, the largest loss first."""
    found: dict[tuple[str, str], list[Gap]] = {}
    for name, system, gap in gaps(rows):
        if gap.verdict == "behind":
            found.setdefault((name, system), []).append(gap)
    cells = []
    for (name, system), each in sorted(found.items()):
        words = "; ".join(f"{gap.rival} {gap.column} {gap.value:+.1f}" for gap in sorted(each, key=_value))
        cells.append([f"`{name}`", f"`{system}`", words])
    return table(["set", "system", "behind"], cells)


def _counted(counts: Counter[str] | None) -> str:
    if counts is None:
        return ""
    return " / ".join(str(counts[verdict]) for verdict in ("ahead", "level", "behind"))


def _value(gap: Gap) -> float:
    return gap.value


def main() -> int:
    """Print both tables, and the sum of the verdicts."""
    parser = argument_parser(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS / "engine")
    rows = read_rows(parser.parse_args().results)
    counts = Counter(gap.verdict for _, _, gap in gaps(rows))
    print(", ".join(f"{verdict} in {counts[verdict]}" for verdict in ("ahead", "level", "behind")))
    print(f"\n{count_table(rows)}\n\n{loss_table(rows)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
