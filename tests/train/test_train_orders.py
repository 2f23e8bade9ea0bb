"""One contract for every order of points, and what is peculiar to clusters and to drawn labels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets as random_targets

from gandalf.errors import DataError
from gandalf.train.orders import (
    ClusteredOrder,
    LabelFirstOrder,
    Order,
    Phase,
    cluster_size,
    doubling_epochs,
    refresh_epochs,
)

sizes = st.integers(1, 13)


def clustered(points, steps, batch, seed):
    order = ClusteredOrder(points, steps, batch, seed)
    order.refresh(np.arange(len(points)) // 3, 1)
    return order


def drawn(points, steps, batch, seed):
    """Every point has one label of its own, and one that it shares with its neighbour."""
    dense = np.zeros((int(points.max()) + 1, 2 * len(points)), np.float32)
    dense[points, np.arange(len(points))] = 1
    dense[points, len(points) + np.arange(len(points)) // 2] = 1
    return LabelFirstOrder(csr_array(dense), steps, batch, seed)


ORDERS = {
    "random": lambda points, steps, batch, seed: Order([Phase(points, steps)], batch, seed),
    "clustered before clusters": ClusteredOrder,
    "clustered": clustered,
    "drawn": drawn,
}
every_order = pytest.mark.parametrize("kind", ORDERS)


@every_order
@given(sizes, sizes, st.integers(0, 9), st.lists(st.integers(0, 19), max_size=6))
def test_a_step_follows_from_the_seed_alone(kind, number, batch, seed, before):
    points = np.sort(np.random.default_rng(seed).permutation(40)[:number])
    used, fresh = (ORDERS[kind](points, 20, batch, seed) for _ in range(2))
    for step in before:
        used.rows(step)
    rows = used.rows(11)
    assert rows.dtype == np.int64 and set(rows) <= set(points)
    assert rows.tolist() == fresh.rows(11).tolist()


@every_order
def test_batches_are_of_one_size_and_end_with_the_training(kind):
    points = np.arange(3, 20)
    order = ORDERS[kind](points, 20, 5, 0)
    assert (order.steps, order.batch) == (20, 5)
    assert len({len(order.rows(step)) for step in range(20)}) == 1
    assert sum(phase.steps for phase in order.phases) == 20
    assert sorted(set(np.concatenate([phase.points for phase in order.phases]))) == points.tolist()
    with pytest.raises(IndexError):
        order.rows(20)


@every_order
def test_steps_and_seeds_differ(kind):
    points = np.arange(50)
    found = {tuple(ORDERS[kind](points, 9, 20, seed).rows(step)) for seed in (0, 1) for step in range(9)}
    assert len(found) == 18


@given(sizes, sizes, st.integers(0, 9))
def test_without_clusters_the_order_is_the_random_one(number, batch, seed):
    points = np.random.default_rng(seed).permutation(40)[:number]
    one, other = ClusteredOrder(points, 30, batch, seed), Order([Phase(points, 30)], batch, seed)
    assert all(one.rows(step).tolist() == other.rows(step).tolist() for step in range(30))


@given(st.integers(2, 30), sizes, st.integers(1, 6), st.integers(0, 9))
def test_every_epoch_is_a_permutation_of_whole_clusters(number, batch, size, seed):
    points = np.arange(100, 100 + number)
    cluster = np.random.default_rng(seed).permutation(number) // size
    order = ClusteredOrder(points, 10 * number, batch, seed)
    order.refresh(cluster, 0)
    steps = -(-3 * number // min(batch, number))
    met = np.concatenate([order.rows(step) for step in range(steps)])
    for epoch in range(3):
        here = met[epoch * number : (epoch + 1) * number]
        assert sorted(here) == points.tolist()
        runs = cluster[here - 100]
        assert sum(one != other for one, other in pairwise(runs)) == cluster.max()


def test_clusters_and_the_points_in_them_are_shuffled_anew_in_every_epoch():
    order = ClusteredOrder(np.arange(60), 1000, 60, 0)
    order.refresh(np.arange(60) // 6, 0)
    epochs = [order.rows(step) for step in range(200)]
    firsts = np.bincount([rows[0] for rows in epochs], minlength=60)
    assert (firsts > 0).sum() > 50  # clusters change places, and points within them
    assert len({tuple(rows // 6) for rows in epochs}) == 200


def test_clusters_hold_from_their_epoch_on_and_a_batch_may_meet_both():
    points, first, later = np.arange(30), np.arange(30) // 10, np.arange(30) % 3
    order = ClusteredOrder(points, 100, 12, 3)
    before = [order.rows(step).tolist() for step in range(10)]
    order.refresh(first, 2)
    order.refresh(later, 3)
    met = np.concatenate([order.rows(step) for step in range(10)])  # four epochs
    assert met[:60].tolist() == np.concatenate(before)[:60].tolist()
    for cluster, here in ((first, met[60:90]), (later, met[90:120])):
        assert sorted(here) == points.tolist()
        assert sum(one != other for one, other in pairwise(cluster[here])) == 2
    assert [start for start, _ in order.assignments] == [2, 3]


def test_new_clusters_count_at_once_even_for_an_epoch_that_was_looked_at():
    order = ClusteredOrder(np.arange(30), 100, 30, 0)
    order.rows(4)
    order.refresh(np.arange(30) % 3, 4)
    assert sum(one != other for one, other in pairwise(order.rows(4) % 3)) == 2


def test_the_newest_clusters_replace_those_for_later_epochs():
    order = ClusteredOrder(np.arange(6), 100, 6, 0)
    for epoch in (1, 5, 9):
        order.refresh(np.zeros(6, np.int64), epoch)
    assert [start for start, _ in order.assignments] == [5, 9]
    order.refresh(np.zeros(6, np.int64), 4)
    assert [start for start, _ in order.assignments] == [4]
    order.refresh(np.zeros(6, np.int64), 7)
    assert [start for start, _ in order.assignments] == [4, 7]


def test_clusters_taken_back_from_a_checkpoint_give_the_same_batches():
    order = ClusteredOrder(np.arange(30), 100, 7, 3)
    order.refresh(np.arange(30) // 4, 1)
    order.refresh(np.arange(30) % 4, 2)
    again = ClusteredOrder(np.arange(30), 100, 7, 3)
    for epoch, assignment in order.assignments:
        again.refresh(assignment, epoch)
    assert all(order.rows(step).tolist() == again.rows(step).tolist() for step in range(20))


@given(st.integers(1, 20), sizes)
def test_the_untouched_epoch_is_the_first_that_no_earlier_step_met(number, batch):
    order = ClusteredOrder(np.arange(number), 50, batch, 0)
    for step in range(50):
        places = range(step * min(batch, number))  # of all steps before it
        touched = {place // number for place in places}
        assert order.first_unmet_epoch(step) == max(touched, default=-1) + 1


def test_clusters_of_other_points_are_refused():
    with pytest.raises(DataError, match="3 points are in clusters, but there are 5"):
        ClusteredOrder(np.arange(5), 9, 2, 0).refresh(np.zeros(3, np.int64), 0)


def test_ngames_schedule():
    starts = doubling_epochs(300)
    assert starts == (10, 20, 25, 50, 75, 100, 125, 150, 200)
    sizes = {epoch: cluster_size(epoch, starts) for epoch in (0, 9, 10, 19, 20, 25, 50, 199, 200, 299)}
    assert sizes == {0: 1, 9: 1, 10: 2, 19: 2, 20: 4, 25: 8, 50: 16, 199: 256, 200: 512, 299: 512}
    assert refresh_epochs(300) == tuple(range(10, 300, 5))


@pytest.mark.parametrize("epochs", [1, 3, 30, 77, 400])
def test_the_schedule_keeps_its_shares_of_any_training(epochs):
    for share in np.linspace(0, 0.999, 100):
        expected = 2 ** sum(300 * share >= mark for mark in (10, 20, 25, 50, 75, 100, 125, 150, 200))
        assert cluster_size(share * epochs, doubling_epochs(epochs)) == expected
    made = refresh_epochs(epochs)
    assert all(earlier < later for earlier, later in pairwise(made))
    assert all(epochs / 30 <= epoch < epochs for epoch in made)
    assert not made or made[0] < epochs / 30 + 1
    assert len(made) == min(58, max(0, epochs - -(-epochs // 30)))
    assert cluster_size(5, ()) == 1


@given(random_targets(graded=True), sizes, st.integers(0, 9))
def test_a_draw_holds_labels_once_and_two_points_of_each(targets, batch, seed):
    dense = targets.toarray() > 0
    if not dense.any():
        with pytest.raises(DataError, match="nothing to learn"):
            LabelFirstOrder(targets, 5, batch, seed)
        return
    order = LabelFirstOrder(targets, 5, batch, seed)
    able = np.flatnonzero(dense.any(axis=0))
    assert order.batch == min(batch, len(able))
    for step in range(5):
        draw = order.draw(step)
        assert len(draw.labels) == len(set(draw.labels)) == order.batch and set(draw.labels) <= set(able)
        assert (np.diff(draw.labels) > 0).all()
        for label, first, second in zip(draw.labels, draw.first, draw.second, strict=True):
            assert dense[first, label] and dense[second, label]
            assert (first != second) == (dense[:, label].sum() > 1)
        assert order.rows(step).tolist() == [*draw.first, *draw.second]


def test_labels_are_drawn_by_their_frequency_to_the_power():
    frequency = np.array([1, 4, 16, 0, 64])
    dense = np.arange(64)[:, None] < frequency
    expected = frequency**0.45 * (frequency > 0)
    expected = expected / expected.sum()
    order = LabelFirstOrder(csr_array(dense.astype(np.float32)), 4000, 1, 0)
    found = np.bincount([int(order.draw(step).labels[0]) for step in range(4000)], minlength=5) / 4000
    error = np.sqrt(expected * (1 - expected) / 4000)
    assert (np.abs(found - expected) <= 4 * error).all()
    flat = LabelFirstOrder(csr_array(dense.astype(np.float32)), 4000, 1, 0, power=0.0)
    found = np.bincount([int(flat.draw(step).labels[0]) for step in range(4000)], minlength=5) / 4000
    assert np.abs(found - np.array([0.25, 0.25, 0.25, 0, 0.25])).max() < 0.03


def test_labels_of_a_batch_are_drawn_one_after_the_other():
    """Probability of each pair: the first by weight, the second by weight among the rest."""
    frequency = np.array([1, 9, 81])
    dense = np.arange(81)[:, None] < frequency
    order = LabelFirstOrder(csr_array(dense.astype(np.float32)), 4000, 2, 5)
    weight = frequency**0.45 / (frequency**0.45).sum()
    left = np.array(
        [
            sum(weight[i] * weight[j] / (1 - weight[i]) for i in range(3) for j in range(3) if {i, j} == pair)
            for pair in ({1, 2}, {0, 2}, {0, 1})
        ]
    )
    out = np.bincount([3 - int(order.draw(step).labels.sum()) for step in range(4000)], minlength=3) / 4000
    assert (np.abs(out - left) <= 4 * np.sqrt(left * (1 - left) / 4000)).all()


def test_every_pair_of_points_of_a_label_is_as_likely():
    order = LabelFirstOrder(csr_array(np.ones((4, 1), np.float32)), 6000, 1, 2)
    found = np.zeros((4, 4))
    for step in range(6000):
        draw = order.draw(step)
        found[draw.first[0], draw.second[0]] += 1 / 6000
    assert (np.diag(found) == 0).all()
    assert np.abs(found[~np.eye(4, dtype=bool)] - 1 / 12).max() < 0.02
