"""What a run gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset, Splits
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.model import Calibration, Part
from gandalf.predict.calibration import fit_calibration
from gandalf.runs.validation import PLACES


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


def answers_of(splits: Splits, ids: npt.NDArray[np.int64], scores: npt.NDArray[np.float32]) -> HeldAnswers:
    """Return answers for the test points of `splits`, calibrated by the truth."""
    assert splits.test is not None
    held = splits.test
    calibration = fit_calibration(ids[:, :PLACES], scores[:, :PLACES], held.targets, held.exclude)
    return HeldAnswers(splits, ids, scores, calibration)


def pooled(trials: Sequence[HeldAnswers]) -> HeldAnswers:
    """Return the answers of models that were trained alike, each on its own held points, as of one model."""
    one = trials[0]
    held = reduce(add, (each.held for each in trials))
    width = min(each.ids.shape[1] for each in trials)
    ids = np.concatenate([each.ids[:, :width] for each in trials])
    scores = np.concatenate([each.scores[:, :width] for each in trials])
    return answers_of(replace(one.splits, test=held), ids, scores)


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
