"""Label points: what they are, which of them are taken, and that a seed decides everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array
from strategies import targets

from gandalf.augment.label_points import Keep, augment, label_points
from gandalf.augment.sampling import sample_labels
from gandalf.data.dataset import Dataset, binary_pairs
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, label_graph


def small(matrix):
    points, labels = matrix.shape
    return Dataset(
        matrix,
        [f"text {s}" for s in range(points)],
        [f"label {j}" for j in range(labels)],
        exclude=binary_pairs([0], [labels - 1], matrix.shape),
        ids=[f"p{s}" for s in range(points)],
    )


@given(targets())
def test_g_is_d_followed_by_the_labels_in_order(matrix):
    points = small(matrix)
    graph = label_graph(points, GraphOptions("ratio")).matrix
    whole = augment(points, graph)
    assert whole[: len(points)] == points
    assert list(whole.texts[len(points) :]) == list(points.label_texts)
    np.testing.assert_array_equal(whole.targets.toarray()[len(points) :], graph.toarray())
    # The filter's rows follow their points; label points have none.
    assert whole.exclude.nnz == 1 and whole.exclude[[0]].nnz == 1
    assert augment(points, graph, Keep("labels")) == whole[len(points) :]


@given(targets(), st.integers(0, 3))
def test_u_g_n_is_n_distinct_rows_of_g(matrix, seed):
    points = small(matrix)
    graph = label_graph(points, GraphOptions("self")).matrix
    drawn = augment(points, graph, Keep("uniform", seed=seed))
    assert len(drawn) == len(points)
    assert len(set(drawn.ids)) == len(points)
    assert set(drawn.ids) <= set(augment(points, graph).ids)
    assert drawn == augment(points, graph, Keep("uniform", seed=seed))


def test_every_row_of_g_can_be_drawn():
    points = small(csr_array(np.ones((4, 4), dtype=np.float32)))
    graph = csr_array(eye_array(4, dtype=np.float32))
    seen = set()
    for seed in range(60):
        seen |= set(augment(points, graph, Keep("uniform", seed=seed)).ids)
    assert len(seen) == 8


@pytest.mark.parametrize("order", ["random", "tail"])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_the_labels(order, share):
    frequencies = np.array([50, 20, 10, 5, 3, 2, 1, 1, 1, 1, 0, 0])
    labels = sample_labels(frequencies, share, order, np.random.default_rng(0))
    assert len(labels) == round(share * 12)
    assert (np.diff(labels) > 0).all()
    again = sample_labels(frequencies, share, order, np.random.default_rng(0))
    np.testing.assert_array_equal(labels, again)


def test_tail_first_takes_the_rarest_bin_before_the_next():
    # 5 bins of 20 positives each: {0} {1} {2,3} {4..7} {8..27}, and two labels without points in the last.
    frequencies = np.array([20, 20, 10, 10, 5, 5, 5, 5] + [1] * 20 + [0, 0])
    rng = np.random.default_rng(0)
    assert set(sample_labels(frequencies, 22 / 30, "tail", rng)) == set(range(8, 30))
    assert set(sample_labels(frequencies, 26 / 30, "tail", rng)) == set(range(4, 30))
    half = [set(sample_labels(frequencies, 0.3, "tail", np.random.default_rng(s))) for s in range(3)]
    assert all(h <= set(range(8, 30)) for h in half)
    assert half[0] != half[1]  # at random within the bin


def test_features_ride_along():
    features = csr_array(np.array([[1, 0], [0, 1]], dtype=np.float32))
    of_labels = csr_array(np.array([[0, 2], [3, 0], [4, 4]], dtype=np.float32))
    points = Dataset(
        csr_array(np.ones((2, 3), dtype=np.float32)), features=features, label_features=of_labels
    )
    whole = augment(points, csr_array(eye_array(3, dtype=np.float32)))
    np.testing.assert_array_equal(whole.features.toarray(), [[1, 0], [0, 1], [0, 2], [3, 0], [4, 4]])


def test_what_cannot_be_augmented_says_why():
    matrix = csr_array(np.ones((2, 3), dtype=np.float32))
    graph = csr_array(eye_array(3, dtype=np.float32))
    with pytest.raises(DataError, match="need label texts"):
        label_points(Dataset(matrix, ["a", "b"]), graph)
    with pytest.raises(DataError, match="label features"):
        label_points(Dataset(matrix, features=matrix), graph)
    with pytest.raises(DataError, match="graph is 2 x 2, but there are 3 labels"):
        label_points(small(matrix), csr_array(eye_array(2, dtype=np.float32)))
    with pytest.raises(DataError, match="share is 2"):
        augment(small(matrix), graph, Keep(share=2))
    with pytest.raises(DataError, match="no order 'head'"):
        augment(small(matrix), graph, Keep(order="head"))
    with pytest.raises(DataError, match="choose from both, labels, half, uniform"):
        Keep("some")


def test_features_of_points_alone_give_way_to_texts():
    matrix = csr_array(np.ones((2, 3), dtype=np.float32))
    points = Dataset(matrix, ["a", "b"], ["x", "y", "z"], features=matrix)
    whole = augment(points, csr_array(eye_array(3, dtype=np.float32)))
    assert whole.features is None and len(whole) == 5
