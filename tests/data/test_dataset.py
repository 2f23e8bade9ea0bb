"""The contract of a data set: what its targets are, and what does not fit together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.label_graph import label_graph
from gandalf.graph.postulate import diagnose


def test_targets_are_brought_into_one_form_and_what_was_given_stays():
    given = csr_array((np.array([0.5, 1.0, 0.0]), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    points = Dataset(given)
    assert points.targets.dtype == np.float32
    assert points.targets.indices.tolist() == [0, 2]
    assert points.targets.data.tolist() == [1.0, 0.5]
    assert given.indices.tolist() == [2, 0, 1]


def test_a_pair_that_stands_twice_is_refused():
    twice = csr_array((np.ones(2, dtype=np.float32), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    with pytest.raises(DataError, match="hold a pair of point and label twice"):
        Dataset(twice)


@pytest.mark.parametrize("value", [3.0, -0.5, np.nan])
def test_targets_that_are_no_probabilities_make_no_graph(value):
    points = Dataset(csr_array(np.array([[1.0, value]], dtype=np.float32)), ["a"], ["x", "y"])
    for use in (label_graph, diagnose):
        with pytest.raises(DataError, match=r"not in \(0, 1\]"):
            use(points)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"texts": ["a"]}, r"\btexts\b.*\b1\b.*\b2\b"),
        ({"label_ids": ["a"]}, r"\blabel_ids\b.*\b1\b.*\b3\b"),
        ({"features": csr_array((5, 1))}, r"\bfeatures\b.*\b5\b.*\b2\b"),
        ({"exclude": csr_array((2, 2), dtype=bool)}, r"\bexclude\b.*\(2, 2\).*\(2, 3\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts, sentence):
    with pytest.raises(DataError, match=sentence):
        Dataset(csr_array((2, 3), dtype=np.float32), **parts)


def test_points_of_other_labels_cannot_be_appended():
    one, other = (Dataset(csr_array((1, labels), dtype=np.float32)) for labels in (2, 3))
    with pytest.raises(DataError, match="cannot append points with 3 labels to points with 2"):
        one + other
