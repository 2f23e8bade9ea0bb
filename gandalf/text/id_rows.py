"""Turn concatenated lists of ids into the rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def id_rows(ids: npt.ArrayLike, lengths: npt.NDArray[np.integer[Any]], width: int) -> npt.NDArray[np.int32]:
    """Return rows of the given lengths, at most `width`, filled with consecutive ids and padded with 0."""
    table = np.zeros((len(lengths), width), dtype=np.int32)  # shape: (N, width)
    table[np.arange(width) < lengths[:, None]] = ids
    return table
