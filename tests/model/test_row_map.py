"""The ridge map from label texts to rows, against systems of equations and against fitting again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve

from gandalf.model.row_map import fit_row_map


def drawn(labels=40, dim=6, noise=0.5, seed=0):
    """Vectors with a mean that is not 0, rows that are linear in them up to noise, and that linear map."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(2.0, 1.0, (labels, dim)) * np.arange(1, dim + 1)
    linear, constant = rng.normal(size=(dim, dim)), rng.normal(size=dim)
    rows = vectors @ linear + constant + rng.normal(0, noise, (labels, dim))
    return vectors, rows, linear, constant


def brute(vectors, rows, strength):
    """Rows of ridge regression with a constant column that is not penalised, as one system of equations."""
    x = np.c_[vectors, np.ones(len(vectors))]
    penalty = strength * np.diag([1.0] * vectors.shape[1] + [0.0])
    weights = solve(x.T @ x + penalty, x.T @ rows)
    return lambda new: np.c_[new, np.ones(len(new))] @ weights


def fitted(vectors, rows, *strengths):
    return fit_row_map(vectors, rows, np.random.default_rng(0), strengths)


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_it_solves_the_system(strength, monkeypatch):
    monkeypatch.setattr("gandalf.model.row_map.BLOCK", 7)  # sums over several blocks
    vectors, rows, *_ = drawn()
    found = fitted(vectors, rows, strength)
    new = drawn(labels=9, seed=1)[0]
    assert found.strength > 0
    np.testing.assert_allclose(found(new), brute(vectors, rows, found.strength)(new), rtol=1e-8)


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_left_out_is_fitted_again_without_it(strength):
    vectors, rows, *_ = drawn(labels=12)
    found = fitted(vectors, rows, strength)
    left_out = found.left_out(vectors, rows)
    for at in range(len(rows)):
        rest = np.arange(len(rows)) != at
        again = brute(vectors[rest], rows[rest], found.strength)(vectors[[at]])[0]
        np.testing.assert_allclose(left_out[at], again, rtol=1e-7, atol=1e-9)


def test_the_strength_with_the_least_left_out_error_is_chosen():
    vectors, rows, *_ = drawn(labels=14, noise=8.0)
    strengths = (1e-6, 1e-2, 1.0, 100.0)
    errors = []
    for strength in strengths:
        each = fitted(vectors, rows, strength)
        errors.append(((each.left_out(vectors, rows) - rows) ** 2).sum())
    assert np.argmin(errors) not in (0, 3)  # else this says little
    chosen = fitted(vectors, rows, *strengths)
    assert chosen.strength == fitted(vectors, rows, strengths[int(np.argmin(errors))]).strength
    spread = ((rows - rows.mean(0)) ** 2).sum()
    assert chosen.explained == pytest.approx(1 - min(errors) / spread)


def test_rows_that_are_linear_in_the_texts_come_back():
    vectors, rows, linear, constant = drawn(noise=0.0)
    found = fit_row_map(vectors, rows, np.random.default_rng(0))
    new = drawn(labels=9, seed=1)[0]
    np.testing.assert_allclose(found(new), new @ linear + constant, rtol=1e-4, atol=1e-3)
    assert found.explained > 0.999999


def test_rows_that_have_nothing_to_do_with_the_texts_explain_nothing():
    vectors, _, *_ = drawn(labels=300)
    rows = np.random.default_rng(3).normal(size=vectors.shape) + 5.0
    found = fit_row_map(vectors, rows, np.random.default_rng(0))
    assert found.explained < 0.02
    np.testing.assert_allclose(found(vectors), np.tile(rows.mean(0), (300, 1)), atol=0.3)


def test_a_discriminant_is_the_shrunk_inverse_covariance_times_the_difference():
    vectors, rows, *_ = drawn()
    found = fitted(vectors, rows, 0.1)
    covariance = np.cov(vectors.T, bias=True)
    shrunk = covariance + 0.1 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    new = drawn(labels=9, seed=1)[0]
    np.testing.assert_allclose(found.discriminant(new), solve(shrunk, (new - vectors.mean(0)).T).T, rtol=1e-8)


@pytest.mark.parametrize("labels", [1, 2])
def test_one_or_two_labels_are_enough_not_to_fail(labels):
    vectors, rows, *_ = drawn(labels=labels)
    found = fit_row_map(vectors, rows, np.random.default_rng(0))
    assert np.isfinite(found(vectors)).all() and np.isfinite(found.discriminant(vectors)).all()
    assert np.isfinite(found.left_out(vectors, rows)).all()
