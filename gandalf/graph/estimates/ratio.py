"""Ratio of counts, G_ij / G_jj: the paper's plug-in estimate of P(i | j)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gandalf.graph.cooccurrence import Estimate
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import TargetKind, build_from_sums, score_pairs


@dataclass(frozen=True)
class Ratio(Estimate):
    """G_ij / G_jj, normalised by the label whose text is the input."""

    below_ratio: ClassVar[bool] = True

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Return the share of the input label's points that also have the other label."""
        return joint / given


KIND = TargetKind(
    "the paper's counts ratio",
    lambda points, options: build_from_sums("ratio", Ratio(), points, options),
    score_pairs=lambda pairs, shrunk, seed: score_pairs(Ratio(), pairs),
)
