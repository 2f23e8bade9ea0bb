"""Whether a system's default label points beat its own baseline, by points and seeds.

    python -m bench.engine systems --system renee --predictions
    python -m bench.verdict                         # every system whose predictions were kept

Both rows are means over seeds. Intervals are of 95 % and hold two things: a paired bootstrap, over test
points or, for coverage, over the labels of the test points; and, where there are several seeds, the spread
between them. Needs the data sets, for their truth. Five labels of each point of
LF-DocsSeeAlsoTitles-79K are stored, not ten: all that these figures need, in half the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.command import argument_parser
from bench.default_parts import label_difference
from bench.engine import ENGINE, source_of
from bench.machine import DATA_ROOT, RESULTS
from bench.studies import OWN_BASELINE
from gandalf.lab.results import PARTS, Contrast, ResultPlace, Results, Sample, figure, joined, noise, pooled
from gandalf.lab.sets import data_hash, open_set
from gandalf.lab.store import Line, read_predictions
from gandalf.metrics.predictions import need_test_points
from gandalf.metrics.topk import find_pairs

FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
COVERAGE = {"C@1": 1, "C@3": 3, "C@5": 5}


def opened(folder: Path, root: Path) -> Results:
    """Return the results of a folder with the data sets that they are of."""
    found = Results.read(folder)
    for place in judged(found):
        whole = open_set(place.data, source_of(place.data, root))
        lines = [line for line in found.lines.values() if line["run"]["data"] == place.data]
        hashes = {line["data_hash"] for line in lines if "data_hash" in line}  # older lines have none
        found._sets[place.data] = whole if hashes == {data_hash(whole)} else None
    return found


def judged(found: Results) -> list[ResultPlace]:
    """Return the places where the predictions of both rows were kept, for every seed."""
    places = []
    for place in found.places():
        rows = found.rows(place)
        pair = (rows.get("default", []), rows.get(OWN_BASELINE.get(place.system, "D"), []))
        kept = [read_predictions(found.folder, line) is not None for lines in pair for line in lines]
        if all(pair) and all(kept):
            places.append(place)
    return places


def contrasts(found: Results, place: ResultPlace) -> Iterator[tuple[str, str, Contrast]]:
    """Yield texts, figure and difference of the default minus the system's own baseline."""
    rows = found.rows(place)
    one, other = rows["default"], rows[OWN_BASELINE.get(place.system, "D")]
    for texts in PARTS:
        for name in FIGURES:
            yield texts, name, found.contrast(one, other, name, texts)
    for name in COVERAGE:
        yield "all", name, coverage_contrast(found, one, other, name)


def coverage_contrast(found: Results, one: list[Line], other: list[Line], name: str) -> Contrast:
    """Compare the shares of labels that are found at least once; what is drawn anew are labels."""
    samples = [Sample.of(lines, figure(name)) for lines in (one, other)]
    shares = [
        [labels for line in lines if (labels := found_labels(found, line, COVERAGE[name])) is not None]
        for lines in (one, other)
    ]
    over = None
    if [len(each) for each in shares] == [len(one), len(other)]:
        over = label_difference(*(np.mean(each, axis=0) for each in shares))
    half = noise(*samples, pooled(samples))
    about = (min(len(one), len(other)), one[0]["figures"]["points"])
    return joined(samples[0].mean - samples[1].mean, half, over, about)


def found_labels(found: Results, line: Line, k: int) -> npt.NDArray[np.float64] | None:
    """Return 1 for each label of the test points that a run found among its first k, else 0."""
    ids, splits = read_predictions(found.folder, line), found.splits(line["run"]["data"])
    if ids is None or splits is None:
        return None
    truth = need_test_points(splits).targets
    rows = np.repeat(np.arange(len(ids)), min(k, ids.shape[1]))
    labels = ids[:, :k].ravel()
    hits = labels[(labels >= 0) & (find_pairs(truth, rows, labels) >= 0)]
    every = np.zeros(truth.shape[1])
    every[hits] = 1.0
    return every[np.unique(truth.indices)]


def main() -> None:
    """Print a table for each data set."""
    parser = argument_parser(__doc__)
    parser.add_argument("folders", type=Path, nargs="*", default=[RESULTS / "verdict", ENGINE])
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT, help="folder that holds the data sets")
    chosen = parser.parse_args()
    for folder in chosen.folders:
        found = opened(folder, chosen.data_root)
        for place in judged(found):
            show(found, place)


def show(found: Results, place: ResultPlace) -> None:
    """Print the table of a place."""
    print(f"\n{place.title}: default minus {OWN_BASELINE.get(place.system, 'D')}\n")
    print("| texts | figure | difference | 95 % interval | over | seeds |\n|---|---|---|---|---|---|")
    for texts, name, each in contrasts(found, place):
        low_to_high = f"{each.low:+.2f} to {each.high:+.2f}"
        over = (each.by or "–").replace("points", "labels" if name in COVERAGE else "points")
        print(f"| {texts} | {name} | {each.difference:+.2f} | {low_to_high} | {over} | {each.seeds} |")


if __name__ == "__main__":
    main()
