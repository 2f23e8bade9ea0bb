"""GLaS targets: sigmoid of S, the mean of P(i | j) and P(j | i)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit

from gandalf.graph.cooccurrence import Estimate
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import TargetKind, build_from_sums


@dataclass(frozen=True)
class Glas(Estimate):
    """Sigmoid of S; the threshold is compared with S.

    sigmoid(0) is 0.5, and pairs that do not co-occur must not get this value, so the threshold is applied
    first. Values lie in (0.5, 0.731]; the diagonal, S = 1, keeps its 0.731.
    """

    unit_diagonal: ClassVar[bool] = False

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Return S, symmetric in the two labels."""
        return 0.5 * (joint / given + joint / other)

    def target(self, score: Floats) -> Floats:
        """Return the sigmoid of S."""
        return np.asarray(expit(score), dtype=np.float64)


KIND = TargetKind(
    "GLaS's sigmoid of the mean of both ratios",
    lambda points, options: build_from_sums("glas", Glas(), points, options),
)
