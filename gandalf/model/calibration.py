"""Turn scores into probabilities. A model stores its calibration; `predict/calibration.py` fits it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from gandalf.errors import DataError

_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Calibration:
    """Map a score to sigmoid(slope * score + offset); the slope is positive, so the order of labels stays."""

    slope: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.offset) and self.slope > 0):
            raise DataError(f"a calibration cannot have the slope {self.slope} and the offset {self.offset}")

    def __call__(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
        """Return the probability of each score; 0 for -inf."""
        logits = self.slope * scores.astype(np.float64) + self.offset
        return np.asarray(expit(logits), dtype=np.float64)


def probabilities(scores: npt.NDArray[np.float32], calibration: Calibration) -> npt.NDArray[np.float32]:
    """Return the probabilities of N x k scores, best first, in the same order: positive, or 0 for -inf.

    Near 1 float32 is coarse, and different scores could get one probability. An evaluation of the file
    would then rank the labels differently. So probabilities of different scores stay one step apart.
    """
    found = np.maximum(calibration(scores), _TINY).astype(np.float32)  # shape: (N, k)
    apart = (found[:, 1:] < found[:, :-1]) | (scores[:, 1:] == scores[:, :-1])
    for place in range(1, found.shape[1] if not apart.all() else 0):
        before = found[:, place - 1]
        falls = scores[:, place] < scores[:, place - 1]
        most = np.where(falls, np.nextafter(before, np.float32(0)), before)
        found[:, place] = np.minimum(found[:, place], most)
    found[np.isneginf(scores)] = 0.0
    return found
