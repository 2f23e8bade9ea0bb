"""Is a study trained to a plateau? Held-out training points tell; a study without that is 'reduced'."""

from __future__ import annotations

from dataclasses import dataclass

from gandalf.lab.results import ResultPlace, Results, mean
from gandalf.lab.samples import figure

TOLERANCE = 1.0  # points of P@1 by which twice the steps may move a row that is at a plateau, up or down
SHOWN = ("D", "G")  # the rows that decide


@dataclass(frozen=True)
class Plateau:
    """What twice the steps add to P@1 on held-out training points, by row."""

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
    """The evidence for a system on a data set."""
    rows, p1 = results.study("convergence").get(place, {}), figure("P@1")
    names = dict.fromkeys(row.partition(" x ")[0] for row in rows)
    both = [name for name in names if {f"{name} x 1", f"{name} x 2"} <= rows.keys()]
    return Plateau({name: mean(rows[f"{name} x 2"], p1) - mean(rows[f"{name} x 1"], p1) for name in both})
