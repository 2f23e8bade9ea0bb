"""Small random data sets for hypothesis: every odd shape of real ones, at a size nested loops can check."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array


@st.composite
def targets(draw, max_points=8, max_labels=6, graded=False):
    """N x L targets, possibly with empty rows, labels without points, or no positives at all."""
    points = draw(st.integers(1, max_points))
    labels = draw(st.integers(1, max_labels))
    values = st.sampled_from([0.0, 0.0, 1.0, 0.25, 0.5] if graded else [0.0, 0.0, 1.0])
    row = st.lists(values, min_size=labels, max_size=labels)
    rows = draw(st.lists(row, min_size=points, max_size=points))
    return csr_array(np.asarray(rows, dtype=np.float32))
