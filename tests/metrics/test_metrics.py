"""Every metric against nested loops, on small cases with every odd shape: ties, empty rows, all filtered."""

from __future__ import annotations

import math
from dataclasses import replace

import metric_loops as loops
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from strategies import targets

import gandalf.metrics.topk as topk_module
from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.data.origin import Origin
from gandalf.data.stats import BINS, label_bins
from gandalf.errors import DataError
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.predictions import as_predictions
from gandalf.metrics.ranking import rank, weigh_hits
from gandalf.metrics.topk import find_pairs, top_k

NOTHING = None
# Few distinct scores, so that ties are the rule; -inf is no prediction, 0 and negative scores are.
SCORES = st.sampled_from([NOTHING, NOTHING, -math.inf, -1.0, 0.0, 0.5, 1.0, 2.0, math.inf])


@st.composite
def problems(draw):
    """A data set with texts and filter, and scores for its test points as one dict a point."""
    test = draw(targets(graded=True))
    points, labels = test.shape
    train_rows = draw(st.lists(st.sets(st.integers(0, labels - 1)), min_size=3, max_size=9))
    pair = st.tuples(st.integers(0, points - 1), st.integers(0, labels - 1))
    excluded = draw(st.none() | st.just("all") | st.lists(pair, max_size=points * labels))
    if excluded == "all":
        excluded = [(row, label) for row in range(points) for label in range(labels)]
    scores = draw(
        st.lists(st.lists(SCORES, min_size=labels, max_size=labels), min_size=points, max_size=points)
    )
    scores = [{label: s for label, s in enumerate(row) if s is not NOTHING} for row in scores]
    texts = draw(
        st.lists(st.sampled_from(["label 0", " LABEL  1", "new", ""]), min_size=points, max_size=points)
    )
    splits = Splits(
        train=Dataset(sparse([{label: 1.0 for label in row} for row in train_rows], labels)),
        test=Dataset(
            test,
            texts=texts,
            label_texts=[f"label {label}" for label in range(labels)],
            exclude=None if excluded is None else binary_pairs(*np.reshape(excluded, (-1, 2)).T, test.shape),
        ),
    )
    return splits, scores


def sparse(rows, columns):
    indptr = np.cumsum([0] + [len(row) for row in rows])
    indices = [label for row in rows for label in sorted(row)]
    data = [row[label] for row in rows for label in sorted(row)]
    return csr_array(
        (np.asarray(data, dtype=np.float64), np.asarray(indices, dtype=np.int64), indptr),
        shape=(len(rows), columns),
    )


def rows_of(matrix):
    return [set(matrix.indices[a:b].tolist()) for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]


def expected(splits, scores, ks, *, filtered=True, keep=None, A=0.55, B=1.5):
    test = splits.test
    truth = rows_of(test.targets)
    exclude = rows_of(test.exclude) if filtered and test.exclude is not None else [set()] * len(test)
    rankings = [loops.ranked(row, out) for row, out in zip(scores, exclude, strict=True)]
    chosen = range(len(test)) if keep is None else [row for row in range(len(test)) if keep[row]]
    weights = [
        loops.inverse_propensity(frequency, len(splits.train), A, B)
        for frequency in np.count_nonzero(splits.train.targets.toarray(), axis=0)
    ]
    return loops.everything([rankings[i] for i in chosen], [truth[i] for i in chosen], ks, weights)


@given(problems(), st.sampled_from([(1, 3, 5), (2,), (1, 9), (3, 10**9)]))
def test_every_figure_equals_the_nested_loops(problem, ks):
    splits, scores = problem
    found = evaluate(sparse(scores, splits.test.num_labels), splits, ks=ks)
    known = [" ".join(text.lower().split()) in splits.test.label_texts for text in splits.test.texts]
    assert found.filtered.values == pytest.approx(expected(splits, scores, ks))
    assert found.unfiltered.values == pytest.approx(expected(splits, scores, ks, filtered=False))
    for part, keep in ((found.label_text, known), (found.new_text, [not k for k in known])):
        assert part.points == sum(keep)
        assert part.values == (pytest.approx(expected(splits, scores, ks, keep=keep)) if any(keep) else {})


@given(problems(), st.integers(1, 8), st.sampled_from([1, 4, 1 << 20]))
def test_top_k_filters_first_and_gives_ties_to_the_smaller_label(problem, k, cells):
    splits, scores = problem
    candidates = as_predictions(sparse(scores, splits.test.num_labels), splits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topk_module, "BLOCK_CELLS", cells)  # the cut into blocks must not show
        ids, values = top_k(candidates, k, splits.test.exclude)
    out = [set()] * len(scores) if splits.test.exclude is None else rows_of(splits.test.exclude)
    for row, excluded in enumerate(out):
        best = loops.ranked(scores[row], excluded)[:k]
        assert ids[row].tolist() == best + [-1] * (k - len(best))
        assert values[row].tolist() == [scores[row][label] for label in best] + [-math.inf] * (k - len(best))


@given(targets(), st.data())
def test_find_pairs_is_membership(matrix, data):
    points, labels = matrix.shape
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, points - 1), st.integers(-1, labels - 1)), min_size=1)
    )
    rows, columns = np.asarray(pairs).T
    stored = [(row, label) for row, there in enumerate(rows_of(matrix)) for label in sorted(there)]
    want = [stored.index(pair) if pair in stored else -1 for pair in pairs]
    assert find_pairs(matrix, rows, columns).tolist() == want


@given(problems(), st.integers(1, 12) | st.just(10**9))
def test_places_that_no_point_fills_take_no_memory(problem, k):
    """The longest list of candidates bounds the ranking, the longest list of true labels the ideal one."""
    splits, scores = problem
    candidates, truth = as_predictions(sparse(scores, splits.test.num_labels), splits), splits.test.targets
    ranking = rank(candidates, truth, k)
    longest = max(sum(score > -math.inf for score in row.values()) for row in scores)
    assert ranking.ids.shape == ranking.hits.shape == (len(scores), min(k, longest))
    judged = weigh_hits(ranking, truth, np.ones(truth.shape[1]), k)
    assert judged.best.shape == (len(scores), min(k, max(map(len, rows_of(truth)))))


def small_splits(exclude=None, **more):
    truth = csr_array(np.asarray([[0, 1, 0, 0], [1, 0, 1, 0]], dtype=np.float32))
    train = csr_array(np.ones((5, 4), dtype=np.float32))
    return Splits(Dataset(train), Dataset(truth, exclude=exclude, **more))


def test_filter_before_top_k_differs_from_filter_after():
    splits = small_splits(exclude=binary_pairs([0], [0], (2, 4)))
    candidates = csr_array(np.asarray([[0.9, 0.8, 0, 0], [0.7, 0, 0.6, 0]]))
    scores = evaluate(candidates, splits, ks=(1,))
    assert scores["P@1"] == 100.0  # label 1 moves up; filtering afterwards would leave the place empty: 50
    assert scores.unfiltered.values["P@1"] == 50.0


def test_places_without_candidates_are_misses_and_points_without_truth_count():
    splits = small_splits()
    scores = evaluate(csr_array(([1.0], ([0], [1])), shape=(2, 4)), splits)
    assert scores["P@5"] == pytest.approx(100 * (1 / 5) / 2)
    nothing_true = replace(splits, test=Dataset(csr_array((2, 4), dtype=np.float32)))
    scores = evaluate(csr_array(([1.0], ([0], [1])), shape=(2, 4)), nothing_true)
    assert set(scores.filtered.values.values()) == {0.0}


@given(problems())
def test_bins_sum_to_precision_at_5(problem):
    splits, scores = problem
    found = evaluate(sparse(scores, splits.test.num_labels), splits, ks=(5,))
    assert sum(each.contribution for each in found.bins) == pytest.approx(found["P@5"])
    assert sum(found.unfiltered.bins) == pytest.approx(found.unfiltered.values["P@5"])
    assert sum(each.labels for each in found.bins) == splits.test.num_labels
    train = splits.train
    assert sum(each.labels * each.mean_frequency for each in found.bins) == pytest.approx(train.targets.nnz)


def test_bins_are_always_at_5_whatever_k_is_asked():
    splits, candidates = small_splits(), csr_array(np.asarray([[0.9, 0.8, 0, 0], [0.7, 0, 0.6, 0]]))
    at_one, at_five = evaluate(candidates, splits, ks=(1,)), evaluate(candidates, splits)
    assert sum(each.contribution for each in at_one.bins) == pytest.approx(at_five["P@5"])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_bins_cut_the_positives_in_equal_shares(frequencies):
    """Label by label, head first: each takes the bin in which its first positive falls."""
    total, before, want = sum(frequencies), 0, {}
    for label in sorted(range(len(frequencies)), key=lambda label: (-frequencies[label], label)):
        want[label] = math.floor(BINS * before / total) if frequencies[label] else BINS - 1
        before += frequencies[label]
    found = label_bins(np.asarray(frequencies)).tolist()
    assert found == [want[label] for label in range(len(frequencies))]


def test_constants_reach_the_scores_and_can_be_overruled():
    candidates = csr_array(np.asarray([[0.9, 0.8, 0, 0], [0.7, 0, 0, 0]]))
    uneven = np.asarray([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32)
    splits = Splits(Dataset(csr_array(uneven)), small_splits().test, name="LF-Amazon-131K")
    by_name, given_ = evaluate(candidates, splits), evaluate(candidates, splits, A=0.5, B=0.4)
    assert by_name.as_dict()["propensity"] == {"A": 0.6, "B": 2.6, "from": "name"}
    assert given_.as_dict()["propensity"] == {"A": 0.5, "B": 0.4, "from": "given"}
    scores = [{0: 0.9, 1: 0.8}, {0: 0.7}]
    assert by_name["PSP@1"] == pytest.approx(expected(splits, scores, (1,), A=0.6, B=2.6)["PSP@1"])
    assert given_["PSP@1"] == pytest.approx(expected(splits, scores, (1,), A=0.5, B=0.4)["PSP@1"])
    assert by_name["PSP@1"] != given_["PSP@1"]


def test_an_augmented_set_is_scored_with_the_frequencies_of_the_original():
    uneven = np.asarray([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32)
    plain = Splits(Dataset(csr_array(uneven)), small_splits().test)
    label_points = Dataset(csr_array(np.eye(4, dtype=np.float32)))
    forgetful = replace(plain, train=plain.train + label_points)
    augmented = replace(forgetful, origin=Origin("plain", len(plain.train), plain.train.label_frequencies))
    candidates = csr_array(np.asarray([[0.9, 0.8, 0, 0], [0.7, 0, 0, 0]]))
    want = evaluate(candidates, plain).as_dict()
    assert evaluate(candidates, augmented).as_dict() == want
    assert evaluate(candidates, forgetful).as_dict() != want


@pytest.mark.parametrize("ks", [[1.5], [1, 3.0], ["5"], [True], [None]])
def test_k_that_is_no_integer_is_refused(ks):
    with pytest.raises(DataError, match="k must be an integer, not "):
        evaluate(csr_array((2, 4)), small_splits(), ks=ks)


def test_k_is_any_sequence_of_integers_and_has_an_upper_bound():
    assert evaluate(csr_array((2, 4)), small_splits(), ks=np.asarray([3, 1, 3])).ks == (1, 3)
    with pytest.raises(DataError, match="k must be at most 2,147,483,647"):
        evaluate(csr_array((2, 4)), small_splits(), ks=[10**400])


@pytest.mark.parametrize("ks", [(), (0,), (3, -1)])
def test_k_below_1_is_refused(ks):
    with pytest.raises(DataError, match="k must be at least 1"):
        evaluate(csr_array((2, 4)), small_splits(), ks=ks)


def test_as_dict_has_the_filtered_figures_on_top():
    splits = small_splits(exclude=binary_pairs([0], [0], (2, 4)), texts=["a", "b"], label_texts=list("abcd"))
    found = evaluate(csr_array(np.asarray([[0.9, 0.8, 0, 0], [0.7, 0, 0.6, 0]])), splits).as_dict()
    names = {f"{m}@{k}" for m in ("P", "nDCG", "PSP", "PSnDCG", "R", "C", "macroP") for k in (1, 3, 5)} | {
        "MRR"
    }
    others = {"points", "labels", "most_labels", "bins", "unfiltered", "label_text", "new_text", "propensity"}
    assert set(found) == names | others
    assert found["P@1"] == 100.0 and found["unfiltered"]["P@1"] == 50.0
    assert found["propensity"] == {"A": 0.55, "B": 1.5, "from": "default"}
    assert set(found["unfiltered"]) == names | {"points", "bins"}
    assert found["label_text"]["points"] == 2 and found["new_text"] == {"points": 0, "bins": []}
