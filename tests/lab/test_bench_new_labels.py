"""The measurement of new labels: nothing of a held-out label is trained on, and figures are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import gandalf
from bench.default_sets import keep_labels
from bench.new_labels import SHARE, Cut, figures
from gandalf.data.dataset import Dataset


@pytest.fixture(scope="module")
def cut():
    return Cut.of(gandalf.load("man"), seed=3)


def test_nothing_of_a_held_out_label_is_left(cut):
    train, whole = cut.train(), cut.splits.train
    assert len(cut.held) == int(SHARE * whole.num_labels) and not set(cut.held) & set(cut.known)
    assert train.num_labels == len(cut.known) == whole.num_labels - len(cut.held)
    assert not set(cut.texts(cut.held)) & set(train.label_texts)
    assert list(train.label_ids) == [whole.label_ids[number] for number in cut.known]
    assert np.diff(train.targets.indptr).min() > 0
    assert train.targets.nnz == whole.targets[:, cut.known].nnz and train.targets.nnz < whole.targets.nnz
    assert train.exclude.shape == train.targets.shape


def test_examples_have_the_label_and_neighbours_share_points(cut):
    train = cut.splits.train
    examples, near = cut.examples(np.random.default_rng(0)), cut.neighbours()
    for at in (0, 100, 500):
        points = train.targets[:, [cut.held[at]]].nonzero()[0]
        assert set(examples[at]) <= {train.texts[point] for point in points}
        assert len(examples[at]) == min(3, len(points))
        counts = train.targets[points].astype(bool).sum(0)[cut.known]
        assert [counts[number] for number in near[at]] == sorted(counts[counts > 0], reverse=True)[:3]


def test_figures_point_by_point():
    rng = np.random.default_rng(0)
    truth = rng.random((40, 12)) < 0.3
    truth[:, 0] |= ~truth.any(1)
    ids = np.stack([rng.permutation(12)[:10] for _ in range(40)])
    ids[3, 4:] = -1
    unseen = np.array([True, False, False, True])  # of the last four labels
    found = figures(ids, Dataset(csr_array(truth.astype(np.float32))), unseen)

    def recall(k, labels):
        asked = [row for row in range(40) if truth[row, labels].any()]
        hits = [len(set(ids[row, :k]) & {label for label in labels if truth[row, label]}) for row in asked]
        return 100 * np.mean([hit / truth[row, labels].sum() for row, hit in zip(asked, hits, strict=True)])

    for k in (1, 5, 10):
        assert found[f"R@{k}"] == pytest.approx(recall(k, [8, 9, 10, 11]))
    assert found["R@10, unseen text"] == pytest.approx(recall(10, [8, 11]))
    right = np.array([truth[row, ids[row, 0]] for row in range(40)])
    has = truth[:, 8:].any(1)
    assert found["P@1"] == pytest.approx(100 * right[has].mean())
    assert found["P@1, all points"] == pytest.approx(100 * right.mean())
    assert found["P@1, other points"] == pytest.approx(100 * right[~has].mean())
    assert found["new label first"] == pytest.approx(100 * (ids[:, 0] >= 8).mean())


def test_labels_are_put_in_order():
    points = Dataset(csr_array(np.eye(3, dtype=np.float32)), ["a", "b", "c"], ["x", "y", "z"])
    found = keep_labels(points, np.array([2, 0]))
    assert found.label_texts == ["z", "x"]
    assert found.targets.toarray().tolist() == [[0, 1], [0, 0], [1, 0]]
