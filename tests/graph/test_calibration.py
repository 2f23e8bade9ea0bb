"""The calibrated estimate against its definition, every pair worked out by hand."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gandalf.graph.estimates.calibrated import Calibrated, _cells, fit_calibrated
from gandalf.graph.matched_pairs import Pairs

# The definition's numbers, written down a second time: a change of any of them is a change of the estimate.
CAP, DECILES, EDGES = 6, 10, (1.5, 2.5, 4.5, 8.5, 16.5, 64.5)
CELLS = CAP * 7 * 7 * DECILES
RIDGE, PRIOR = 1.0, 10.0
# Where cells begin and end, and a graded sum on either side.
COUNTS = st.sampled_from([0.25, 1, 1.5, 1.75, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 40, 64, 65, 70, 300])


def features(c, j, i):
    """What the surface is linear in, for one pair: logs, their products, three ratios, five corners."""
    logs = [math.log(c), math.log(j), math.log(i)]
    products = [a * b for a, b in ((logs[0],) * 2, (logs[1],) * 2, (logs[2],) * 2)]
    products += [logs[0] * logs[1], logs[0] * logs[2], logs[1] * logs[2]]
    ratios = [c / j, c / i, c / (j + i - c)]
    return logs + products + ratios + [float(at) for at in (c == 1, j == 1, i == 1, c == j, c == i)]


def cell(c, j, i):
    """Capped count, frequency bracket of j, frequency bracket of i, decile of the ratio."""
    brackets = [sum(number > edge for edge in EDGES) for number in (j, i)]
    return min(max(int(c), 1), CAP), *brackets, min(int(c / j * DECILES), DECILES - 1)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def made_pairs(number=1200, seed=0):
    """Pairs whose observed targets depend on their cell in a way that no smooth surface follows."""
    rng = np.random.default_rng(seed)
    given_count, other = rng.geometric(0.15, size=(2, number)).astype(float)
    other[::9] *= 20
    joint = np.ceil(rng.random(number) * np.minimum(given_count, other))
    chance = [
        0.9 if sum(cell(*counts)) % 2 else 0.2 for counts in zip(joint, given_count, other, strict=True)
    ]
    observed = np.where(rng.random(number) < 0.1, 0.5, rng.random(number) < chance)
    label = np.arange(number)
    return Pairs(label, label, label, joint, given_count, other, observed)


def counts(pairs):
    return list(zip(pairs.joint.tolist(), pairs.given.tolist(), pairs.other.tolist(), strict=True))


@pytest.fixture(scope="module")
def pairs():
    return made_pairs()


@pytest.fixture(scope="module")
def fitted(pairs):
    return fit_calibrated(pairs)


def surface(fitted, c, j, i):
    """Logit of a pair before its cell's correction."""
    return fitted.offset + sum(w * f for w, f in zip(fitted.slopes, features(c, j, i), strict=True))


def corrections(fitted, pairs):
    """Of each cell that holds pairs: sum of observed - expected, over sum of p (1 - p) and the prior."""
    slope, curvature = defaultdict(float), defaultdict(float)
    for observed, counted in zip(pairs.observed, counts(pairs), strict=True):
        p = sigmoid(surface(fitted, *counted))
        slope[cell(*counted)] += observed - p
        curvature[cell(*counted)] += p * (1 - p)
    return {at: slope[at] / (curvature[at] + PRIOR) for at in slope}


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=40))
def test_two_pairs_share_a_cell_exactly_when_count_frequencies_and_decile_agree(triples):
    triples = [(min(c, j, i), j, i) for c, j, i in triples]
    found = _cells(*np.array(triples, dtype=float).T)
    assert ((found >= 0) & (found < CELLS)).all()
    for a, one in zip(found, triples, strict=True):
        for b, two in zip(found, triples, strict=True):
            assert (a == b) == (cell(*one) == cell(*two))


@pytest.mark.parametrize("counted", [(1, 1, 1), (2, 5, 3), (3, 3, 7), (4, 9, 4), (0.5, 2.25, 80)])
def test_the_surface_is_linear_in_these_numbers(counted):
    """One slope of 1 at a time shows each feature through the score."""
    expected = features(*counted)
    for at, feature in enumerate(expected):
        alone = Calibrated(-0.5, np.eye(len(expected))[at], np.zeros(CELLS))
        (score,) = alone.score(*(np.array([float(number)]) for number in counted))
        assert score == pytest.approx(sigmoid(feature - 0.5), rel=1e-12)


def test_features_of_one_pair_in_plain_numbers():
    """The loop above is code too: here the pair (2, 5, 3), log 2 = 0.693, log 5 = 1.609, log 3 = 1.099."""
    expected = [0.693147, 1.609438, 1.098612, 0.480453, 2.590290, 1.206949, 1.115577, 0.761500, 1.768149]
    expected += [0.4, 0.666667, 0.333333, 0, 0, 0, 0, 0]
    assert features(2, 5, 3) == pytest.approx(expected, abs=1e-6)


def test_the_penalised_loss_is_flat_at_the_fitted_surface(pairs, fitted):
    """Ridge on standardised coefficients, the intercept nearly free."""
    table = np.array([features(*counted) for counted in counts(pairs)])
    mean, spread = table.mean(axis=0), table.std(axis=0)
    weights = fitted.slopes * spread
    residual = np.array([sigmoid(surface(fitted, *counted)) for counted in counts(pairs)]) - pairs.observed
    gradient = ((table - mean) / spread).T @ residual + RIDGE * weights
    np.testing.assert_allclose(gradient, 0, atol=2e-3)
    assert residual.sum() == pytest.approx(0, abs=2e-3)
    assert np.abs(weights).max() > 0.1  # there is a surface to speak of


def test_every_score_is_the_surface_and_the_correction_of_its_cell(pairs, fitted):
    by_cell = corrections(fitted, pairs)
    scores = fitted.score(pairs.joint, pairs.given, pairs.other)
    for score, counted in zip(scores, counts(pairs), strict=True):
        expected = sigmoid(surface(fitted, *counted) + by_cell[cell(*counted)])
        assert score == pytest.approx(expected, rel=1e-9)
    assert np.ptp(list(by_cell.values())) > 0.5  # the cells do have something to say


def test_a_cell_that_was_never_seen_leaves_the_surface_alone(pairs, fitted):
    seen = corrections(fitted, pairs)
    every = [(c, c + more, i) for c in (1.0, 6.0, 30.0) for more in (0.0, 9.0, 60.0) for i in (30.0, 90.0)]
    strange = [counted for counted in every if cell(*counted) not in seen]
    assert strange
    scores = fitted.score(*np.array(strange).T)
    assert scores == pytest.approx([sigmoid(surface(fitted, *counted)) for counted in strange], rel=1e-9)


def test_a_pairs_score_does_not_depend_on_its_company(pairs, fitted):
    """Long columns are scored in pieces; a piece must neither drop nor shift a pair."""
    columns = (pairs.joint, pairs.given, pairs.other)
    alone = np.concatenate([fitted.score(*(column[[at]] for column in columns)) for at in range(len(pairs))])
    many = fitted.score(*(np.tile(column, 120) for column in columns))
    np.testing.assert_allclose(many, np.tile(alone, 120), rtol=1e-12)
    assert fitted.score(*(column[:0] for column in columns)).shape == (0,)
