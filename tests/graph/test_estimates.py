"""Every estimate against nested loops over points, written from the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

import gandalf
from gandalf.data.dataset import Dataset
from gandalf.errors import DataError
from gandalf.graph.cooccurrence import conditional_graph
from gandalf.graph.estimates import KINDS
from gandalf.graph.estimates.glas import Glas
from gandalf.graph.estimates.ratio import Ratio
from gandalf.graph.estimates.shrunk import Shrunk, fit_shrunk, leave_one_out_loss
from gandalf.graph.kind import TargetKind, build_from_sums, score_pairs
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.settings import override

DELTAS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9])


def loop_counts(matrix):
    """Joint and single sums by three nested loops."""
    y = matrix.toarray().astype(float)
    points, labels = y.shape
    single = [sum(y[s, j] for s in range(points)) for j in range(labels)]
    joint = [[sum(y[s, i] * y[s, j] for s in range(points)) for i in range(labels)] for j in range(labels)]
    return joint, single


def loop_graph(matrix, score, target=lambda s: s, own=1.0, delta=0.1):
    """Row j = targets of label j's text: kept if the score is strictly greater than delta."""
    joint, single = loop_counts(matrix)
    labels = matrix.shape[1]
    out = np.zeros((labels, labels))
    for j in range(labels):
        out[j, j] = own
        for i in range(labels):
            if i != j and joint[j][i] > 0:
                value = score(joint[j][i], single[j], single[i])
                if value > delta:
                    out[j, i] = target(value)
    return out


@given(targets(graded=True), DELTAS)
def test_ratio_is_the_papers(matrix, delta):
    expected = loop_graph(matrix, lambda c, given, other: c / given, delta=delta)
    np.testing.assert_allclose(conditional_graph(matrix, Ratio(), delta=delta).toarray(), expected, rtol=1e-6)


@given(targets(graded=True), DELTAS, st.sampled_from([0.0, 0.5, 3.0]))
def test_shrunk_counts_the_input_label_as_seen_more_often(matrix, delta, strength):
    expected = loop_graph(matrix, lambda c, given, other: c / (given + strength), delta=delta)
    actual = conditional_graph(matrix, Shrunk(strength), delta=delta).toarray()
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@given(targets(), DELTAS)
def test_glas_thresholds_before_the_sigmoid_and_keeps_its_diagonal(matrix, delta):
    def sigmoid(s):
        return 1 / (1 + math.exp(-s))

    expected = loop_graph(
        matrix, lambda c, given, other: (c / given + c / other) / 2, sigmoid, own=sigmoid(1.0), delta=delta
    )
    np.testing.assert_allclose(conditional_graph(matrix, Glas(), delta=delta).toarray(), expected, rtol=1e-6)


def test_the_ratio_is_normalised_by_the_label_whose_text_is_the_input():
    # Label 1 (tail) always comes with label 0 (head); label 0 has three points of its own.
    matrix = csr_array(np.array([[1, 1], [1, 0], [1, 0], [1, 0]], dtype=np.float32))
    graph = conditional_graph(matrix, Ratio()).toarray()
    assert graph[1, 0] == 1.0
    assert graph[0, 1] == 0.25


def test_the_threshold_is_strict():
    matrix = csr_array(np.array([[1, 1]] + [[1, 0]] * 9, dtype=np.float32))
    assert conditional_graph(matrix, Ratio(), delta=0.1).toarray()[0, 1] == 0.0
    assert conditional_graph(matrix, Ratio(), delta=0.0999).toarray()[0, 1] == np.float32(0.1)


@given(targets(max_points=7, max_labels=4), st.sampled_from([0.1, 1.0, 5.0]))
def test_leave_one_out_loss_is_what_leaving_points_out_gives(matrix, strength):
    y = matrix.toarray()
    points, labels = y.shape
    expected = 0.0
    table = []
    for j in range(labels):
        for i in range(labels):
            joint = float((y[:, i] * y[:, j]).sum())
            if i != j and joint > 0 and y[:, j].sum() > 1:
                table.append((joint, float(y[:, j].sum()), 1.0))
            for held_out in range(points):
                if i == j or y[held_out, j] == 0:
                    continue
                rest = np.delete(y, held_out, axis=0)
                count = float((rest[:, i] * rest[:, j]).sum())
                if count > 0:
                    p = count / (float(rest[:, j].sum()) + strength)
                    expected -= math.log(p) if y[held_out, i] else math.log(1 - p)
    if table:
        joint, seen, weight = np.array(table).T
        assert leave_one_out_loss(strength, joint, seen, weight) == pytest.approx(expected, abs=1e-8)


def test_fitted_strength_is_the_best_on_held_out_cooccurrences():
    rng = np.random.default_rng(0)
    matrix = csr_array((rng.random((400, 30)) < 0.1).astype(np.float32))
    best = fit_shrunk(matrix).strength
    joint, single = loop_counts(matrix)
    table = np.array(
        [(joint[j][i], single[j], 1.0) for j in range(30) for i in range(30) if i != j and joint[j][i] > 0]
    ).T
    losses = [leave_one_out_loss(a, *table) for a in (best / 1.3, best, best * 1.3)]
    assert losses[1] == min(losses)


def test_strength_without_any_label_seen_twice_falls_to_the_default():
    assert fit_shrunk(csr_array(np.eye(3, dtype=np.float32))).strength == Shrunk().strength


@pytest.mark.parametrize("name", ["ratio", "shrunk", "calibrated", "glas", "walk", "self"])
def test_every_estimate_gives_a_graph_a_trainer_can_use(name):
    """The contract of an estimate: L x L, values in (0, 1], itself in every row, points or not."""
    rng = np.random.default_rng(1)
    y = (rng.random((60, 12)) < 0.2).astype(np.float32)
    y[:, 5] = 0  # a label without points
    points = Dataset(csr_array(y), [f"point {s}" for s in range(60)], [f"label {j}" for j in range(12)])
    graph = label_graph(points, GraphOptions(name, seed=3)).matrix
    assert graph.shape == (12, 12)
    assert graph.dtype == np.float32
    assert (graph.data > 0).all() and (graph.data <= 1).all()
    assert (graph.diagonal() > 0).all()
    assert graph[[5]].nnz == 1
    if name != "glas":
        assert (graph.diagonal() == 1).all()
    again = label_graph(points, GraphOptions(name, seed=3)).matrix
    assert (graph != again).nnz == 0


def test_scale_leaves_the_diagonal_alone():
    matrix = csr_array(np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0]], dtype=np.float32))
    whole = label_graph(Dataset(matrix), GraphOptions("ratio")).matrix.toarray()
    scaled = label_graph(Dataset(matrix), GraphOptions("ratio", scale=0.3)).matrix.toarray()
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(scaled[off], whole[off] * 0.3, rtol=1e-6)
    assert (scaled.diagonal() == 1).all()
    assert label_graph(Dataset(matrix), GraphOptions("ratio", scale=0.0)).matrix.nnz == 3


@given(targets(max_labels=5), st.data())
def test_pooling_gives_labels_of_one_text_the_mean_of_their_rows(matrix, data):
    labels = matrix.shape[1]
    texts = [data.draw(st.sampled_from(["a", "A", "b", ""])) for _ in range(labels)]
    points = Dataset(matrix, [""] * matrix.shape[0], texts)
    own = label_graph(points, GraphOptions("ratio", delta=0.0)).matrix.toarray().astype(float)
    pooled = label_graph(points, GraphOptions("ratio", delta=0.0, shared_text="pool")).matrix.toarray()
    for j in range(labels):
        same = [i for i in range(labels) if i == j or (texts[j] and texts[i].lower() == texts[j].lower())]
        expected = np.mean([own[i] for i in same], axis=0)
        expected[same] = 1.0
        np.testing.assert_allclose(pooled[j], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"targets": "rato"}, "there is no estimate 'rato'; choose from ratio"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"top_k": 0}, "top-k is 0"),
        ({"scale": 1.5}, "scale is 1.5"),
        ({"shared_text": "merge"}, "choose from own, pool"),
    ],
)
def test_options_out_of_range_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(DataError, match=sentence):
        GraphOptions(**options)


def test_a_kind_of_targets_from_outside_the_package_trains_a_model(monkeypatch, tmp_path):
    """A new estimate is one class with its `TargetKind`, and one line in the table."""

    class Halved(Ratio):
        def score(self, joint, given, other):
            return joint / given / 2

    def build(points, options):
        return build_from_sums("halved", Halved(), points, options)

    toy = TargetKind("half the ratio", build, score_pairs=lambda pairs, *_: score_pairs(Halved(), pairs))
    with pytest.raises(DataError, match=r'must be one of none, ratio, .*not "halved"'):
        override(gandalf.recipe("astec"), ["targets.targets=halved"])
    monkeypatch.setitem(KINDS, "halved", toy)
    splits = gandalf.synthetic(300, 120, seed=1).splits
    points = splits.train
    halved = label_graph(points, GraphOptions("halved", delta=0.0)).matrix.toarray()
    ratio = label_graph(points, GraphOptions("ratio", delta=0.0)).matrix.toarray()
    off = ~np.eye(len(ratio), dtype=bool)
    assert np.allclose(halved[off], ratio[off] / 2) and (halved.diagonal() == 1).all()
    with pytest.raises(DataError, match=r"a teacher .* halved targets; .* teacher targets"):
        GraphOptions("halved", teacher="folder")

    gandalf.train(splits, "astec", targets="halved", steps=3, out=tmp_path / "model")
    assert 'targets = "halved"' in (tmp_path / "model" / "recipe.toml").read_text("utf-8")
