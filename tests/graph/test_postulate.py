"""Matching labels to points, the calibrated estimate and the diagnosis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

from gandalf.data.dataset import Dataset
from gandalf.graph.cooccurrence_summary import summarise_cooccurrence
from gandalf.graph.estimates.calibrated import fit_calibrated
from gandalf.graph.estimates.shrunk import Shrunk
from gandalf.graph.kind import PointsInMemory
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.graph.matched_pairs import match_labels
from gandalf.graph.postulate import _rounded, diagnose, log_loss, recommended_targets, reliability

WORDS = st.sampled_from(["red", "Red ", "blue", "green", ""])


def loop_pairs(y, texts, label_texts):
    """(j, i) -> joint, given, other, observed, all with j's matched points left out, by nested loops."""
    out = {}
    key = [t.strip().lower() for t in texts]
    for j, text in enumerate(label_texts):
        mine = [s for s in range(len(texts)) if key[s] and key[s] == text.strip().lower()]
        rest = [s for s in range(len(texts)) if s not in mine]
        for i in range(len(label_texts)):
            joint = sum(y[s, i] * y[s, j] for s in rest)
            if mine and i != j and joint > 0:
                observed = sum(y[s, i] for s in mine) / len(mine)
                out[j, i] = (joint, sum(y[s, j] for s in rest), sum(y[s, i] for s in rest), observed)
    return out


@given(targets(max_points=8, max_labels=5, graded=True), st.data())
def test_pairs_leave_the_matched_points_out_of_the_counts(matrix, data):
    """Holds where several labels share a text, several points match one label, and texts are empty."""
    texts = [data.draw(WORDS) for _ in range(matrix.shape[0])]
    label_texts = [data.draw(WORDS) for _ in range(matrix.shape[1])]
    pairs = match_labels(Dataset(matrix, texts, label_texts)).pairs
    columns = (pairs.joint, pairs.given, pairs.other, pairs.observed)
    actual = {
        (int(j), int(i)): tuple(float(c[at]) for c in columns)
        for at, (j, i) in enumerate(zip(pairs.given_label, pairs.other_label, strict=True))
    }
    expected = loop_pairs(matrix.toarray().astype(float), texts, label_texts)
    assert actual.keys() == expected.keys()
    for pair, values in expected.items():
        assert actual[pair] == pytest.approx(values, abs=1e-6)


def test_labels_that_share_a_text_are_matched_to_the_same_points():
    y = csr_array(np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=np.float32))
    points = Dataset(y, ["bank", "Bank", "river"], ["bank", "bank", "water"])
    found = match_labels(points)
    assert (found.labels, found.texts, found.several_points, found.shared_texts) == (2, 1, 1, 2)
    # Both see the mean of the two points: water 1.0, each other 0.5.
    seen = dict(
        zip(
            zip(found.pairs.given_label, found.pairs.other_label, strict=True),
            found.pairs.observed,
            strict=True,
        )
    )
    assert seen == {
        (0, 1): 0.5,
        (1, 0): 0.5,
    }  # water stands with neither label once the matched points are out
    assert found.links == 2 * (1.0 + 0.5)  # and yet it is a true link that no graph can recall


def items(points, labels, holds, seed):
    """An item-to-item set: label j's text is a point's; `holds` is how far its targets follow P(. | Y_j)."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, labels // 8, size=labels)
    rows, texts = [], []
    for s in range(points):
        j = s % labels if s < labels else int(rng.integers(labels))
        known = s < labels
        here = topic[j] if not known or rng.random() < holds else rng.integers(0, labels // 8)
        row = (topic == here) & (rng.random(labels) < 0.5)
        rows.append(row & (np.arange(labels) != j) if known else row)
        texts.append(f"item {j}" if known else f"query {s}")
    return Dataset(csr_array(np.array(rows, dtype=np.float32)), texts, [f"item {j}" for j in range(labels)])


def test_calibrated_finds_the_true_probability_and_ratio_does_not():
    points = items(2000, 240, holds=0.4, seed=0)
    pairs = match_labels(points).pairs
    fitted = fit_calibrated(pairs).score(pairs.joint, pairs.given, pairs.other)
    assert fitted.mean() == pytest.approx(pairs.observed.mean(), abs=0.01)
    assert log_loss(fitted, pairs.observed) < log_loss(pairs.joint / pairs.given, pairs.observed)


def test_the_calibrated_graph_leaves_each_labels_own_points_out():
    """Rows of matched labels are what the fit says of counts without their points; others use all points."""
    points = items(900, 120, holds=0.5, seed=4)
    strange = [text if j % 3 else f"never seen {j}" for j, text in enumerate(points.label_texts)]
    points = Dataset(points.targets, points.texts, strange)
    found = match_labels(points)
    estimate = fit_calibrated(found.pairs)
    graph = label_graph(points, GraphOptions("calibrated", delta=0.05)).matrix.toarray()
    y = points.targets.toarray().astype(float)
    for j in range(120):
        rest = y[[text != strange[j] for text in points.texts]]
        joint, single = rest.T @ rest[:, j], rest.sum(axis=0)
        together = (joint > 0) & (np.arange(120) != j)
        expected = np.zeros(120)
        expected[together] = estimate.score(
            joint[together], np.full(together.sum(), single[j]), single[together]
        )
        expected[expected <= 0.05] = 0.0
        expected[j] = 1.0
        np.testing.assert_allclose(graph[j], expected, rtol=1e-5)
    assert found.labels == 80


def test_calibrated_scores_stay_probabilities_far_outside_what_was_fitted():
    pairs = match_labels(items(600, 80, holds=0.5, seed=1)).pairs
    estimate = fit_calibrated(pairs)
    joint = np.array([1.0, 1.0, 1e5, 1e-3, 5e5])
    score = estimate.score(joint, np.array([1.0, 1e6, 1e5, 1.0, 1e6]), np.array([1e6, 1.0, 1e6, 1.0, 5e5]))
    assert np.isfinite(score).all() and (score >= 0).all() and (score <= 1).all()


@pytest.mark.parametrize(
    ("holds", "words"), [(1.0, "So the postulate holds on this data"), (0.1, "does not hold")]
)
def test_the_verdict_follows_the_data(holds, words):
    found = diagnose(items(3000, 160, holds, seed=2))
    assert words in found.verdict
    assert found.matched_labels == 160
    if holds < 1:
        assert found.recommended == "calibrated"


def test_without_matching_texts_the_verdict_says_so_and_shrunk_is_used():
    points = items(600, 80, holds=1.0, seed=3)
    strangers = Dataset(points.targets, points.texts, [f"advert {j}" for j in range(80)])
    found = diagnose(strangers)
    assert found.recommended == "shrunk"
    assert "cannot be observed" in found.verdict
    graph = label_graph(strangers, GraphOptions("calibrated"))
    assert graph.estimate == "shrunk"
    assert "no label text is also a training text" in str(graph.details["fallback"])
    assert graph.details["strength"] == found.strength


def alone(points=120, labels=12):
    """Each point has one label, so no two labels stand together."""
    y = np.zeros((points, labels), dtype=np.float32)
    y[np.arange(points), np.arange(points) % labels] = 1
    names = [f"text {s} of {s % labels}" for s in range(points)]
    return Dataset(csr_array(y), names, [f"label {j}" for j in range(labels)])


def test_labels_that_never_stand_together_get_self_targets():
    found = diagnose(alone())
    assert found.recommended == "self" and found.verdict.endswith("Use self targets.")
    assert "No two labels stand on one point" in found.verdict
    assert "shrunk" not in found.verdict and "0.00" not in found.verdict
    assert recommended_targets(PointsInMemory(alone()))[0] == "self"


@given(targets(max_points=8, max_labels=5, graded=True))
def test_company_is_what_nested_loops_count(matrix):
    y = matrix.toarray().astype(float)
    strength, delta = 0.7, 0.2
    found = summarise_cooccurrence(Dataset(matrix), Shrunk(strength), delta)
    used = [j for j in range(y.shape[1]) if y[:, j].any()]
    pairs = [(j, i) for j in used for i in used if i != j and ((y[:, i] > 0) & (y[:, j] > 0)).any()]
    joint = {(j, i): float(y[:, i] @ y[:, j]) for j, i in pairs}
    again = [((y[:, i] > 0) & (y[:, j] > 0)).sum() > 1 for j, i in pairs]
    kept = {a: sum(joint[j, i] / (y[:, j].sum() + a) > delta for j, i in pairs) for a in (0.0, strength)}
    assert (found.labels, found.with_others) == (len(used), len({j for j, _ in pairs}))
    number = max(len(used), 1)
    assert found.others == pytest.approx(len(pairs) / number)
    assert found.again == pytest.approx(np.mean(again) if again else 0.0)
    near = any(abs(joint[j, i] / (y[:, j].sum() + a) - delta) < 1e-6 for j, i in pairs for a in kept)
    if not near:  # float32 and float64 may differ at the threshold
        assert (found.ratio, found.shrunk) == pytest.approx((kept[0.0] / number, kept[strength] / number))


@pytest.mark.parametrize("holds", [1.0, 0.1])
def test_what_augment_uses_is_what_the_diagnosis_recommends(holds):
    points = items(1500, 120, holds, seed=5)
    strangers = Dataset(points.targets, points.texts, [f"advert {j}" for j in range(120)])
    for each in (points, strangers):
        assert recommended_targets(PointsInMemory(each))[0] == diagnose(each).recommended


def test_a_small_share_is_never_told_as_nought():
    assert [_rounded(share) for share in (0.43, 0.1, 0.034, 0.0004)] == ["0.43", "0.10", "0.03", "0.0004"]


def test_reliability_bins_are_open_below_and_closed_above():
    score = np.array([0.0, 0.1, 0.1000001, 0.3, 1.0])
    rows = reliability(score, np.array([0.0, 1.0, 0.0, 1.0, 1.0]))
    assert [(round(r.low, 1), round(r.high, 1), r.pairs) for r in rows] == [
        (0.0, 0.1, 2),
        (0.1, 0.2, 1),
        (0.2, 0.3, 1),
        (0.9, 1.0, 1),
    ]
    assert sum(r.observed * r.pairs for r in rows) == pytest.approx(3.0)


def test_graded_pairs_seen_on_own_points_alone_leave_no_rest():
    """What float32 rounds away must not pass for a pair that stands together somewhere else."""
    rng = np.random.default_rng(0)
    points, labels = 40, 6
    matrix = csr_array(rng.uniform(0.1, 1, (points, labels)).astype(np.float32))
    found = match_labels(Dataset(matrix, ["of a"] * points, ["of a", *"bcdef"]))
    assert found.labels == 1 and len(found.pairs) == 0
