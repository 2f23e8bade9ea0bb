"""Calibrated scores against known probabilities, and that no calibration ever turns the order round."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit

from gandalf.errors import DataError
from gandalf.model.calibration import Calibration, fit_calibration
from gandalf.predict.predictor import probabilities


def drawn(points, k, slope, offset, seed):
    """Top k scores whose labels are true with the probability sigmoid(slope * score + offset)."""
    rng = np.random.default_rng(seed)
    labels = 3 * k
    logits = -np.sort(-rng.normal(-1.0, 2.0, (points, k)))
    scores = ((logits - offset) / slope).astype(np.float32)
    ids = np.stack([rng.permutation(labels)[:k] for _ in range(points)])
    is_true = rng.random((points, k)) < expit(logits)
    rows = np.nonzero(is_true)[0]
    truth = csr_array((np.ones(len(rows)), (rows, ids[is_true])), shape=(points, labels))
    return ids, scores, truth


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.4, -1.0), (2.5, 1.5), (20.0, -8.0)])
def test_known_probabilities_are_found_again(slope, offset):
    found = fit_calibration(*drawn(4000, 10, slope, offset, seed=1))
    assert found.slope == pytest.approx(slope, rel=0.1)
    assert found.offset == pytest.approx(offset, abs=0.15)


def test_calibrated_values_come_true():
    """Reliability on fresh points: of the pairs said to be true with p, a share of p is true."""
    found = fit_calibration(*drawn(2000, 10, 0.5, -1.2, seed=2))
    ids, scores, truth = drawn(4000, 10, 0.5, -1.2, seed=3)
    said = found(scores)
    is_true = truth.toarray()[np.arange(len(ids))[:, None], ids]
    for low in np.arange(0.0, 0.9, 0.1):
        inside = (said >= low) & (said < low + 0.1)
        assert inside.sum() > 100
        assert is_true[inside].mean() == pytest.approx(
            said[inside].mean(), abs=0.05
        )  # the plain sigmoid is off by up to 0.3


@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_few_or_senseless_points_never_invert_the_order(points, k, seed, inverted):
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.normal(0, 5, (points, k))).astype(np.float32)
    ids = np.tile(np.arange(k), (points, 1))
    truth = csr_array((scores < 0 if inverted else rng.random((points, k)) < 0.5).astype(np.float32))
    found = fit_calibration(ids, scores, truth)
    assert found.slope > 0 and abs(found.offset) < 20
    values = found(np.linspace(-30, 30, 200))
    assert (np.diff(values) >= 0).all() and values[0] >= 0 and values[-1] <= 1


def test_no_points_leave_the_sigmoid():
    none = fit_calibration(np.empty((0, 3), dtype=np.int64), np.empty((0, 3)), csr_array((0, 5)))
    assert none.slope == pytest.approx(1.0) and none.offset == pytest.approx(0.0)


def test_separated_points_stay_finite():
    """All above 0 true, all below not: the likelihood alone would want an infinite slope."""
    scores = np.array([[2.0, -2.0]] * 50)
    ids = np.array([[0, 1]] * 50)
    found = fit_calibration(ids, scores, csr_array(np.array([[1.0, 0.0]] * 50)))
    assert 0.9 < found(np.array([2.0]))[0] < 0.999
    assert found.slope < 10


def test_places_without_a_label_and_excluded_pairs_do_not_count():
    ids, scores, truth = drawn(300, 6, 0.7, -0.5, seed=4)
    expected = fit_calibration(ids, scores, truth)
    padded_ids = np.hstack([ids, np.full((300, 1), -1)])
    padded_scores = np.hstack([scores, np.full((300, 1), -np.inf, dtype=np.float32)])
    assert fit_calibration(padded_ids, padded_scores, truth) == expected
    dropped = np.zeros(truth.shape, dtype=bool)
    dropped[np.arange(300), ids[:, 2]] = True
    without = np.delete(ids, 2, axis=1), np.delete(scores, 2, axis=1)
    found = fit_calibration(ids, scores, truth, csr_array(dropped))
    assert found == fit_calibration(*without, truth)
    assert found != expected


def test_soft_targets_count_as_much_as_they_say():
    scores = np.zeros((2000, 1))
    ids = np.zeros((2000, 1), dtype=np.int64)
    found = fit_calibration(ids, scores, csr_array(np.full((2000, 1), 0.25)))
    assert found(np.zeros(1))[0] == pytest.approx(0.25, abs=0.01)


def test_what_does_not_belong_together():
    with pytest.raises(DataError, match="do not belong together"):
        fit_calibration(np.zeros((2, 1), dtype=np.int64), np.zeros((2, 1)), csr_array((3, 5)))


@given(
    st.lists(st.sampled_from([-200.0, -110.0, -3.0, 0.0, 9.5, 17.0, 17.001, 30.0, 31.0, 90.0]), min_size=1),
    st.floats(0.1, 20),
    st.floats(-5, 5),
)
def test_probabilities_keep_the_order_in_float32(values, slope, offset):
    scores = np.array([sorted(values, reverse=True)], dtype=np.float32)
    found = probabilities(scores, Calibration(slope, offset))
    assert found.dtype == np.float32 and (found > 0).all() and (found <= 1).all()
    np.testing.assert_array_equal(np.sign(np.diff(found)), np.sign(np.diff(scores)))
    np.testing.assert_allclose(found, expit(slope * scores.astype(np.float64) + offset), atol=1e-5)


def test_no_prediction_has_no_probability():
    scores = np.array([[1.0, -np.inf], [-np.inf, -np.inf]], dtype=np.float32)
    assert probabilities(scores, Calibration())[:, 1].tolist() == [0.0, 0.0]
    assert probabilities(np.empty((0, 3), dtype=np.float32), Calibration()).shape == (0, 3)
