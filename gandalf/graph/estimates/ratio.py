"""Ratio of counts, G_ij / G_jj: the paper's plug-in estimate of P(i | j)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gandalf.graph.cooccurrence import Estimate
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import CountablePoints, LabelGraph, TargetKind, build_from_sums, score_pairs

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions


@dataclass(frozen=True)
class Ratio(Estimate):
    """G_ij / G_jj, normalised by the label whose text is the input."""

    below_ratio: ClassVar[bool] = True

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Return the share of the input label's points that also have the other label."""
        return joint / given


def _build(points: CountablePoints, options: GraphOptions) -> LabelGraph:
    return build_from_sums("ratio", Ratio(), points, options)


KIND = TargetKind(
    "the paper's counts ratio", _build, score_pairs=lambda pairs, shrunk, seed: score_pairs(Ratio(), pairs)
)
