"""How the default is compared with its parts: coverage by labels, and what an interval says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from bench.default import places_of
from bench.default_parts import _found_labels, label_difference
from bench.tables import figures
from gandalf import Dataset, Splits
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.predictions import need_test_points as points_of

TRUTH = csr_array(np.array([[1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0]], dtype=np.float32))
TEXTS = ["zip a file", "disk usage", "label four"]
LABELS = [f"label {name}" for name in ("one", "two", "three", "five", "four", "six")]


@pytest.fixture
def splits():
    train = Dataset(csr_array(np.eye(6, dtype=np.float32)), ["one", "two", "three", "x", "y", "z"], LABELS)
    return Splits(train=train, test=Dataset(TRUTH, TEXTS, LABELS), name="six labels")


def test_found_labels_are_those_that_coverage_counts(splits):
    ids = np.array([[3, 2, 1, 4, 5], [5, 0, 2, 3, 4], [4, 1, 2, 3, 5]])
    predictions = (ids, -np.arange(15.0).reshape(3, 5))
    places = places_of(predictions, splits)
    every = np.ones(len(points_of(splits)), dtype=bool)
    # Labels 0, 1, 2, 4 and 5 are asked; 2, 5 and 4 are among the five of a text that has them.
    assert _found_labels(places, splits, every).tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    found = 100 * _found_labels(places, splits, every).mean()
    assert found == pytest.approx(figures(evaluate(predictions, splits))["C@5"])


def test_labels_of_other_points_are_not_asked(splits):
    places = places_of((np.array([[2, 3], [1, 0], [3, 2]]), np.array([[2.0, 1.0]] * 3)), splits)
    assert _found_labels(places, splits, np.array([True, False, False])).tolist() == [0.0, 1.0]


def test_a_difference_is_real_only_if_the_interval_excludes_0():
    ones, zeros = np.ones(50), np.zeros(50)
    assert label_difference(ones, zeros).difference == 100.0
    assert label_difference(ones, zeros).real and not label_difference(ones, ones).real
    half = np.arange(50) % 2
    level = label_difference(half.astype(float), 1.0 - half)
    assert level.low < 0 < level.high and level.difference == 0.0
