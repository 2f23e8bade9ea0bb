"""One contract for every Labels: each target is met once, with its value, among the labels it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets as random_targets

from gandalf.train.batches import Points, make_batch
from gandalf.train.labels import Every, Shortlist

CPU = torch.device("cpu")


def shortlist(num_labels, size, seed, points):
    labels = Shortlist(num_labels, size, seed)
    hard = np.random.default_rng(seed).integers(-1, num_labels, (points, 2))
    labels.refresh(hard.astype(np.int32))
    return labels


LABELS = {
    "every": lambda num_labels, size, seed, points: Every(num_labels, size),
    "shortlist without hard negatives": lambda num_labels, size, seed, points: Shortlist(
        num_labels, size - 1, seed
    ),
    "shortlist": shortlist,
}
every_labels = pytest.mark.parametrize("kind", LABELS)


def met(chunk, num_labels):
    return torch.arange(num_labels)[chunk.labels].tolist()


def chunks_of(labels, targets, rows=None, step=0):
    points = Points(np.ones((targets.shape[0], 1), np.int32), targets)
    rows = np.arange(targets.shape[0]) if rows is None else np.sort(rows)
    return make_batch(points, rows, labels, step, CPU).chunks


@every_labels
@given(random_targets(graded=True), st.integers(1, 8), st.integers(0, 99), st.data())
def test_every_target_of_the_batch_is_met_once_with_its_value(kind, targets, size, seed, data):
    number, num_labels = targets.shape
    labels = LABELS[kind](num_labels, size, seed, number)
    rows = np.sort(data.draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=5, unique=True)))
    found = []
    for chunk in chunks_of(labels, targets, rows, step=seed):
        here = met(chunk, num_labels)
        assert len(here) == chunk.size
        assert here == sorted(set(here))
        for point, column, value in zip(chunk.point, chunk.column, chunk.value, strict=True):
            found.append((int(rows[point]), here[column], float(value)))
    dense = targets.toarray()
    expected = [(i, j, float(dense[i, j])) for i in rows for j in range(num_labels) if dense[i, j]]
    assert sorted(found) == expected


@every_labels
@given(random_targets(), st.integers(1, 8), st.integers(0, 99))
def test_no_label_is_met_twice(kind, targets, size, seed):
    number, num_labels = targets.shape
    chunks = chunks_of(LABELS[kind](num_labels, size, seed, number), targets)
    all_of_them = [label for chunk in chunks for label in met(chunk, num_labels)]
    assert len(all_of_them) == len(set(all_of_them))


@every_labels
def test_the_chunks_follow_from_seed_and_step_alone(kind):
    targets = csr_array(np.eye(40, 60, dtype=np.float32))
    first, again = (LABELS[kind](60, 20, 3, 40) for _ in range(2))
    chunks_of(first, targets, step=8)  # other steps before it change nothing
    for one, other in zip(chunks_of(first, targets, step=2), chunks_of(again, targets, step=2), strict=True):
        assert met(one, 60) == met(other, 60)
        for name in ("point", "column", "value"):
            assert torch.equal(getattr(one, name), getattr(other, name))


@given(st.integers(1, 30), st.integers(1, 40))
def test_every_meets_all_labels_in_blocks(num_labels, block):
    chunks = chunks_of(Every(num_labels, block), csr_array(np.zeros((2, num_labels), np.float32)))
    assert [label for chunk in chunks for label in met(chunk, num_labels)] == list(range(num_labels))
    assert all(isinstance(chunk.labels, slice) for chunk in chunks)
    assert [chunk.size for chunk in chunks[:-1]] == [block] * (len(chunks) - 1)
    assert 0 < chunks[-1].size <= block


@given(random_targets(max_labels=30), st.integers(0, 6), st.integers(0, 99), st.integers(0, 99))
def test_a_shortlist_is_the_targets_the_hard_ones_and_the_drawn(targets, drawn, seed, step):
    number, num_labels = targets.shape
    labels = Shortlist(num_labels, drawn, seed)
    generator = np.random.default_rng(seed)
    hard = generator.integers(-1, num_labels, (number, 2)).astype(np.int32)
    labels.refresh(hard)
    rows = generator.permutation(number)[: 1 + number // 2]
    (chunk,) = chunks_of(labels, targets, rows, step)
    here = set(met(chunk, num_labels))
    known = {int(label) for row in rows for label in hard[row] if label >= 0}
    known |= {int(label) for row in rows for label in targets[[row]].indices}
    assert known <= here
    assert len(here - known) <= drawn
    # What is left was drawn: without targets and hard negatives the same step draws the same labels.
    empty = csr_array((number, num_labels), dtype=np.float32)
    (only,) = chunks_of(Shortlist(num_labels, drawn, seed), empty, rows, step)
    assert here == known | set(met(only, num_labels))


def test_steps_and_seeds_draw_different_labels_and_at_last_all():
    nothing = csr_array((3, 50), dtype=np.float32)
    drawn = [
        frozenset(met(chunks_of(Shortlist(50, 10, seed), nothing, step=step)[0], 50))
        for seed in range(3)
        for step in range(30)
    ]
    assert len(set(drawn)) == len(drawn)
    assert all(1 < len(each) <= 10 for each in drawn)
    assert set().union(*drawn) == set(range(50))


def test_more_labels_cannot_be_drawn_than_there_are():
    (chunk,) = chunks_of(Shortlist(4, 100, 0), csr_array((2, 4), dtype=np.float32))
    assert 1 <= chunk.size <= 4


def test_a_shortlist_takes_the_newest_hard_negatives():
    labels, nothing = Shortlist(9, 0, 0), csr_array((2, 9), dtype=np.float32)
    assert chunks_of(labels, nothing)[0].size == 0
    labels.refresh(np.array([[1, -1], [2, 1]], dtype=np.int32))
    assert met(chunks_of(labels, nothing)[0], 9) == [1, 2]
    labels.refresh(np.array([[7, 3], [-1, -1]], dtype=np.int32))
    assert met(chunks_of(labels, nothing)[0], 9) == [3, 7]
    assert chunks_of(labels, nothing, np.array([1]))[0].size == 0
