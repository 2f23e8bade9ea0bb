"""Labels added to a model of words: scored by the terms of their texts and examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, hstack
from scipy.special import expit

from gandalf.data.formats.texts import clean
from gandalf.data.new_labels import NewLabel
from gandalf.model.calibration import Calibration

if TYPE_CHECKING:
    from gandalf.model.trees import Trees

NEIGHBOUR = 0.5  # what a neighbour's text counts beside the label's own text and its examples
QUERIES = 512  # label texts on which slope and offset are fitted
SEED = 0  # which of them, where there are more
LEAST_SLOPE = 1e-3

Floats = npt.NDArray[np.float64]


def label_terms(trees: Trees, labels: Sequence[NewLabel], neighbours: Sequence[Sequence[int]]) -> csr_array:
    """Return a row of length 1 for each label: the mean of what is known of it."""  # shape: (C, D + 1)
    texts, places, weights = list[str](), list[int](), list[float]()
    for place, label in enumerate(labels):
        own = [(label.text, 1.0), *((clean(text), 1.0) for text in label.examples)]
        near = [(trees.label_texts[number], NEIGHBOUR) for number in neighbours[place]]
        for text, weight in own + near:
            texts.append(text)
            places.append(place)
            weights.append(weight)
    known = trees.words.features(texts)
    summed = csr_array((weights, (places, np.arange(len(texts)))), shape=(len(labels), len(texts))) @ known
    lengths = np.sqrt(np.asarray(summed.multiply(summed).sum(axis=1))).ravel()
    rows = diags_array(1 / np.where(lengths > 0, lengths, 1.0)) @ summed
    # The last feature says that a text has no known word: nothing speaks for a new label there.
    return csr_array(hstack([rows, csr_array((len(labels), 1))], format="csr").astype(np.float32))


def fit_added(trees: Trees) -> tuple[float, float]:
    """Fit slope and offset such that known labels, scored by their texts, get the trees' probabilities."""
    rng = np.random.default_rng(SEED)
    asked = np.sort(rng.permutation(trees.trained_labels)[:QUERIES])
    queries = [trees.label_texts[number] for number in asked.tolist()]
    of_labels = trees.words.features(trees.label_texts[: trees.trained_labels])
    cosines = (trees.words.features(queries) @ of_labels.T).toarray().astype(np.float64)
    teacher = np.zeros_like(cosines)
    calibration = trees.calibration or Calibration()
    ids, scores = trees.best(queries, min(100, trees.trained_labels))
    for row in range(len(queries)):
        kept = (ids[row] >= 0) & (ids[row] < trees.trained_labels)
        teacher[row, ids[row][kept]] = calibration(scores[row][kept])
    others = asked[:, None] != np.arange(trees.trained_labels)
    slope, offset = _likeliest(cosines[others], teacher[others])
    # The added logits pass through the same calibration as the trees' own.
    return slope / calibration.slope, (offset - calibration.offset) / calibration.slope


def _likeliest(cosines: Floats, teacher: Floats) -> tuple[float, float]:
    start = np.array([5.0, -5.0])
    if not len(cosines):
        return float(start[0]), float(start[1])

    from scipy.optimize import minimize  # not above: it takes a fifth of a second

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = weights[0] * cosines + weights[1]
        missed = (expit(logits) - teacher) / len(cosines)
        value = (np.logaddexp(0.0, logits) - teacher * logits).mean()
        return float(value), np.array([missed @ cosines, missed.sum()])

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(LEAST_SLOPE, 30.0), (-20.0, 5.0)])
    return float(found.x[0]), float(found.x[1])
