"""What must hold on real data: perfect and useless predictions, and the filter files' promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from gandalf.data.load import load
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.propensity import inverse_propensities

SETS = ("LF-ManSeeAlso-9K", "LF-WebSeeAlsoTitles-6K", "LF-WordNetRelated-64K", "LF-DocsSeeAlsoTitles-79K")


@pytest.fixture(scope="module", params=["man", *SETS])
def splits(request):
    if request.param == "man":
        return load("man")
    folder = request.getfixturevalue("shared_data") / request.param
    if not folder.is_dir():
        pytest.skip(f"{request.param} is not among the larger data sets here")
    return load(folder)


def test_the_truth_scores_as_high_as_can_be(splits):
    """Rarest label first. The filter files promise to hold no true pair, so filtering changes nothing."""
    truth = splits.test.targets.astype(np.float64)
    weights = inverse_propensities(splits.train.label_frequencies, len(splits.train))
    truth.data = weights[truth.indices]
    sizes = np.diff(truth.indptr)
    scores = evaluate(truth, splits, ks=(1, 3, int(sizes.max())))
    for k in scores.ks:
        assert scores[f"P@{k}"] == pytest.approx(100 * np.minimum(sizes, k).mean() / k)
        assert scores[f"R@{k}"] == pytest.approx(100 * (np.minimum(sizes, k) / np.maximum(sizes, 1)).mean())
        assert scores[f"nDCG@{k}"] == pytest.approx(100 * (sizes > 0).mean())
        assert scores[f"PSP@{k}"] == pytest.approx(100)
        assert scores[f"PSnDCG@{k}"] == pytest.approx(100)
    assert scores[f"C@{scores.ks[-1]}"] == pytest.approx(100)
    assert scores.filtered == scores.unfiltered
    assert scores.label_text.points + scores.new_text.points == len(splits.test)


def test_predicting_what_is_filtered_scores_nothing(splits):
    scores = evaluate(csr_array(splits.test.exclude.astype(np.float32)), splits)
    assert set(scores.filtered.values.values()) == {0.0}


def test_frequent_labels_for_everyone_only_feed_the_head(splits):
    frequencies = splits.train.label_frequencies
    top = np.argsort(-frequencies, kind="stable")[:20]
    ids = np.tile(top, (len(splits.test), 1))
    scores = evaluate((ids, np.tile(frequencies[top], (len(ids), 1)).astype(np.float64)), splits)
    head, *rest = scores.bins
    assert head.contribution == pytest.approx(scores["P@5"]) and scores["P@5"] > 0
    assert {each.contribution for each in rest} == {0.0}
    assert scores["PSP@5"] < scores["P@5"]  # a hit on the head weighs little
