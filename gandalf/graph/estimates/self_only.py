"""Self targets: the only target of a label point is its own label (Z1)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, eye_array

from gandalf.graph.kind import LabelGraph, TargetKind


def identity(labels: int) -> csr_array:
    """Return the label graph with the diagonal alone."""
    return csr_array(eye_array(labels, dtype=np.float32, format="csr"))


KIND = TargetKind(
    "each label alone (Z1)",
    lambda points, options: LabelGraph(identity(points.num_labels), "self"),
    score_pairs=lambda pairs, shrunk, seed: np.zeros(len(pairs)),
)
