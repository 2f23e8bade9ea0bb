from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gandalf import DataError, Dataset, GraphOptions, label_graph, load
from gandalf.data.dataset import binary_pairs
from gandalf.data.holdout import excluded_pairs, hold_out_points
from gandalf.data.matching import known_points, text_key

SETS = ("LF-ManSeeAlso-9K", "LF-WebSeeAlsoTitles-6K", "LF-DocsSeeAlsoTitles-79K", "LF-WordNetRelated-64K")


def item_set(seed):
    """Few items under few names, so that everything meets; features hold each point's row number."""
    rng = np.random.default_rng(seed)
    points, labels = int(rng.integers(2, 11)), int(rng.integers(2, 6))

    def several(values, size):
        return rng.choice(values, size).tolist() if rng.random() < 0.9 else None

    made = Dataset(
        csr_array(rng.choice([0, 0, 1, 0.25], (points, labels)).astype(np.float32)),
        texts=several(["a", " A", "b", "c", "d", ""], points),
        label_texts=several(["a", "b  ", "C", "d", ""], labels),
        ids=several(list("ABCDE"), points),
        label_ids=several(list("ABCDEa"), labels),
        features=csr_array(np.arange(1, points + 1, dtype=np.float32)[:, np.newaxis]),
    )
    by = rng.choice(["none", "ids", "texts", "other"])
    if by == "none":
        return made
    every = [(p, a) for p in range(points) for a in range(labels)]
    own = [pair for pair in every if by == "other" or same_item(made, by, *pair)]
    # Not all of them, and some that are no item's own: what the filter is must be told by the majority.
    pairs = set(own[rng.integers(0, 2) :])
    pairs |= {every[at] for at in rng.integers(len(every), size=rng.integers(0, 3))}
    rows, columns = zip(*sorted(pairs), strict=True) if pairs else ((), ())
    return replace(made, exclude=binary_pairs(rows, columns, made.targets.shape))


item_sets = st.integers(0, 2**32).map(item_set)


def same_item(points, by, p, a):
    if by == "ids":
        return (
            points.ids is not None and points.label_ids is not None and points.ids[p] == points.label_ids[a]
        )
    if points.texts is None or points.label_texts is None:
        return False
    return text_key(points.texts[p]) == text_key(points.label_texts[a]) != ""


def pairs_of(matrix):
    return set() if matrix is None else set(zip(*(x.tolist() for x in matrix.nonzero()), strict=True))


def rows_of(points):
    return (points.features.toarray().ravel().astype(int) - 1).tolist()


def protocol(points):
    """ids, texts or None: by which more than half of the filter's pairs are an item's own label."""
    filtered = pairs_of(points.exclude)
    for by in ("ids", "texts"):
        if 2 * sum(same_item(points, by, p, a) for p, a in filtered) > len(filtered):
            return by
    return None


def not_asked(points, rest, held):
    """The pairs of held points that a test would not ask, by nested loops."""
    by, carried, labels = protocol(points), pairs_of(points.targets), range(points.num_labels)
    found = {(p, a) for p, a in pairs_of(points.exclude) if p in held}
    for p in held:
        for a in labels:
            if (p, a) in carried and not any((r, a) in carried for r in rest):
                found.add((p, a))
            if by is None:
                continue
            if same_item(points, by, p, a):
                found.add((p, a))
            for r in rest:
                if same_item(points, by, r, a) and any(
                    (r, b) in carried and same_item(points, by, p, b) for b in labels
                ):
                    found.add((p, a))
    return found


@settings(max_examples=300)
@given(item_sets, st.integers(0, 5), st.sampled_from([0.1, 0.3, 0.6]))
def test_a_holdout_asks_what_nested_loops_would_ask(points, seed, share):
    try:
        cut = hold_out_points(points, share, seed)
    except DataError:
        return
    rest, rows = rows_of(cut.rest), cut.rows.tolist()
    taken = sorted(set(range(len(points))) - set(rest))
    assert rest == sorted(rest)
    assert cut.rest == points[rest]  # labels, filter and all
    excluded = not_asked(points, rest, taken)
    asked = {(p, a) for p, a in pairs_of(points.targets) if p in taken} - excluded
    assert rows == sorted({p for p, _ in asked})  # points with nothing left to ask are dropped
    assert rows_of(cut.held) == rows
    assert {(rows[p], a) for p, a in pairs_of(cut.held.targets)} == asked
    assert {(rows[p], a) for p, a in pairs_of(cut.held.exclude)} == {(p, a) for p, a in excluded if p in rows}
    for p, a in pairs_of(cut.held.targets):  # graded targets keep their value
        assert cut.held.targets[p, a] == points.targets[rows[p], a]
    for field in ("texts", "ids"):
        of_all, of_held = getattr(points, field), getattr(cut.held, field)
        assert of_held == (None if of_all is None else [of_all[row] for row in rows])
    assert cut.held.label_texts == points.label_texts


@given(item_sets, st.integers(0, 5), st.sampled_from([0.1, 0.3, 0.6]), st.none() | st.integers(1, 3))
def test_no_text_is_torn_apart_and_no_more_is_held_than_asked_for(points, seed, share, at_most):
    try:
        cut = hold_out_points(points, share, seed, at_most=at_most)
    except DataError:
        return
    taken = len(points) - len(cut.rest)
    assert 1 <= taken <= max(1, round(share * len(points)))
    assert at_most is None or taken <= at_most
    if points.texts is not None:
        keys = [text_key(points.texts[row]) for row in set(range(len(points))) - set(rows_of(cut.rest))]
        assert not {key for key in keys if key} & {text_key(text) for text in cut.rest.texts}


def test_a_share_is_a_share():
    points = load("man").train
    for share, at_most, taken in ((0.1, None, 960), (0.1, 500, 500), (0.5, 2000, 2000)):
        assert len(points) - len(hold_out_points(points, share, 0, at_most=at_most).rest) == taken


def test_the_seed_decides_and_nothing_else():
    points = load("man").train
    first, again, other = (hold_out_points(points, 0.1, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.rows, again.rows)
    assert first.held == again.held
    assert first.rest == again.rest
    # Two draws of a tenth have a tenth of it in common.
    assert len(np.intersect1d(first.rows, other.rows)) < 0.2 * len(first.rows)


@pytest.mark.parametrize("estimate", ["ratio", "shrunk", "calibrated", "walk"])
def test_held_labels_cannot_reach_training(estimate):
    points = load("man").train
    rest = hold_out_points(replace(points, ids=[str(row) for row in range(len(points))]), 0.2, 0).rest
    taken = np.setdiff1d(np.arange(len(points)), np.array([int(name) for name in rest.ids]))
    mixed = np.arange(len(points))
    mixed[taken] = np.roll(taken, 1)
    changed = replace(points, targets=points.targets[mixed])
    assert abs(changed.targets - points.targets).nnz > len(taken)
    before, after = hold_out_points(points, 0.2, 0), hold_out_points(changed, 0.2, 0)
    assert before.held != after.held
    assert before.rest == after.rest
    graphs = [label_graph(cut.rest, GraphOptions(estimate)).matrix for cut in (before, after)]
    for part in ("data", "indices", "indptr"):
        first, second = (getattr(graph, part) for graph in graphs)
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("name", SETS)
def test_the_filter_of_a_real_test_split_is_made_again(shared_data, name):
    """What is excluded from held points is, pair by pair, what these sets exclude from their test points."""
    splits = load(shared_data / name)
    together = splits.train + replace(splits.test, exclude=None)
    of_test = np.arange(len(together)) >= len(splits.train)
    assert pairs_of(excluded_pairs(together, of_test)) == pairs_of(splits.test.exclude)


@pytest.mark.parametrize("name", SETS)
def test_held_points_look_like_test_points(shared_data, name):
    splits = load(shared_data / name)
    cut = hold_out_points(splits.train, 0.1, 0)
    looks = [
        (known_points(points).mean(), points.targets.nnz / len(points), np.mean(rare[points.targets.indices]))
        for points, rare in (
            (splits.test, splits.train.label_frequencies <= 5),
            (cut.held, cut.rest.label_frequencies <= 5),
        )
    ]
    (known, labels, tail), (held_known, held_labels, held_tail) = looks
    assert held_known == pytest.approx(known, abs=0.03)
    # As they stand, training points have 1.2 to 1.6 times as many labels.
    assert held_labels == pytest.approx(labels, rel=0.05)
    assert held_tail == pytest.approx(tail, abs=0.07)


def test_features_alone_are_enough():
    matrix = csr_array(np.ones((20, 3), dtype=np.float32))
    cut = hold_out_points(Dataset(matrix, features=matrix), 0.25, 0)
    assert (len(cut.rest), len(cut.held)) == (15, 5)
    assert cut.held.exclude is None


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(DataError, match="must lie between 0 and 1"):
        hold_out_points(load("man").train, share, 0)


def test_at_most_nothing_is_refused():
    with pytest.raises(DataError, match="at least 1"):
        hold_out_points(load("man").train, 0.1, 0, at_most=0)


@pytest.mark.parametrize("texts", [["one"], ["same", "Same", " same"]])
def test_points_that_cannot_be_parted_are_refused(texts):
    matrix = csr_array(np.ones((len(texts), 2), dtype=np.float32))
    with pytest.raises(DataError, match="no validation share can be cut"):
        hold_out_points(Dataset(matrix, texts), 0.5, 0)


def test_a_share_with_nothing_to_ask_is_refused():
    with pytest.raises(DataError, match="hold out a larger share"):
        hold_out_points(Dataset(csr_array(np.eye(4, dtype=np.float32))), 0.5, 0)
