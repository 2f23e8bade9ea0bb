"""What a score means as a probability: a value that belongs to a model (`predict/` fits it)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from gandalf.errors import DataError


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
