"""Self targets: the only target of a label point is its own label (Z1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, eye_array

from gandalf.graph.kind import CountablePoints, LabelGraph, TargetKind

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions


def identity(labels: int) -> csr_array:
    """Return the label graph with the diagonal alone."""
    return csr_array(eye_array(labels, dtype=np.float32, format="csr"))


def _build(points: CountablePoints, options: GraphOptions) -> LabelGraph:
    return LabelGraph(identity(points.num_labels), "self")


KIND = TargetKind(
    "each label alone (Z1)", _build, score_pairs=lambda pairs, shrunk, seed: np.zeros(len(pairs))
)
