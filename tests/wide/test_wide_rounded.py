"""What is found by 8-bit codes is what an exact search finds, or nothing is claimed."""

from __future__ import annotations

import numpy as np
import pytest

from gandalf.wide import rounded
from gandalf.wide.plain import best_places
from gandalf.wide.rounded import Rounded

pytest.importorskip("numba", reason="numba is an optional library: extra [fast]")


def drawn(seed, labels=400, dim=24, scale=1.0):
    rng = np.random.default_rng(seed)
    rows = (scale * rng.standard_t(4, size=(labels, dim))).astype(np.float32)
    return rows, rng.normal(size=labels).astype(np.float32), rng


def exact(x, rows, bias, k):
    return best_places((rows * x).sum(axis=1) + bias, k)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_proved_is_exact(seed):
    rows, bias, rng = drawn(seed, dim=int(rng_dim(seed)), scale=10.0 ** (seed - 5))
    made = Rounded.of(rows, bias)
    proved = 0
    for x in rng.normal(size=(20, rows.shape[1])).astype(np.float32):
        for k in (1, 5, 20):
            found = made.best(x, k, rows, bias)
            if found is not None:
                proved += 1
                labels, scores = exact(x, rows, bias, k)
                np.testing.assert_array_equal(found[0], labels)
                np.testing.assert_array_equal(found[1], scores)
    assert proved > 20 or seed > 6  # long rows: gaps between scores grow as they do, biases do not


def rng_dim(seed):
    return np.random.default_rng(seed).integers(1, 70)


@pytest.mark.parametrize("seed", range(5))
def test_no_score_is_further_off_than_the_bound(seed, monkeypatch):
    """Of labels that differ by less than the codes tell, none is called the best without need."""
    rows, bias, rng = drawn(seed)
    rows[:] = rows[0] + 1e-4 * rows  # all nearly the same
    small = bias * np.float32(1e-4)
    made = Rounded.of(rows, small)
    monkeypatch.setattr(rounded, "SPARE", 0)
    for x in rng.normal(size=(20, rows.shape[1])).astype(np.float32):
        found = made.best(x, 3, rows, small)
        if found is not None:
            np.testing.assert_array_equal(found[0], exact(x, rows, small, 3)[0])


def test_equal_scores_go_to_the_smaller_label():
    rows, bias, _ = drawn(1)
    rows[7] *= 5
    rows[300], bias[300] = rows[7], bias[7]
    found = Rounded.of(rows, bias).best(rows[7], 2, rows, bias)
    assert found is not None and found[0].tolist() == [7, 300]


def test_a_label_that_was_taken_out_is_not_found():
    rows, bias, _ = drawn(2)
    x = (10 * rows[7]).astype(np.float32)
    bias[7] = -np.inf
    made = Rounded.of(rows, bias)
    found = made.best(x, 1, rows, bias)
    assert found is None or found[0][0] == exact(x, rows, bias, 1)[0][0] != 7


def test_rows_that_were_added_since_are_found():
    rows, bias, _ = drawn(4)
    made = Rounded.of(rows[:390], bias[:390])
    for at in (0, 389, 390, 399):
        x = (10 * rows[at]).astype(np.float32)
        found = made.best(x, 2, rows, bias)
        assert found is not None and found[0].tolist() == exact(x, rows, bias, 2)[0].tolist()


def test_nothing_is_claimed_of_what_it_cannot_tell():
    rows, bias, _ = drawn(3, labels=40)
    assert Rounded.of(rows, bias).best(rows[0], 5, rows, bias) is None  # nearly all labels are asked for
    rows, bias, _ = drawn(3)
    made = Rounded.of(rows, bias)
    for x in (np.full(24, np.nan, dtype=np.float32), np.full(24, np.inf, dtype=np.float32)):
        assert made.best(x, 5, rows, bias) is None
    assert made.best(np.zeros(24, dtype=np.float32), 5, rows, bias) is None
    rows[5, 5] = np.nan
    assert Rounded.of(rows, bias) is None


def test_without_numba_there_is_none(monkeypatch):
    monkeypatch.setattr(rounded, "compiled", lambda loop: None)
    assert Rounded.of(*drawn(0)[:2]) is None
