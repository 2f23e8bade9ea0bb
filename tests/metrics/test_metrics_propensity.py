"""The propensity model against its formula, and which constants it takes for which data set."""

from __future__ import annotations

import math

import metric_loops as loops
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gandalf.errors import DataError
from gandalf.metrics.propensity import Constants, inverse_propensities, propensity_constants


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("LF-AmazonTitles-131K", (0.6, 2.6)),
        ("LF-AmazonTitles-1.3M", (0.6, 2.6)),
        ("Amazon-670K", (0.6, 2.6)),
        ("amazon-3m", (0.6, 2.6)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("LF-WikiTitles-500K", (0.5, 0.4)),
        ("LF-Wikipedia-500K", (0.5, 0.4)),
        ("WikiLSHTC-325K", (0.5, 0.4)),
        ("LF-WikiSeeAlsoTitles-320K", (0.55, 1.5)),
        ("LF-WikiSeeAlso-320K", (0.55, 1.5)),
        ("Wiki10-31K", (0.55, 1.5)),
        ("LF-AmazonTitles-131K.raw", (0.6, 2.6)),
        ("LF-Amazon-131K-raw", (0.6, 2.6)),
        ("lf_amazontitles_131k_bow", (0.6, 2.6)),
        ("LF-AmazonTitles-1.3M.raw", (0.6, 2.6)),
        ("Wikipedia-500K_raw_text", (0.5, 0.4)),
        ("Amazon-3M data", (0.6, 2.6)),
        ("LF-WikiSeeAlsoTitles-320K.bow", (0.55, 1.5)),
        ("Amazon-670K-sample", (0.55, 1.5)),  # another set
        ("Amazon-670K-raw-sample", (0.55, 1.5)),
        ("Amazon-670Kraw", (0.55, 1.5)),
        ("raw", (0.55, 1.5)),
        (".raw", (0.55, 1.5)),
        ("my-amazon-shop", (0.55, 1.5)),
        ("man", (0.55, 1.5)),
        ("", (0.55, 1.5)),
    ],
)
def test_propensity_constants_go_by_the_whole_name(name, want):
    found = propensity_constants(name)
    assert want == (found.A, found.B)
    assert found.source == ("default" if want == (0.55, 1.5) else "name")


@pytest.mark.parametrize(
    ("given_", "want"),
    [
        ({}, (0.6, 2.6, "name")),
        ({"A": 0.5, "B": 0.4}, (0.5, 0.4, "given")),
        ({"A": 0.5}, (0.5, 2.6, "given")),
        ({"B": 0.4}, (0.6, 0.4, "given")),
    ],
)
def test_what_is_given_overrules_the_name(given_, want):
    assert propensity_constants("LF-Amazon-131K", **given_) == Constants(*want)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(3, 10**6))
def test_inverse_propensities_follow_the_formula(frequencies, points):
    found = inverse_propensities(np.asarray(frequencies), points, 0.6, 2.6)
    assert found == pytest.approx([loops.inverse_propensity(f, points, 0.6, 2.6) for f in frequencies])


@pytest.mark.parametrize("points", [0, 1, 2])
def test_inverse_propensities_of_a_handful_of_points_are_1(points):
    assert inverse_propensities(np.asarray([0, 1]), points).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("A", "B"), [(-0.1, 1.5), (0.55, 0.0), (math.nan, 1.5), (0.55, math.inf)])
def test_impossible_propensity_constants_are_refused(A, B):
    with pytest.raises(DataError, match="give no propensities; choose A from 0 up and B above 0"):
        inverse_propensities(np.asarray([0, 1, 5]), 5, A, B)


@pytest.mark.parametrize(
    ("A", "B"), [(1000.0, 1.5), (600.0, 1.5), (0.9, 1e308), (2.0, 1e-300), (1e308, 1e308)]
)
def test_propensities_beyond_floating_point_are_refused(A, B):
    with pytest.raises(DataError, match="too small to compute with; choose values near the default"):
        inverse_propensities(np.asarray([0, 1, 5]), 5, A, B)
