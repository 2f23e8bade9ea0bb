"""Every figure of the diagnosis by nested loops over points and labels, and how its folds are drawn."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.graph.estimates import calibrated
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.graph.matched_pairs import match_labels
from gandalf.graph.postulate import diagnose

LABELS, MATCHED = 66, 60  # labels 0 and 1 share a text: 59 texts are matched


def observed_set(seed=0):
    """Labels 0 to 59 have the text of points, some of two points; six labels have a text of their own."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(8, size=LABELS)
    label_texts = [f"item {j}" if j < MATCHED else f"stranger {j}" for j in range(LABELS)]
    label_texts[1] = "ITEM 0"
    rows, texts = [], []
    for s in range(260):
        own = s if s < MATCHED else s - MATCHED if s < MATCHED + 10 else None
        here = topic[own] if own is not None and rng.random() < 0.6 else rng.integers(8)
        rows.append(((topic == here) & (rng.random(LABELS) < 0.4)) | (rng.random(LABELS) < 0.01))
        texts.append(f"query {s}" if own is None else f"item {own} ")
    return Dataset(csr_array(np.array(rows, dtype=np.float32)), texts, label_texts)


def loop_pairs(points):
    """(joint, given, observed) of every pair of a matched label j with i, j's matched points left out.

    Pairs that do not occur elsewhere are among them, with a joint count of 0: they are links all the same.
    """
    y = points.targets.toarray().astype(float)
    key = [text.strip().lower() for text in points.texts]
    out = []
    for j, text in enumerate(points.label_texts):
        mine = [s for s in range(len(y)) if key[s] == text.strip().lower()]
        rest = [s for s in range(len(y)) if s not in mine]
        for i in range(LABELS) if mine else ():
            if i != j:
                joint = sum(y[s, i] for s in rest if y[s, j])
                observed = sum(y[s, i] for s in mine) / len(mine)
                out.append((joint, sum(y[s, j] for s in rest), observed))
    return out


@pytest.fixture(scope="module")
def points():
    return observed_set()


@pytest.fixture(scope="module")
def looped(points):
    return loop_pairs(points)


@pytest.mark.parametrize("delta", [0.1, 0.3])
def test_every_figure_is_what_the_loops_say(points, looped, delta):
    found = diagnose(points, delta=delta)
    together = [pair for pair in looped if pair[0] > 0]
    links = sum(observed for _, _, observed in looped)
    reached = sum(observed for _, _, observed in together)
    assert (found.labels, found.matched_labels, found.matched_texts) == (66, 60, 59)
    assert (found.texts_of_several_points, found.labels_that_share_a_text) == (9, 2)  # nobody has "item 1"
    assert found.pairs == len(together)
    assert found.mean_observed == pytest.approx(reached / len(together))
    assert found.reachable == pytest.approx(reached / links)
    assert 0.5 < found.reachable < 0.99
    strengths = {"ratio": 0.0, "shrunk": found.strength, "self": math.inf}
    by_name = {quality.name: quality for quality in found.estimates}
    for name, strength in strengths.items():
        scored = [(joint / (given + strength), observed) for joint, given, observed in together]
        quality, number = by_name[name], len(scored)
        recalled = sum(observed for score, observed in scored if score > delta)
        clipped = [(min(max(score, 0.001), 0.999), observed) for score, observed in scored]
        assert quality.recall == pytest.approx(recalled / links)
        assert quality.kept == pytest.approx(sum(score > delta for score, _ in scored) / number)
        assert quality.mean_estimate == pytest.approx(sum(score for score, _ in scored) / number)
        assert quality.squared_error == pytest.approx(sum((p - o) ** 2 for p, o in scored) / number)
        loss = -sum(o * math.log(p) + (1 - o) * math.log(1 - p) for p, o in clipped) / number
        assert quality.log_loss == pytest.approx(loss)
        assert quality.recall <= found.reachable
    assert 0 < by_name["ratio"].recall < found.reachable


class Spy:
    """Stands in for the fit: notes the pairs it was given and scores everything by the number of the fit."""

    def __init__(self):
        self.given = []

    def fit(self, pairs):
        number = len(self.given)
        self.given.append(set(zip(pairs.given_label.tolist(), pairs.other_label.tolist(), strict=True)))

        class Constant:
            def score(self, joint, given, other):
                return np.full(len(joint), number / 10 + 0.05)

        return Constant()

    def folds(self, points):
        """Fold of each pair: the number of the one fit that it had no part in."""
        pairs = match_labels(points).pairs
        every = list(zip(pairs.given_label.tolist(), pairs.other_label.tolist(), strict=True))
        absent = {pair: [at for at, seen in enumerate(self.given) if pair not in seen] for pair in every}
        assert all(len(folds) == 1 for folds in absent.values())
        return {pair: folds[0] for pair, folds in absent.items()}


def spied(monkeypatch, points, seed):
    spy = Spy()
    monkeypatch.setattr(calibrated, "fit_calibrated", spy.fit)
    return spy, diagnose(points, seed=seed)


def test_a_calibrated_score_comes_from_a_fit_that_never_saw_the_text(points, monkeypatch):
    spy, found = spied(monkeypatch, points, seed=0)
    fold_of = spy.folds(points)
    assert len(spy.given) == 5
    by_text = defaultdict(set)
    for (j, _), fold in fold_of.items():
        by_text[points.label_texts[j].lower()].add(fold)
    assert {len(folds) for folds in by_text.values()} == {1}  # labels 0 and 1 among them: they share a text
    texts = [sum(fold in folds for folds in by_text.values()) for fold in range(5)]
    assert max(texts) - min(texts) <= 1
    # And the scores that are judged are those of the fit that left the pair out.
    (calibrated,) = (quality for quality in found.estimates if quality.name == "calibrated")
    scored = {round(row.estimate * 10 - 0.5): row.pairs for row in calibrated.reliability}
    assert scored == {fold: sum(at == fold for at in fold_of.values()) for fold in range(5)}
    observed = {fold: [] for fold in range(5)}
    pairs = match_labels(points).pairs
    for j, i, seen in zip(pairs.given_label, pairs.other_label, pairs.observed, strict=True):
        observed[fold_of[j, i]].append(seen)
    for row in calibrated.reliability:
        assert row.observed == pytest.approx(np.mean(observed[round(row.estimate * 10 - 0.5)]))


def test_the_seed_draws_the_folds(points, monkeypatch):
    one, again, other = (spied(monkeypatch, points, seed)[0].folds(points) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_matched_labels_are_sampled_by_seed_where_there_are_too_many(points):
    few = [match_labels(points, seed=seed, most_pairs=600).pairs.given_label for seed in (1, 1, 2)]
    np.testing.assert_array_equal(few[0], few[1])
    assert set(few[0].tolist()) != set(few[2].tolist())
    assert 0 < len(set(few[0].tolist())) < MATCHED


def barely(texts, pairs):
    """A set with exactly so many matched texts and so many pairs, each from one point that carries both."""
    per_text = -(-pairs // texts)
    labels = texts + per_text
    y = np.zeros((texts + pairs, labels), dtype=np.float32)
    for j in range(texts):
        y[j, texts + j % per_text] = 1  # the point that has label j's text
    for number in range(pairs):
        y[texts + number, [number % texts, texts + number // texts]] = 1
    names = [f"point {s}" for s in range(texts + pairs)]
    return Dataset(csr_array(y), names, names[:texts] + [f"stranger {i}" for i in range(per_text)])


@pytest.mark.parametrize(
    ("texts", "pairs", "used"),
    [(50, 500, "calibrated"), (49, 500, "shrunk"), (49, 3000, "shrunk"), (50, 499, "shrunk")],
)
def test_a_calibration_needs_50_texts_and_500_pairs(texts, pairs, used):
    points = barely(texts, pairs)
    found = diagnose(points)
    assert (found.matched_texts, found.pairs) == (texts, pairs)
    assert bool(found.estimates) == (used == "calibrated")
    graph = label_graph(points, GraphOptions("calibrated"))
    assert graph.estimate == used
    assert ("fallback" in graph.details) == (used == "shrunk")


def test_labels_of_one_text_count_as_one_text_to_calibrate_with():
    points = barely(50, 1000)
    names = list(points.label_texts)
    names[0] = names[1]
    assert label_graph(points, GraphOptions("calibrated")).estimate == "calibrated"
    shared = Dataset(points.targets, points.texts, names)
    assert label_graph(shared, GraphOptions("calibrated")).estimate == "shrunk"
