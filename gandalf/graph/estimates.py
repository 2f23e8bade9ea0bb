"""Estimates of P(i | j) as functions of three counts: i and j together, j (the input), and i.

Each satisfies the `Estimate` protocol of `cooccurrence`; what has to be fitted is fitted in `shrinkage` and
`calibration`, which return these same types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from gandalf.errors import DataError
from gandalf.graph.joint_sums import Floats


@dataclass(frozen=True)
class Ratio:
    """The paper's plug-in estimate: G_ij / G_jj, normalised by the label whose text is the input."""

    unit_diagonal: ClassVar[bool] = True
    below_ratio: ClassVar[bool] = True

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Share of the input label's points that also carry the other label."""
        return joint / given

    def target(self, score: Floats) -> Floats:
        """The score itself."""
        return score


@dataclass(frozen=True)
class Shrunk:
    """G_ij / (G_jj + strength): a label seen once no longer gives certainty to everything seen with it."""

    strength: float = 1.0
    fitted_on: int = 0  # pairs that the strength was fitted to; 0 where it was given, or nothing could be
    unit_diagonal: ClassVar[bool] = True
    below_ratio: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.strength < np.inf:
            what = f"the strength of shrinkage is {self.strength}"
            raise DataError(f"{what}, but it must be at least 0 and finite")

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """The ratio, as if the input label had been seen `strength` more times, alone."""
        return joint / (given + self.strength)

    def target(self, score: Floats) -> Floats:
        """The score itself."""
        return score


@dataclass(frozen=True)
class Glas:
    """GLaS targets: sigmoid of S, the mean of P(i | j) and P(j | i); the threshold acts on S.

    sigmoid(0) is 0.5, so it must never reach pairs that do not co-occur: hence threshold first. Values lie
    in (0.5, 0.731]; the diagonal, S = 1, keeps its 0.731.
    """

    unit_diagonal: ClassVar[bool] = False
    below_ratio: ClassVar[bool] = False

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """S, symmetric in the two labels."""
        return 0.5 * (joint / given + joint / other)

    def target(self, score: Floats) -> Floats:
        """Sigmoid of S."""
        return np.asarray(expit(score), dtype=np.float64)
