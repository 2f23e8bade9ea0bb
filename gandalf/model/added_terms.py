"""Score labels that were added to label trees, by the terms of their texts and examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack
from scipy.special import expit

from gandalf.data.formats.texts import clean
from gandalf.data.new_labels import NewLabel
from gandalf.model.calibration import LEAST_SLOPE, Calibration, Floats, minimise

if TYPE_CHECKING:
    from gandalf.model.trees import Trees

NEIGHBOUR = 0.5  # weight of a neighbour's text; the label's own text and each example have weight 1
QUERIES = 512  # label texts on which slope and offset are fitted
SEED = 0  # for drawing the queries from more label texts


def label_terms(trees: Trees, labels: Sequence[NewLabel], neighbours: Sequence[Sequence[int]]) -> csr_array:
    """Return the mean TF-IDF row of each label's text, examples and neighbours, at length 1."""
    # shape: (C, D + 1)
    texts, owners, weights = list[str](), list[int](), list[float]()
    for place, label in enumerate(labels):
        texts_of_label = [(label.text, 1.0), *((clean(text), 1.0) for text in label.examples)]
        texts_of_neighbours = [(trees.label_texts[number], NEIGHBOUR) for number in neighbours[place]]
        for text, weight in texts_of_label + texts_of_neighbours:
            texts.append(text)
            owners.append(place)
            weights.append(weight)
    features = trees.wide.words.features(texts)
    summed = csr_array((weights, (owners, np.arange(len(texts)))), shape=(len(labels), len(texts))) @ features
    lengths = np.sqrt(np.asarray(summed.multiply(summed).sum(axis=1))).ravel()
    rows = diags_array(1 / np.where(lengths > 0, lengths, 1.0)) @ summed
    # The last feature marks texts without a known word. It must not count for a new label.
    return csr_array(hstack([rows, csr_array((len(labels), 1))], format="csr").astype(np.float32))


def fit_added(trees: Trees) -> tuple[float, float]:
    """Fit slope and offset so that known labels, scored by their texts, get the trees' probabilities."""
    rng = np.random.default_rng(SEED)
    chosen = np.sort(rng.permutation(trees.wide.trained_labels)[:QUERIES])
    queries = [trees.label_texts[number] for number in chosen.tolist()]
    label_features = trees.wide.words.features(trees.label_texts[: trees.wide.trained_labels])
    cosines = (trees.wide.words.features(queries) @ label_features.T).toarray().astype(np.float64)
    teacher = np.zeros_like(cosines)
    calibration = trees.calibration or Calibration()
    ids, scores = trees.best(queries, min(100, trees.wide.trained_labels))
    for row in range(len(queries)):
        trained = (ids[row] >= 0) & (ids[row] < trees.wide.trained_labels)
        teacher[row, ids[row][trained]] = calibration(scores[row][trained])
    others = chosen[:, None] != np.arange(trees.wide.trained_labels)
    slope, offset = _fit_logistic(cosines[others], teacher[others])
    # The trees' calibration is applied to the logits of added labels too.
    return slope / calibration.slope, (offset - calibration.offset) / calibration.slope


def _fit_logistic(cosines: Floats, teacher: Floats) -> tuple[float, float]:
    """Return the slope and offset of a logistic curve that maps cosines to the teacher's probabilities."""
    start = (5.0, -5.0)
    if not len(cosines):
        return start

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = weights[0] * cosines + weights[1]
        missed = (expit(logits) - teacher) / len(cosines)
        value = (np.logaddexp(0.0, logits) - teacher * logits).mean()
        return float(value), np.array([missed @ cosines, missed.sum()])

    return minimise(loss, start, ((LEAST_SLOPE, 30.0), (-20.0, 5.0)))
