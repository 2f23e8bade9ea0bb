"""Whether a system's default label points beat its own baseline, by a paired bootstrap over test points.

    python -m bench.engine systems --system renee --predictions --out bench/results/verdict
    python -m bench.verdict

Both rows are means over seeds. Needs the data sets, for their truth. Five labels of each point of
LF-DocsSeeAlsoTitles-79K are stored, not ten: all that these figures need, in half the space.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from bench.engine import SHARED, parts
from bench.machine import RESULTS
from bench.studies import OWN_BASELINE
from gandalf.experiments.results import PARTS, Contrast, Place, Results
from gandalf.experiments.sets import data_hash

FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")


def opened(folder: Path, root: Path) -> Results:
    """The results of a folder, and the data sets that they are of."""
    found = Results.read(folder)
    for place in found.places():
        _, whole, _ = parts(place.data, "test", 0, root)
        hashes = {line["data_hash"] for line in found.lines.values() if line["run"]["data"] == place.data}
        found._sets[place.data] = whole if hashes == {data_hash(whole)} else None
    return found


def contrasts(found: Results, place: Place) -> Iterator[tuple[str, str, Contrast]]:
    """The default minus the system's own baseline: texts, figure, difference."""
    rows = found.rows(place)
    for texts in PARTS:
        for name in FIGURES:
            one, other = rows["default"], rows[OWN_BASELINE.get(place.system, "D")]
            yield texts, name, found.contrast(one, other, name, texts)


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=RESULTS / "verdict")
    parser.add_argument("--data-root", type=Path, default=SHARED, help="folder that holds the data sets")
    chosen = parser.parse_args()
    found = opened(chosen.folder, chosen.data_root)
    for place in found.places():
        print(f"\n{place.title}: default minus {OWN_BASELINE.get(place.system, 'D')}\n")
        print("| texts | figure | difference | 95 % interval | by |\n| --- | --- | --- | --- | --- |")
        for texts, name, each in contrasts(found, place):
            low_to_high = f"{each.low:+.2f} to {each.high:+.2f}"
            print(f"| {texts} | {name} | {each.difference:+.2f} | {low_to_high} | {each.by or '-'} |")


if __name__ == "__main__":
    main()
