"""Head to tail: bins of labels that hold equal numbers of training positives."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BINS = 5


def label_bins(frequencies: npt.NDArray[np.integer[Any]], bins: int = BINS) -> npt.NDArray[np.int64]:
    """Bin of each label, 0 = head: labels by falling training frequency, cut at equal shares of positives.

    A label goes where its first positive falls, ties in frequency by label index; labels without training
    points go to the last bin.
    """  # shape: (L,)
    order = np.argsort(-frequencies, kind="stable")
    ends = np.cumsum(frequencies[order])
    before, total = ends - frequencies[order], int(frequencies.sum())
    of_label = np.empty(len(frequencies), dtype=np.int64)
    of_label[order] = before * bins // max(total, 1)
    return np.where(frequencies == 0, bins - 1, of_label)
