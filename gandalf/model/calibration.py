"""What a score means as a probability: a value that belongs to a model (`predict/` fits it)."""

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
    """Probability sigmoid(slope * score + offset); the slope is above 0, so the order of labels stays."""

    slope: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and math.isfinite(self.offset) and self.slope > 0):
            raise DataError(f"a calibration cannot have the slope {self.slope} and the offset {self.offset}")

    def __call__(self, scores: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
        """Probability of each score; 0 for -inf."""
        logits = self.slope * scores.astype(np.float64) + self.offset
        return np.asarray(expit(logits), dtype=np.float64)


def probabilities(scores: npt.NDArray[np.float32], calibration: Calibration) -> npt.NDArray[np.float32]:
    """Scores of N x k places, best first, as probabilities that keep the order: above 0, or 0 for -inf.

    Near 1 float32 is coarse, and different scores would become one number; whoever ranks by it, such as an
    evaluation of a file, would then take another label first. Such numbers are kept one step apart.
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
