"""Compare the default with label points of other kinds and with its own parts, figure by figure.

    python -m bench.default astec-D,astec-Z1,astec-G,linear-system,frozen man,web,cooking,packages --seeds 0
    python -m bench.default_parts

P@1, PSP@5 and C@5, on all texts, on texts that are a label's and on new texts: 9 comparisons with each rival
on each set. Intervals are a paired bootstrap: over test points for P@1 and PSP@5, over labels for C@5, which
is the share of the labels of the test points that are found at least once. Only seeds that both rows have
are compared. Reads the places that `bench.default` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.command import argument_parser
from bench.default import NOWHERE, OUT, Line, Places, read_places, read_results
from bench.default_rows import ROWS
from bench.default_sets import open_default_set
from bench.default_table import FEWEST, ORDER, stored_scores
from bench.machine import DATA_ROOT
from bench.tables import Compared, table, verdict_cell, verdict_counts
from gandalf import Splits
from gandalf.metrics.bootstrap import RESAMPLES, Difference, compare
from gandalf.metrics.evaluate import Scores
from gandalf.metrics.predictions import need_test_points

POINT_TARGETS = ("astec-D", "astec-Z1", "astec-G")
PARTS = ("linear-system", "frozen", "astec")
MEANS = ("P@1", "PSP@5")
TEXTS = {"every": "all texts", "label_text": "label texts", "new_text": "new texts"}
Mask = npt.NDArray[np.bool_]


def compared(row: str, rivals: tuple[str, ...], out: Path, root: Path) -> Iterator[Compared]:
    """Yield the comparisons of every set on which the row and a rival are measured with the same seeds."""
    results = read_results(out)
    for name in ORDER:
        seeds = {
            each: {key[2]: line for key, line in results.items() if key[:2] == (each, name)}
            for each in (row, *rivals)
        }
        for rival in rivals:
            both = sorted(set(seeds[row]) & set(seeds[rival]))
            if both:
                lines = [[seeds[each][seed] for seed in both] for each in (row, rival)]
                for figure, found in _differences(lines, open_default_set(name, root), out):
                    yield Compared(name, rival, figure, found.difference, found.low, found.high)


def _differences(lines: list[list[Line]], splits: Splits, out: Path) -> Iterator[tuple[str, Difference]]:
    """Yield each figure of each kind of text with the difference of the two rows."""
    scores = [stored_scores(each, splits, out) for each in lines]
    means = compare(*scores)
    for texts, points in _kinds(scores[0], len(need_test_points(splits))).items():
        for figure in MEANS:
            yield f"{figure} {TEXTS[texts]}", getattr(means, texts)[figure]
        shares = [
            np.mean([_found_labels(read_places(out, line), splits, points) for line in each], axis=0)
            for each in lines
        ]
        yield f"C@5 {TEXTS[texts]}", label_difference(*shares)


def _kinds(scores: Scores, points: int) -> dict[str, Mask]:
    """Return the test points of each kind of text; one kind alone is all texts."""
    kinds = {"every": np.ones(points, dtype=bool)}
    if scores.known is not None:
        apart = {"label_text": scores.known, "new_text": ~scores.known}
        if min(mask.sum() for mask in apart.values()) >= FEWEST:
            kinds |= apart
    return kinds


def _found_labels(places: Places, splits: Splits, points: Mask) -> npt.NDArray[np.float64]:
    """Return 1 for each label of these points that is found at least once, 0 for their other labels."""
    truth = need_test_points(splits).targets
    rows = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    asked = np.unique(truth.indices[points[rows]])
    found = np.zeros(truth.shape[1])
    found[truth.indices[points[rows] & (places < NOWHERE)]] = 1.0
    return found[asked]


def label_difference(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64], seed: int = 0
) -> Difference:
    """Return first minus second in percent points, with the interval of a bootstrap over labels."""
    gaps = 100 * (first - second)  # shape: (labels,)
    rng = np.random.default_rng(seed)
    drawn = np.array([gaps[rng.integers(0, len(gaps), len(gaps))].mean() for _ in range(RESAMPLES)])
    low, high = np.percentile(drawn, [2.5, 97.5])
    p = min(1.0, 2 * min((drawn <= 0).mean(), (drawn >= 0).mean()))
    return Difference(float(gaps.mean()), float(low), float(high), float(p))


# ---- the tables


def count_table(found: list[Compared], rivals: tuple[str, ...]) -> str:
    """Return how often the row is ahead, level and behind on each set."""
    rows = []
    for name in dict.fromkeys(each.data for each in found):
        of_set = [each for each in found if each.data == name]
        cells = [verdict_cell(each for each in of_set if each.rival == rival) for rival in rivals]
        rows.append([f"`{name}`", *cells])
    return table(["ahead / level / behind", *(ROWS[rival].title for rival in rivals)], rows)


def loss_table(found: list[Compared]) -> str:
    """Return every figure in which the row is behind by more than chance."""
    rows = [
        [f"`{each.data}`", ROWS[each.rival].title, each.figure, each.shown]
        for each in found
        if each.verdict == "behind"
    ]
    return table(["set", "behind", "figure", "difference"], rows)


def main() -> None:
    """Print both tables for the label points and for the parts."""
    parser = argument_parser(__doc__)
    parser.add_argument("--row", choices=ROWS, default="default")
    parser.add_argument("--results", type=Path, default=OUT)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    chosen = parser.parse_args()
    for rivals in (POINT_TARGETS, PARTS):
        found = list(compared(chosen.row, rivals, chosen.results, chosen.data_root))
        print(f"{verdict_counts(found)}\n\n{count_table(found, rivals)}\n\n{loss_table(found)}\n")


if __name__ == "__main__":
    main()
