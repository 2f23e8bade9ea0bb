"""What a run gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset, Splits
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.model import Calibration, Part


@dataclass(frozen=True, eq=False)
class HeldAnswers:
    """What a model said of held-out points before it learnt from them, and what is true of them."""

    splits: Splits  # the rest as `train`, the held points as `test`
    ids: npt.NDArray[np.int64]  # best labels of each held point, the filter applied; shape: (H, k)
    scores: npt.NDArray[np.float32]  # before calibration; shape: (H, k)
    calibration: Calibration

    @property
    def held(self) -> Dataset:
        """The held points."""
        assert self.splits.test is not None
        return self.splits.test

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """The calibrated scores."""  # shape: (H, k)
        return self.calibration(self.scores)

    def evaluated(self) -> Scores:
        """Return all figures on the held points."""
        return evaluate((self.ids, self.scores), self.splits)


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run gives: the model and the course of its training."""

    model: Part
    history: list[dict[str, Any]]  # of the validations
    seconds: float
    steps: int
    details: dict[str, Any] = field(default_factory=dict)  # of the label graph
    points: int = 0  # training points that were trained on
    label_points: int = 0
    taken_over: dict[str, Any] | None = None  # of a first stage that another run had made
    held: HeldAnswers | None = None  # None: no points were held out
    memory: dict[str, Any] | None = None  # what was tried to make one; None: none was asked for

    @property
    def kept(self) -> dict[str, Any] | None:
        """The validation of the weights that were kept: the one marked so, else the last."""
        last = [
            each for each in self.history if "stage" not in each
        ]  # of earlier stages no weights were kept
        if not last:
            return None
        return next((each for each in last if each.get("kept")), last[-1])
