from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

from gandalf.data.synthetic import synthetic
from gandalf.errors import DataError
from gandalf.graph import cooccurrence, joint_sums
from gandalf.graph.cooccurrence import conditional_graph, counts_together, frequencies


@dataclass(frozen=True)
class Ratio:
    unit_diagonal = True
    below_ratio = True

    def score(self, joint, given, other):
        return joint / given

    def target(self, score):
        return score


@dataclass(frozen=True)
class Symmetric:
    """Mean of both directions, squashed: not below the ratio, keeps its own diagonal."""

    unit_diagonal = False
    below_ratio = False

    def score(self, joint, given, other):
        return (joint / given + joint / other) / 2

    def target(self, score):
        return 1 / (1 + np.exp(-score))


ESTIMATES = [Ratio(), Symmetric()]


def loop_counts(dense):
    points, labels = dense.shape
    joint = np.zeros((labels, labels))
    for j in range(labels):
        for i in range(labels):
            for s in range(points):
                joint[j, i] += dense[s, j] if i == j else dense[s, i] * dense[s, j]
    return joint


def loop_graph(dense, estimate, delta, top_k):
    joint = loop_counts(dense)
    labels = len(joint)
    graph = np.zeros((labels, labels), dtype=np.float32)
    for j in range(labels):
        scores = {}
        for i in range(labels):
            if i != j and joint[j, i] > 0:
                score = estimate.score(joint[j, i], joint[j, j], joint[i, i])
                if score > delta:
                    scores[i] = score
        best = sorted(scores, key=lambda i: (-scores[i], i))
        for i in best if top_k is None else best[: top_k - 1]:
            graph[j, i] = estimate.target(scores[i])
        own = joint[j, j] or 1.0
        graph[j, j] = 1.0 if estimate.unit_diagonal else estimate.target(estimate.score(own, own, own))
    return graph


def any_targets():
    return st.one_of(targets(), targets(graded=True))


@given(any_targets())
def test_counts_are_the_sums_over_points(matrix):
    expected = loop_counts(matrix.toarray().astype(float))
    np.testing.assert_array_equal(counts_together(matrix).toarray(), expected)
    np.testing.assert_array_equal(frequencies(matrix), np.diag(expected))


@given(any_targets(), st.data())
def test_counts_of_some_labels_are_those_rows(matrix, data):
    labels = data.draw(st.lists(st.integers(0, matrix.shape[1] - 1), max_size=4))
    np.testing.assert_array_equal(
        counts_together(matrix, labels).toarray(), counts_together(matrix).toarray()[labels]
    )


@pytest.mark.parametrize("estimate", ESTIMATES)
@given(
    matrix=any_targets(), delta=st.sampled_from([0.0, 0.1, 0.25, 0.5]), top_k=st.sampled_from([None, 1, 2, 3])
)
def test_graph_equals_nested_loops(estimate, matrix, delta, top_k):
    graph = conditional_graph(matrix, estimate, delta=delta, top_k=top_k)
    np.testing.assert_array_equal(
        graph.toarray(), loop_graph(matrix.toarray().astype(float), estimate, delta, top_k)
    )
    assert graph.dtype == np.float32
    assert graph.has_sorted_indices
    assert (graph.data > 0).all()


def test_one_in_ten_is_not_above_a_tenth():
    matrix = np.zeros((10, 2))
    matrix[:, 0] = 1
    matrix[0, 1] = 1
    graph = conditional_graph(csr_array(matrix), Ratio(), delta=0.1)
    np.testing.assert_array_equal(graph.toarray(), [[1, 0], [1, 1]])


def test_ties_go_to_the_smaller_label_and_the_label_itself_stays():
    matrix = csr_array(np.array([[1, 1, 1, 1], [0, 1, 1, 1]], dtype=float))
    graph = conditional_graph(matrix, Ratio(), top_k=2)
    np.testing.assert_array_equal(graph.toarray(), [[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]])


@pytest.mark.parametrize("options", [{"delta": -0.1}, {"delta": 1.0}, {"delta": float("nan")}, {"top_k": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(DataError, match=next(iter(options)).replace("_", "-")):
        conditional_graph(csr_array(np.eye(2)), Ratio(), **options)


def same(first, second):
    return all(np.array_equal(getattr(first, n), getattr(second, n)) for n in ("indptr", "indices", "data"))


@pytest.mark.parametrize("estimate", ESTIMATES)
@given(matrix=any_targets(), top_k=st.sampled_from([None, 2]))
def test_compiled_loop_equals_scipy(estimate, matrix, top_k):
    plain = conditional_graph(matrix, estimate, top_k=top_k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_sums, "LARGE", 0)
        patch.setattr(joint_sums, "_sums_by_scipy", None)  # must not be needed
        assert same(conditional_graph(matrix, estimate, top_k=top_k), plain)


def test_every_block_is_cut_and_none_is_lost():
    assert cooccurrence.cut_blocks(np.array([3, 0, 9, 1, 1, 1, 20, 0]), budget=5) == [
        (0, 2),
        (2, 5),
        (5, 6),
        (6, 8),
    ]


@pytest.mark.parametrize("large", [0, 10**12])
@pytest.mark.parametrize("graded", [False, True])
def test_threads_and_blocks_do_not_matter(monkeypatch, large, graded):
    monkeypatch.setattr(joint_sums, "LARGE", large)
    matrix = synthetic(2000, 300, labels_per_point=4, texts=False).splits.train.targets
    if graded:
        matrix.data = np.random.default_rng(0).uniform(0.01, 1, matrix.nnz).astype(np.float32)
    whole = conditional_graph(matrix, Ratio(), threads=1)
    blocks = cooccurrence.cut_blocks
    monkeypatch.setattr(cooccurrence, "cut_blocks", lambda work: blocks(work, budget=500))
    assert len(cooccurrence.cut_blocks(np.full(300, 100))) > 50
    for threads in (1, 3):
        assert same(conditional_graph(matrix, Ratio(), threads=threads), whole)
    expected = loop_free_ratio(matrix, 0.1)
    np.testing.assert_allclose(whole.toarray(), expected, rtol=1e-6)


def loop_free_ratio(matrix, delta):
    dense = matrix.toarray().astype(float)
    frequency = dense.sum(axis=0)
    ratio = dense.T @ dense / np.where(frequency > 0, frequency, 1)[:, None]
    ratio[ratio <= delta] = 0
    np.fill_diagonal(ratio, 1)
    return ratio


def test_untidy_targets_are_read_as_their_sums():
    untidy = csr_array(
        (np.array([1.0, 0.5, 0.5, 0.0]), np.array([2, 0, 0, 1]), np.array([0, 3, 4])), shape=(2, 3)
    )
    tidy = csr_array(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    assert same(conditional_graph(untidy, Ratio()), conditional_graph(tidy, Ratio()))
    assert untidy.nnz == 4  # the caller's matrix is left alone


def test_graph_has_narrow_indices():
    wide = csr_array(np.eye(3))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    graph = conditional_graph(wide, Ratio())
    assert graph.indices.dtype == graph.indptr.dtype == np.int32
