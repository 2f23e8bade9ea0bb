from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gandalf.data.matching import known_points, text_groups
from gandalf.data.synthetic import PAPER_SHAPES, _word, synthetic
from gandalf.errors import DataError


def loop_truth(made):
    topics = made.topics.toarray()
    number, labels = topics.shape
    truth = np.eye(labels)
    for j in range(labels):
        given = sum(made.weights[t] * topics[t, j] for t in range(number))
        for i in range(labels):
            if i != j:
                truth[j, i] = (
                    sum(made.weights[t] * topics[t, i] * topics[t, j] for t in range(number)) / given
                )
    return truth


def test_truth_is_the_sum_over_topics():
    made = synthetic(200, 30, seed=5, texts=False)
    np.testing.assert_allclose(made.truth().toarray(), loop_truth(made), atol=1e-12)
    assert made.weights.sum() == pytest.approx(1)
    assert made.topics.data.max() <= 0.9


@pytest.mark.parametrize(("known", "postulate"), [(0.0, 1.0), (0.9, 0.3)])
def test_ratio_of_counts_tends_to_the_truth(known, postulate):
    made = synthetic(200_000, 40, seed=1, known=known, postulate=postulate)
    train = made.splits.train
    dense = train.targets.toarray().astype(np.float64)
    joint = dense.T @ dense
    frequency = np.diag(joint)[:, None]
    truth = made.truth().toarray()
    error = np.sqrt(truth * (1 - truth) / frequency) + 1e-9
    off = ~np.eye(40, dtype=bool)
    assert (frequency > 500).all()
    assert (np.abs(joint / frequency - truth) / error)[off].max() < 5  # of some 1,500 normal deviates
    assert (truth[off] > 0.05).any()


@pytest.mark.parametrize("postulate", [1.0, 0.4])
def test_items_follow_the_postulate_to_the_degree_asked_for(postulate):
    # So few items that no point has more labels than 1 / rate: there the law is exact.
    made = synthetic(300_000, 30, seed=2, known=0.2, postulate=postulate, words_per_point=3)
    train, truth = made.splits.train, made.truth().toarray()
    of_points, of_labels = text_groups(train.texts, train.label_texts)
    items = np.isin(of_points, of_labels)
    assert items.mean() == pytest.approx(0.2, abs=0.005)
    label_of = dict(zip(of_labels.tolist(), range(30), strict=True))
    text_label = np.array([label_of.get(g, -1) for g in of_points.tolist()])
    anyone = np.asarray(train.targets[text_label >= 0].mean(axis=0)).ravel()
    checked = 0
    for j in range(30):
        mine = train.targets[text_label == j]
        observed = np.asarray(mine.mean(axis=0)).ravel()
        expected = postulate * truth[j] + (1 - postulate) * anyone
        error = np.sqrt(expected * (1 - expected) / mine.shape[0]) + 1e-9
        others = np.arange(30) != j
        assert (np.abs(observed - expected)[others] < 5 * error[others]).all()
        checked += mine.shape[0]
    assert checked == items.sum()


def test_texts_change_nothing_but_texts():
    bare, made = synthetic(500, 60, seed=3, texts=False), synthetic(500, 60, seed=3)
    assert bare.splits.train.texts is None
    assert replace(made.splits.train, texts=None, label_texts=None) == bare.splits.train
    assert len(set(made.splits.train.label_texts)) == 60


def test_share_of_items_is_the_one_asked_for():
    for known in (0.0, 0.5, 0.95):
        made = synthetic(20_000, 3_000, known=known, labels_per_point=4)
        assert known_points(made.splits.train).mean() == pytest.approx(known, abs=0.03)


def test_same_seed_same_set():
    first, again, other = (synthetic(300, 40, seed=seed) for seed in (1, 1, 2))
    assert first.splits.train == again.splits.train
    assert first.splits.test == again.splits.test
    assert first.splits.train != other.splits.train


@pytest.mark.parametrize("name", ["131K", "500K"])
def test_shape_follows_the_paper(name):
    points, labels, per_point, words = PAPER_SHAPES[name]
    points, labels = points // 10, labels // 10
    train = synthetic(points, labels, labels_per_point=per_point, words_per_point=words).splits.train
    frequency = train.label_frequencies
    assert train.targets.shape == (points, labels)
    assert train.targets.nnz / points == pytest.approx(per_point, rel=0.03)
    assert np.mean([len(t.split()) for t in train.texts]) == pytest.approx(words, rel=0.03)
    assert np.diff(train.targets.indptr).min() >= 1
    assert (frequency <= 5).mean() > 0.5
    assert (frequency > 0).mean() > 0.93
    assert frequency.max() > 20 * frequency.mean()
    assert train.targets.has_canonical_format
    assert train.targets.indices.dtype == np.int32


def test_words_are_distinct():
    words = [_word(n) for n in range(30_000)]
    assert len(set(words)) == 30_000
    assert all(len(w) in (4, 6) for w in words)


@pytest.mark.parametrize(("points", "labels"), [(1, 1), (1, 5), (3, 2), (40, 7)])
def test_tiny_sets(points, labels):
    made = synthetic(points, labels, labels_per_point=1.0)
    assert made.splits.train.targets.shape == (points, labels)
    assert len(made.splits.test) >= 1


@pytest.mark.parametrize(("points", "labels", "per_point"), [(0, 5, 1), (5, 0, 1), (5, 5, 0.5), (5, 5, 4)])
def test_impossible_shapes_are_refused(points, labels, per_point):
    with pytest.raises(DataError, match="cannot be drawn"):
        synthetic(points, labels, labels_per_point=per_point)
