"""Read the convergence study: is a row at a plateau, and how long is it best trained?"""

from __future__ import annotations

from dataclasses import dataclass

from gandalf.lab.results import Contrast, ResultPlace, Results, RunLines, figure, mean
from gandalf.lab.store import Line

TOLERANCE = 1.0  # points of P@1 by which twice the steps may move a row that is at a plateau, up or down
SHOWN = ("D", "G")  # the rows that decide


@dataclass(frozen=True)
class Plateau:
    """The P@1 on held-out training points that twice the steps add, by row."""

    gains: dict[str, float]

    @property
    def reached(self) -> bool:
        """Return True if twice the steps move neither row by a point, up or down."""
        return all(row in self.gains and abs(self.gains[row]) < TOLERANCE for row in SHOWN)

    def __str__(self) -> str:
        if not self.gains:
            return "reduced: no evidence of a plateau (gandalf reproduce convergence)"
        told = ", ".join(f"{row} {gain:+.2f}" for row, gain in self.gains.items())
        return (
            f"{'at a plateau' if self.reached else 'reduced'}: twice the steps change held-out P@1 by {told}"
        )


def plateau(results: Results, place: ResultPlace) -> Plateau:
    """Return what twice the steps add at a place."""
    rows, p1 = results.study("convergence").get(place, {}), figure("P@1")
    names = dict.fromkeys(row.partition(" x ")[0] for row in rows)
    both = [name for name in names if {f"{name} x 1", f"{name} x 2"} <= rows.keys()]
    return Plateau({name: mean(rows[f"{name} x 2"], p1) - mean(rows[f"{name} x 1"], p1) for name in both})


NAME = "P@1"  # the figure that decides
EQUAL = 1.0  # times the recipe's length: that of every other study


@dataclass(frozen=True, eq=False)
class Lengths:
    """The rows of a convergence study at one place: lines by row and by times the recipe's length."""

    results: Results
    rows: dict[str, dict[float, list[Line]]]

    @staticmethod
    def of(results: Results, place: ResultPlace) -> Lengths:
        """Return what the study has at a place."""
        return Lengths(results, _by_length(results.study("convergence").get(place, {})))

    def held_out(self, row: str, times: float) -> float:
        """Return a row's figure on held-out training points at a length."""
        return mean(self.rows[row][times], figure(NAME))

    def best(self, row: str, other: str) -> float | None:
        """Return the best length of a row among those that both rows were run at, None without one."""
        shared = sorted(self.rows.get(row, {}).keys() & self.rows.get(other, {}).keys())
        return max(shared, key=lambda times: self.held_out(row, times), default=None)

    def equal(self, row: str, other: str) -> Contrast | None:
        """Compare both at the recipe's length."""
        return self._contrast(row, EQUAL, other, EQUAL)

    def own(self, row: str, other: str) -> Contrast | None:
        """Compare each at its own best length."""
        return self._contrast(row, self.best(row, other), other, self.best(other, row))

    def _contrast(self, row: str, times: float | None, other: str, others: float | None) -> Contrast | None:
        one, two = (self.rows.get(name, {}).get(at or 0) for name, at in ((row, times), (other, others)))
        return None if one is None or two is None else self.results.contrast(one, two, NAME)


def _by_length(rows: RunLines) -> dict[str, dict[float, list[Line]]]:
    found: dict[str, dict[float, list[Line]]] = {}
    for name, lines in rows.items():
        row, _, times = name.partition(" x ")
        if times:
            found.setdefault(row, {})[float(times)] = lines
    return found
