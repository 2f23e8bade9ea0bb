"""Which points a step meets, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from gandalf.train.batches import Batch, Points, batches, make_batch
from gandalf.train.labels import Chunk, Every, Shortlist
from gandalf.train.orders import Order, Phase

CPU = torch.device("cpu")
sizes = st.integers(1, 13)


@given(sizes, sizes, st.integers(1, 4), st.integers(0, 9))
def test_every_epoch_is_a_permutation(points, batch, epochs, seed):
    chosen = np.sort(np.random.default_rng(seed).permutation(100)[:points])
    order = Order([Phase(chosen, 100)], batch, seed)
    size = min(batch, points)
    met = np.concatenate([order.rows(step) for step in range(-(-epochs * points // size))])
    for epoch in range(epochs):
        assert np.sort(met[epoch * points : (epoch + 1) * points]).tolist() == chosen.tolist()
    assert {len(order.rows(step)) for step in range(100)} == {size}


@given(sizes, sizes, st.integers(0, 9), st.lists(st.integers(0, 19), max_size=6))
def test_a_step_does_not_depend_on_the_steps_before_it(points, batch, seed, before):
    used, fresh = (Order([Phase(np.arange(points), 20)], batch, seed) for _ in range(2))
    for step in before:
        used.rows(step)
    assert used.rows(11).tolist() == fresh.rows(11).tolist()


def test_epochs_seeds_and_phases_are_shuffled_apart():
    def first(seed, number, epoch):
        phases = [Phase(np.arange(50), 3), Phase(np.arange(50), 3)]
        return tuple(Order(phases, 50, seed).rows(3 * number + epoch).tolist())

    found = {first(seed, number, epoch) for seed in (0, 1) for number in (0, 1) for epoch in (0, 1, 2)}
    assert len(found) == 12


def test_phases_come_one_after_the_other_each_with_its_points():
    order = Order([Phase(np.arange(10), 3), Phase(np.arange(10, 14), 2), Phase(np.arange(3), 4)], 4, seed=0)
    assert order.steps == 9
    for step, (low, high) in enumerate([(0, 10)] * 3 + [(10, 14)] * 2 + [(0, 3)] * 4):
        rows = order.rows(step)
        assert low <= rows.min() and rows.max() < high
        assert len(rows) == min(4, high - low)
    with pytest.raises(IndexError):
        order.rows(9)


def made_up(number=30, num_labels=12, weighted=True, seed=0):
    generator = np.random.default_rng(seed)
    tokens = generator.integers(1, 40, (number, 7)).astype(np.int32)
    tokens[np.arange(7) >= generator.integers(0, 6, (number, 1))] = 0
    targets = csr_array(random_array((number, num_labels), density=0.2, rng=generator, dtype=np.float32))
    weights = generator.random(number).astype(np.float32) if weighted else None
    return Points(tokens, targets, weights)


def same(first, second):
    if isinstance(first, Batch | Chunk):
        assert type(first) is type(second)
        for name in first.__dataclass_fields__:
            same(getattr(first, name), getattr(second, name))
    elif isinstance(first, tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            same(one, other)
    elif isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype and torch.equal(first, second)
    else:
        assert np.array_equal(first, second)


@pytest.mark.parametrize("labels", [Every(12, 5), Shortlist(12, 4, 1)])
@pytest.mark.parametrize("steps", [range(0, 9), range(3, 4), range(2, 2)])
def test_batches_made_ahead_are_those_made_one_by_one(labels, steps):
    points, order = made_up(), Order([Phase(np.arange(30), 9)], 8, seed=2)
    ahead = list(batches(points, order, labels, steps, CPU))
    assert len(ahead) == len(steps)
    for step, batch in zip(steps, ahead, strict=True):
        same(batch, make_batch(points, order.rows(step), labels, step, CPU))


def test_no_batch_is_made_for_a_step_beyond_the_stretch():
    asked = []

    class Watching(Every):
        def chunks(self, rows, triples, step):
            asked.append(step)
            return super().chunks(rows, triples, step)

    order = Order([Phase(np.arange(30), 9)], 8, seed=2)
    list(batches(made_up(), order, Watching(12, 5), range(2, 5), CPU))
    assert asked == [2, 3, 4]


def test_an_error_while_making_a_batch_reaches_the_loop():
    class Broken(Every):
        def chunks(self, rows, triples, step):
            raise ValueError("broken")

    order = Order([Phase(np.arange(30), 9)], 8, seed=2)
    with pytest.raises(ValueError, match="broken"):
        list(batches(made_up(), order, Broken(12, 5), range(3), CPU))


@given(st.lists(st.integers(0, 29), min_size=1, max_size=9, unique=True), st.booleans())
def test_a_batch_holds_its_points_and_nothing_else(rows, weighted):
    points = made_up(weighted=weighted)
    batch = make_batch(points, np.array(rows), Every(12, 12), 0, CPU)
    assert batch.rows.tolist() == rows
    tokens = batch.tokens.numpy()
    assert tokens.dtype == np.int64
    length = tokens.shape[1]
    assert np.array_equal(tokens, points.tokens[rows][:, :length])
    assert not points.tokens[rows][:, length:].any()  # only columns that are all padding are left out
    assert length == 1 or tokens[:, -1].any()
    if weighted:
        assert np.array_equal(batch.weights.numpy(), points.weights[rows])
    else:
        assert batch.weights is None
    (chunk,) = batch.chunks
    dense = np.zeros((len(rows), 12), np.float32)
    dense[chunk.point, chunk.column] = chunk.value
    assert np.array_equal(dense, points.targets.toarray()[rows])
    assert (np.diff(chunk.column) >= 0).all()


def test_texts_without_tokens_keep_one_column():
    points = Points(np.zeros((3, 5), np.int32), csr_array((3, 2), dtype=np.float32))
    batch = make_batch(points, np.arange(3), Every(2, 2), 0, CPU)
    assert batch.tokens.shape == (3, 1)
    assert batch.chunks[0].value.numel() == 0


def test_wide_indices_and_whole_numbers_are_taken_too():
    """Targets of a file may be 64-bit whole numbers; the loss wants float32 and the places int64."""
    targets = csr_array(np.eye(4, dtype=np.int64))
    targets.indices, targets.indptr = targets.indices.astype(np.int64), targets.indptr.astype(np.int64)
    points = Points(np.ones((4, 2), np.int32), targets)
    (chunk,) = make_batch(points, np.array([1, 3]), Every(4, 4), 0, CPU).chunks
    assert chunk.value.dtype == torch.float32
    assert chunk.point.dtype == chunk.column.dtype == torch.int64
    assert chunk.column.tolist() == [1, 3]
