"""How well a model does on a test split."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Splits
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.metrics.predictions import first_after_filter, test_points
from gandalf.model import Part
from gandalf.predict.predictor import Predictor

TOP = 100  # labels predicted for each test point, after its filter


def test_scores(model: Part, splits: Splits) -> Scores | None:
    """How well the model does on the test split, if there is one; None otherwise."""
    if splits.test is None:
        return None
    ids, scores = test_predictions(model, splits)
    return evaluate((first_after_filter(ids, splits.test.exclude, TOP), scores), splits)


def test_predictions(model: Part, splits: Splits) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The best labels of the test points and their scores, with some that the filter will take."""
    test = test_points(splits)
    texts, _ = test.need_texts("testing")
    spare = 0 if test.exclude is None else int(np.diff(test.exclude.indptr).max(initial=0))
    # With as many labels to spare as the filter takes at most, `evaluate` applies it and tells the figures
    # without it too. Where it takes very many, lists would be too long, and it is applied first.
    first = test.exclude if spare > TOP else None
    k = min(TOP + (spare if first is None else 0), model.num_labels)
    return Predictor(model).predict(texts, k, first)


def test_figures(model: Part, splits: Splits) -> dict[str, Any] | None:
    """The same as plain numbers."""
    scores = test_scores(model, splits)
    return None if scores is None else scores.as_dict()
