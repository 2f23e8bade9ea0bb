"""Rows at equal steps and each at its own best length, on held-out training points."""

from __future__ import annotations

from gandalf.lab.blocks import Cell, TableBlock, words
from gandalf.lab.lengths import Lengths
from gandalf.lab.results import Contrast, ResultPlace, Results
from gandalf.lab.variants import OWN_BASELINE

UNMEASURED = "not measured"
HEAD = ("", "row", "best length", "at equal steps", "each at its own best length")
CAPTION = (
    "P@1 on held-out training points, a row minus its system's baseline: at the recipe's length, and each at "
    "the best of the lengths that both were run at (row, baseline; times the recipe's). In brackets the 95 % "
    "interval. Lengths are chosen on the points that are shown, for both rows alike. On the test split other "
    f"lengths than the recipe's are {UNMEASURED}."
)
ROWS = ("G", "default")


def length_table(results: Results, places: list[ResultPlace]) -> TableBlock:
    """A line for each system and each of its rows; what was not run says so."""
    lines = [_line(Lengths.of(results, place), place, row) for place in places for row in ROWS]
    return TableBlock(HEAD, tuple(lines), CAPTION)


def _line(lengths: Lengths, place: ResultPlace, row: str) -> tuple[Cell, ...]:
    base = OWN_BASELINE.get(place.system, "D")
    here, there = lengths.best(row, base), lengths.best(base, row)
    best = UNMEASURED if here is None or there is None else f"{here:g}, {there:g}"
    title = words(f"{place.data}, {place.system}")
    contrasts = (lengths.equal(row, base), lengths.own(row, base))
    return (title, words(f"{row} − {base}"), words(best), *map(_difference, contrasts))


def _difference(found: Contrast | None) -> Cell:
    if found is None:
        return words(UNMEASURED)
    sure = f" ({found.low:+.1f} to {found.high:+.1f})" if found.by else ""
    return words(f"{found.difference:+.1f}{sure}")
