from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

from gandalf.data.synthetic import synthetic
from gandalf.errors import DataError
from gandalf.graph.estimates import walk
from gandalf.graph.estimates.walk import Walk, walk_counts, walk_graph


def one_step(dense, verbose):
    """Probability to go from label j to label i, by loops over points and labels."""
    on = dense > 0
    on[:, on.sum(axis=0) > verbose] = False
    points, labels = on.shape
    step = np.zeros((labels, labels))
    for j in range(labels):
        for s in range(points):
            for i in range(labels):
                if on[s, j] and on[s, i]:
                    step[j, i] += 1 / on[:, j].sum() / on[s].sum()
    return step


def loop_expectation(dense, reset, verbose, visits):
    """Follow the law of the last visited label visit by visit."""
    step = one_step(dense, verbose)
    shares, law = np.zeros(step.shape), step
    for visit in range(visits):
        if visit > 0:
            law = reset * step + (1 - reset) * (law @ step)
        shares += law / visits
    alone = ~step.any(axis=1)
    shares[alone] = np.eye(len(step))[alone]
    return shares


def test_long_walk_converges_to_the_expectation():
    matrix = synthetic(60, 12, texts=False).splits.train.targets
    visits = 40_000
    drawn = walk_counts(matrix, Walk(visits), top_k=12, seed=3).toarray() / visits
    shares = loop_expectation(matrix.toarray(), 0.8, 500, visits)
    # Visits are weakly tied (one in five goes on from the last): twice the binomial variance is ample.
    error = np.sqrt(2 * shares * (1 - shares) / visits) + 1e-9
    walked = np.asarray(matrix.sum(axis=0)).ravel() > 0
    assert walked.sum() > 5
    assert (np.abs(drawn - shares)[walked] < 5 * error[walked]).all()
    assert np.abs(drawn - shares)[walked].max() > 0


def test_first_visit_starts_from_the_root_and_goes_one_step():
    chain = csr_array(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=float))
    for seed in range(20):
        once = walk_counts(chain, Walk(1, 0.0), seed=seed).toarray()
        assert once[0, 2] == once[0, 3] == 0
    far = walk_counts(chain, Walk(50, 0.0), seed=0).toarray()
    assert far[0, 3] > 0
    never_far = walk_counts(chain, Walk(50, 1.0), seed=0).toarray()
    assert never_far[0, 2] == never_far[0, 3] == 0


def test_verbose_labels_and_labels_without_points_stand_alone():
    matrix = np.zeros((6, 4))
    matrix[:, 0] = 1  # six points: too many
    matrix[:3, 1] = matrix[:2, 2] = 1  # label 3 has none
    for rows in (
        walk_counts(csr_array(matrix), Walk(most_points=5), seed=0).toarray(),
        walk_graph(csr_array(matrix), Walk(most_points=5)).toarray(),
    ):
        np.testing.assert_array_equal(rows[0], [1, 0, 0, 0])
        np.testing.assert_array_equal(rows[3], [0, 0, 0, 1])
        np.testing.assert_array_equal(rows[1:3, 0], 0)
        assert (rows[1:3, 1:3] > 0).all()


def test_top_k_counts_the_most_visited_and_always_the_root():
    matrix = synthetic(2000, 200, labels_per_point=6, texts=False).splits.train.targets
    everything = walk_counts(matrix, Walk(50), top_k=200, seed=1).toarray()
    few = walk_counts(matrix, Walk(50), top_k=3, seed=1).toarray()
    outside = 0
    for root in range(200):
        best = sorted(np.flatnonzero(everything[root]), key=lambda i: (-everything[root, i], i))[:3]
        outside += root not in best
        kept = {int(i) for i in best} | {root}
        assert set(np.flatnonzero(few[root])) == kept
        for label in kept:
            assert few[root, label] == everything[root, label]
    assert outside > 0


def test_same_seed_same_walk_and_blocks_of_walkers_all_walk(monkeypatch):
    matrix = synthetic(500, 80, texts=False).splits.train.targets
    first, again, other = (walk_counts(matrix, seed=seed).toarray() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    monkeypatch.setattr(walk, "WALKERS", 30)
    blocked = walk_counts(matrix, seed=1, top_k=80).toarray()
    walked = np.asarray(matrix.sum(axis=0)).ravel() > 0
    # A root that no visit led back to counts as visited once.
    assert set(blocked.sum(axis=1)[walked]) <= {400, 401}


@settings(max_examples=30)
@given(st.one_of(targets(), targets(graded=True)), st.sampled_from([0.0, 0.1, 0.5]))
def test_graph_is_the_row_over_its_diagonal(matrix, delta):
    dense = walk_counts(matrix, seed=4).toarray()
    expected = np.minimum(dense / np.diag(dense)[:, None], 1)
    expected[expected <= delta] = 0
    np.fill_diagonal(expected, 1)
    graph = walk_graph(matrix, seed=4, delta=delta)
    np.testing.assert_array_equal(graph.toarray(), expected.astype(np.float32))
    assert graph.dtype == np.float32
    assert graph.has_sorted_indices


@pytest.mark.parametrize("walk", [{"visits": 0}, {"reset": 1.5}, {"reset": float("nan")}])
def test_impossible_walks_are_refused(walk):
    with pytest.raises(DataError, match="visits"):
        Walk(**walk)
