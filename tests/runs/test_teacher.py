"""A teacher's targets, said again by loops over pairs of labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array, random_array

import gandalf
from gandalf.augment.label_points import augment
from gandalf.errors import DataError
from gandalf.graph.estimates import teacher
from gandalf.graph.estimates.teacher import (
    LEVER,
    TeacherOptions,
    mix_targets,
    nearest_vectors,
    teacher_targets,
)


def made_up(labels, dim=3, seed=0):
    return np.random.default_rng(seed).normal(size=(labels, dim)).astype(np.float32)


def identity(labels):
    return csr_array(eye_array(labels, dtype=np.float32, format="csr"))


def ratio(labels, seed):
    graph = random_array((labels, labels), density=0.4, rng=np.random.default_rng(seed), dtype=np.float32)
    return csr_array(graph.maximum(identity(labels)))


def loop_cosines(vectors):
    wide = np.asarray(vectors, dtype=np.float64)
    labels = len(wide)
    found = np.full((labels, labels), -np.inf)
    for i in range(labels):
        for j in range(labels):
            if i != j:
                lengths = np.linalg.norm(wide[i]) * np.linalg.norm(wide[j])
                found[i, j] = wide[i] @ wide[j] / lengths if lengths else 0.0
    return found


def loop_targets(vectors, hard, options):
    cosines, hard = loop_cosines(vectors), hard.toarray().astype(np.float64)
    labels = len(hard)
    expected = np.eye(labels)
    for j in range(labels):
        near = sorted((i for i in range(labels) if i != j), key=lambda i: (-cosines[j, i], i))
        for i in range(labels):
            if i != j:
                soft = math.exp(options.temperature * (min(cosines[j, i], 1) - 1))
                soft *= i in near[: options.neighbours]
                value = options.soft * soft + (1 - options.soft) * hard[j, i]
                expected[j, i] = value if value > options.delta else 0
    return expected


OPTIONS = [
    LEVER,
    TeacherOptions(neighbours=2, temperature=1.0, soft=0.3, delta=0.2),
    TeacherOptions(neighbours=1, temperature=0.5, soft=1.0, delta=0.0),
    TeacherOptions(neighbours=0),
    TeacherOptions(soft=0.0, delta=0.0),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("graph", ["identity", "ratio"])
@given(st.integers(1, 14), st.integers(2, 4), st.integers(0, 999))
def test_targets_equal_loops(options, graph, labels, dim, seed):
    vectors = made_up(labels, dim, seed)
    hard = identity(labels) if graph == "identity" else ratio(labels, seed)
    found = teacher_targets(vectors, hard, options)
    expected = loop_targets(vectors, hard, options)
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-5)
    assert found.shape == (labels, labels) and found.dtype == np.float32
    assert found.has_canonical_format and (found.data > 0).all() and (found.data <= 1).all()
    assert (found.diagonal() == 1).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 4), (7, 2), (5, 100)])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_nearest_do_not_depend_on_the_blocks(monkeypatch, rows, columns, k):
    vectors = made_up(30, 5, seed=1)
    expected = np.argsort(-loop_cosines(vectors), axis=1, kind="stable")[:, :k]
    monkeypatch.setattr(teacher, "ROWS", rows)
    monkeypatch.setattr(teacher, "COLUMNS", columns)
    ids, cosines = nearest_vectors(vectors, k)
    assert ids.tolist() == expected.tolist()
    np.testing.assert_allclose(cosines, np.take_along_axis(loop_cosines(vectors), ids, 1), atol=1e-6)
    assert cosines.dtype == np.float32


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (100, 100)])
def test_of_equally_near_labels_the_smaller_are_taken(monkeypatch, rows, columns):
    monkeypatch.setattr(teacher, "ROWS", rows)
    monkeypatch.setattr(teacher, "COLUMNS", columns)
    vectors = np.eye(2, dtype=np.float32)[[0, 1, 0, 1, 0, 0, 1, 0]]  # products without rounding
    ids, cosines = nearest_vectors(vectors, 3)
    assert ids[0].tolist() == [2, 4, 5] and ids[5].tolist() == [0, 2, 4]
    assert ids[1].tolist() == [3, 6, 0] and ids[6].tolist() == [1, 3, 0]
    assert cosines[1].tolist() == [1, 1, 0]


def test_fewer_labels_than_neighbours_and_a_single_one():
    ids, cosines = nearest_vectors(made_up(3), 5)
    assert (ids[:, :2] >= 0).all() and (ids[:, 2:] == -1).all() and (cosines[:, 2:] == -np.inf).all()
    assert nearest_vectors(made_up(1), 4)[0].tolist() == [[-1] * 4]
    assert teacher_targets(made_up(1), identity(1)).toarray().tolist() == [[1]]
    assert teacher_targets(np.empty((0, 3)), csr_array((0, 0), dtype=np.float32)).shape == (0, 0)


def test_the_constants_are_levers_and_the_threshold_is_the_common_one():
    assert (LEVER.temperature, LEVER.soft) == (15, 0.5)
    assert LEVER.delta == gandalf.GraphOptions().delta


def test_labels_with_one_text_share_half_a_target_and_a_hard_one_adds_the_rest():
    vectors = np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)
    assert teacher_targets(vectors, identity(3)).toarray().tolist() == [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]
    both = csr_array(np.array([[1, 1, 0.3], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    np.testing.assert_allclose(
        teacher_targets(vectors, both).toarray(), [[1, 1, 0.15], [0.5, 1, 0], [0, 0, 1]], atol=1e-6
    )


def test_neighbours_may_be_found_elsewhere():
    """Whoever looks them up may find the label itself too; its own target stays 1."""
    ids, cosines = np.array([[1, 0], [0, 1]]), np.array([[0.9, 1], [0.9, 1]], dtype=np.float32)
    found, half = mix_targets((ids, cosines), identity(2)).toarray(), 0.5 * math.exp(-1.5)
    np.testing.assert_allclose(found, [[1, half], [half, 1]], rtol=1e-5)
    beyond = mix_targets((ids, cosines + np.float32(0.2)), identity(2)).toarray()
    assert beyond.tolist() == [[1, 0.5], [0.5, 1]]


def test_the_threshold_is_strict():
    hard = csr_array(np.array([[1, 0.5], [0.25, 1]], dtype=np.float32))
    options = TeacherOptions(neighbours=0, soft=0.5, delta=0.125)
    assert teacher_targets(np.eye(2), hard, options).toarray().tolist() == [[1, 0.25], [0, 1]]
    # 1/5 in float32 is a little more than 1/5, but no reason to keep a pair that is not above 1/10.
    fifth = csr_array(np.array([[1, 0.2], [0.2001, 1]], dtype=np.float32))
    kept = teacher_targets(np.eye(2), fifth, TeacherOptions(neighbours=0, delta=0.1))
    assert kept.toarray().astype(bool).tolist() == [[True, False], [True, True]]


def test_only_directions_count_and_the_input_is_left_alone():
    vectors, hard = made_up(12), ratio(12, 3)
    before, data = vectors.copy(), hard.data.copy()
    found = teacher_targets(vectors, hard)
    lengths = 2.0 ** np.random.default_rng(0).integers(-5, 5, (12, 1))
    assert (teacher_targets(vectors * lengths, hard) != found).nnz == 0
    assert np.array_equal(vectors, before) and np.array_equal(hard.data, data)


def test_a_label_without_a_vector_keeps_its_hard_targets():
    vectors = np.array([[1, 0], [0, 0], [1, 0]], dtype=np.float32)
    hard = csr_array(np.array([[1, 0, 0], [0.8, 1, 0], [0, 0, 1]], dtype=np.float32))
    found = teacher_targets(vectors, hard).toarray()
    np.testing.assert_allclose(found, [[1, 0, 0.5], [0.4, 1, 0], [0.5, 0, 1]], atol=1e-6)


def test_a_value_that_float32_cannot_hold_is_no_target():
    options = TeacherOptions(temperature=500.0, delta=0.0)
    found = teacher_targets(np.array([[1.0, 0.0], [-1.0, 0.0]]), identity(2), options)
    assert found.nnz == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"delta": 1.0}, "a threshold on a probability lies in"),
        ({"neighbours": -1}, "cannot have -1 neighbours"),
        ({"temperature": 0.0}, "must be greater than 0"),
        ({"soft": 1.5}, "a share lies in"),
    ],
)
def test_options_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(DataError, match=sentence):
        TeacherOptions(**settings)


def test_vectors_that_do_not_fit_or_are_not_numbers_are_refused():
    with pytest.raises(DataError, match="hard targets are 4 x 4, but the teacher knows 3 labels"):
        teacher_targets(made_up(3), identity(4))
    broken = made_up(3)
    broken[1, 0] = np.nan
    with pytest.raises(DataError, match="not numbers"):
        teacher_targets(broken, identity(3))


def test_the_targets_are_label_points_of_real_data():
    """Words of the label texts as vectors: nearest labels share words, and the result augments the set."""
    points = gandalf.load("man").train
    words = np.zeros((points.num_labels, 256), dtype=np.float32)
    for label, text in enumerate(points.label_texts):
        for word in text.lower().split():
            words[label, sum(word.encode()) * 31 % 256] += 1
    hard = gandalf.label_graph(points, gandalf.GraphOptions("ratio")).matrix
    graph = teacher_targets(words, hard)
    assert (graph.diagonal() == 1).all() and graph.data.min() > np.float32(0.1) and graph.data.max() <= 1
    assert np.diff(graph.indptr).mean() > 2
    assert len(augment(points, graph)) == len(points) + points.num_labels
    sample = np.arange(0, points.num_labels, 997)
    units = words / np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-12)
    cosines = units[sample] @ units.T
    cosines[np.arange(len(sample)), sample] = -np.inf
    found = nearest_vectors(words, 5)[1][sample]
    np.testing.assert_allclose(found, -np.sort(-cosines, axis=1)[:, :5], atol=1e-5)
