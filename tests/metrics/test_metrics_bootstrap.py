"""The paired bootstrap: sums weighted by how often a point is drawn, seeded, and right about what is real."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import gandalf.metrics.bootstrap as bootstrap_module
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import evaluate

POINTS, LABELS = 120, 30


def make_splits(texts=True):
    rng = np.random.default_rng(0)
    truth = csr_array((rng.random((POINTS, LABELS)) < 0.1).astype(np.float32))
    train = csr_array((rng.random((200, LABELS)) < np.linspace(0.01, 0.4, LABELS)).astype(np.float32))
    names = [f"label {i}" for i in range(LABELS)]
    point_texts = [names[i] if i < LABELS else f"new {i}" for i in range(POINTS)]
    test = Dataset(truth, texts=point_texts if texts else None, label_texts=names if texts else None)
    return Splits(Dataset(train), test)


def noisy(splits, noise, seed):
    """Predictions that know the truth as well as the noise lets them."""
    rng = np.random.default_rng(seed)
    scores = splits.test.targets.toarray() + noise * rng.random((POINTS, LABELS))
    return csr_array(scores.astype(np.float64))


@pytest.fixture(scope="module")
def splits():
    return make_splits()


@pytest.fixture(scope="module")
def good(splits):
    return evaluate(noisy(splits, 1.5, 1), splits)


@pytest.fixture(scope="module")
def poor(splits):
    return evaluate(noisy(splits, 30.0, 2), splits)


def test_identical_predictions_differ_by_nothing(good):
    found = compare(good, good)
    for part in (found.every, found.label_text, found.new_text):
        assert {(d.difference, d.low, d.high, d.p, d.real) for d in part.values()} == {(0, 0, 0, 1, False)}


def test_a_clearly_better_set_is_really_better_in_either_order(good, poor):
    forth, back = compare(good, poor), compare(poor, good)
    for name in ("P@1", "nDCG@3", "PSP@5", "PSnDCG@5", "R@5", "MRR"):
        assert forth[name].difference == pytest.approx(good[name] - poor[name])
        assert forth[name].real and forth[name].low > 0 and forth[name].p < 0.01
        assert back[name].real and back[name].high < 0
        assert (back[name].low, back[name].high) == pytest.approx((-forth[name].high, -forth[name].low))


def test_two_draws_of_the_same_noise_are_not_told_apart(splits):
    one, two = (evaluate(noisy(splits, 3.0, seed), splits) for seed in (5, 6))
    found = compare(one, two)
    assert one["P@5"] != two["P@5"]  # they do differ
    assert not found["P@5"].real and found["P@5"].p > 0.05


def test_seeded(good, poor):
    assert compare(good, poor, seed=3) == compare(good, poor, seed=3)
    assert compare(good, poor, seed=3) != compare(good, poor, seed=4)


def test_blocks_do_not_show(good, poor, monkeypatch):
    whole = compare(good, poor, resamples=50)
    monkeypatch.setattr(bootstrap_module, "BLOCK_CELLS", 7 * POINTS)
    cut = compare(good, poor, resamples=50)
    for name, difference in whole.every.items():
        assert (cut[name].low, cut[name].high) == pytest.approx((difference.low, difference.high))


def test_every_resample_scores_the_points_it_drew(splits, good, poor):
    """Draw the same points by hand, evaluate them as a data set of their own, take the percentiles."""
    rng, resamples = np.random.default_rng(7), 20
    first, second = noisy(splits, 1.5, 1), noisy(splits, 30.0, 2)
    differences = {"all": [], "label_text": []}
    for _ in range(resamples):
        rows = rng.integers(POINTS, size=POINTS)
        drawn = Splits(splits.train, splits.test[rows])
        one, two = evaluate(first[rows], drawn), evaluate(second[rows], drawn)
        differences["all"].append(one["PSP@3"] - two["PSP@3"])
        differences["label_text"].append(one.label_text.values["MRR"] - two.label_text.values["MRR"])
    found = compare(good, poor, seed=7, resamples=resamples)
    for seen, name in ((found["PSP@3"], "all"), (found.label_text["MRR"], "label_text")):
        assert (seen.low, seen.high) == pytest.approx(tuple(np.percentile(differences[name], [2.5, 97.5])))


def test_p_counts_the_resamples_on_the_other_side_and_the_data_itself(splits, good, poor):
    """p = 2 (1 + c) / (1 + R), at most 1, with c the resamples whose difference is 0 or turns round."""
    resamples, other = 40, evaluate(noisy(splits, 1.5, 8), splits)
    found, clear = (compare(good, scores, seed=7, resamples=resamples) for scores in (other, poor))
    rng = np.random.default_rng(7)
    drawn = []
    for _ in range(resamples):
        rows = rng.integers(POINTS, size=POINTS)
        ours, theirs = (
            evaluate(noisy(splits, 1.5, seed)[rows], Splits(splits.train, splits.test[rows]))
            for seed in (1, 8)
        )
        drawn.append({name: ours[name] - theirs[name] for name in found.every})
    turned = {}
    for name, difference in found.every.items():
        down, up = (sum(sign * one[name] <= 1e-9 for one in drawn) for sign in (1, -1))
        turned[name] = min(down, up)
        assert difference.p == pytest.approx(min(1, 2 * (1 + turned[name]) / (1 + resamples)))
    assert any(0 < c < resamples // 2 - 1 for c in turned.values())
    assert clear["P@5"].p == pytest.approx(2 / (1 + resamples))  # never 0, however clear


def test_without_texts_there_are_no_halves():
    splits = make_splits(texts=False)
    scores = evaluate(noisy(splits, 1.0, 1), splits)
    found = compare(scores, scores)
    assert found.label_text is None and found.as_dict()["new_text"] is None


def test_other_k_is_refused(splits, good):
    with pytest.raises(DataError, match="evaluate both on the same data"):
        compare(good, evaluate(noisy(splits, 1.5, 1), splits, ks=(1,)))
