"""By which points `--targets auto` chooses, that nothing of them leaks, and where nothing can be told."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from made_up_choice import answered, asked, best_of, faked, hasten, made_up, topics
from scipy.sparse import csr_array

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import compare
from gandalf.runs import choose as auto
from gandalf.runs import prepare
from gandalf.runs.choose import CANDIDATES, DEFAULT, WITH_INTERVAL, choose
from gandalf.runs.prepare import split_holdout
from gandalf.runs.start import train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("texts", ["new", "label", "all"])
def test_the_texts_that_decide(texts, monkeypatch):
    """Candidates that are good at one kind of text each: the winner tells which texts decided."""
    splits = gandalf.synthetic(3000, 400, seed=1, known=0.5).splits

    def scores(trial, recipe, candidate, place):
        known = gandalf.evaluate(trial.test.targets, trial).known
        gains = {"none": 0.3 * ~known, "ratio": 0.3 * known, "self": np.full(len(known), 0.25)}
        return answered(trial, 0.5 + gains.get(candidate.targets, 0.0))

    monkeypatch.setattr(auto, "_score_candidate", scores)
    choice = choose(splits, asked(f"validation.texts={texts}"))
    assert choice.best.targets == {"new": "none", "label": "ratio", "all": "self"}[texts]
    assert choice.texts == texts


def test_all_texts_decide_where_there_are_too_few_of_the_kind(monkeypatch):
    hasten(monkeypatch)
    choice = choose(made_up(), asked("validation.texts=label", "validation.metric=PSP@3"))
    assert choice.texts == "all" and "PSP@3 on all texts" in choice.why
    assert "label_text" not in choice.tried[0].figures  # there are none at all
    assert choice.table["by"] == "PSP@3 on all texts"


def relabelled(points: Dataset, changed: set[str]) -> Dataset:
    """The points of these ids with each label replaced by the next."""
    rows = [(each + (points.ids[row] in changed)) % points.num_labels for row, each in _pairs(points)]
    targets = csr_array((points.targets.data, np.asarray(rows), points.targets.indptr), points.targets.shape)
    targets.sort_indices()
    return replace(points, targets=targets)


def _pairs(points):
    entries = points.targets.tocoo()
    return zip(*entries.coords, strict=True)


def spied(monkeypatch, splits, recipe):
    """The choice, and for each candidate: graph, token table, targets and weights that were trained on."""
    seen = []
    made, fitted, looped = prepare.with_label_points, prepare.fit_tokens, prepare.points_for_loop

    def with_label_points(*given):
        found = made(*given)
        graph = found.graph
        seen.append([] if graph is None else [graph.matrix.toarray(), repr(graph.details)])
        return found

    def fit_tokens(*given):
        found = fitted(*given)
        seen.append([found.idf(), np.asarray(found.size)])
        return found

    def points_for_loop(*given):
        found = looped(*given)
        weights = np.ones(0) if found.weights is None else found.weights
        seen.append([found.tokens, found.targets.toarray(), weights])
        return found

    with monkeypatch.context() as patch:
        for spy in (with_label_points, fit_tokens, points_for_loop):
            patch.setattr(prepare, spy.__name__, spy)
        return choose(splits, recipe), seen


def same(one, other) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(left, right)
        for a, b in zip(one, other, strict=True)
        for left, right in zip(a, b, strict=True)
    )


def test_labels_of_held_points_reach_no_target(monkeypatch):
    hasten(monkeypatch)
    whole, wanted = topics(), asked()
    rest, _ = split_holdout(whole.train, wanted)
    trial = hold_out_points(rest, auto.SHARE, wanted.seed + 1, at_most=auto.AT_MOST).rest
    choice, seen = spied(monkeypatch, whole, wanted)
    own = set(whole.train.ids) - set(rest.ids)  # the run's validation share
    held = set(rest.ids) - set(trial.ids)  # what is chosen by
    assert len(own) > 50 and len(held) > 200 and len(seen) == 3 * len(choice.tried)
    other, after = spied(monkeypatch, replace(whole, train=relabelled(whole.train, own)), wanted)
    assert same(seen, after) and other == choice
    other, after = spied(monkeypatch, replace(whole, train=relabelled(whole.train, held)), wanted)
    five = 3 * len(CANDIDATES)  # what is tried after these may be another
    assert same(seen[:five], after[:five]) and other.tried != choice.tried
    trained_on = set(trial.ids)  # and were they not held, it would show
    _, after = spied(monkeypatch, replace(whole, train=relabelled(whole.train, trained_on)), wanted)
    assert not any(same(seen[at : at + 1], after[at : at + 1]) for at in range(2, five, 3))


def test_the_test_split_has_no_say(monkeypatch):
    hasten(monkeypatch)
    whole, wanted = topics(), asked()
    choice = choose(whole, wanted)
    test = replace(whole.test, targets=whole.test.targets[::-1], texts=whole.test.texts[::-1])
    assert choose(replace(whole, test=test), wanted) == choice == choose(replace(whole, test=None), wanted)


@pytest.mark.parametrize(
    ("splits", "why"),
    [
        (made_up(100, 10), "only 1[0-9] points could be held out to choose by"),
        (made_up(3, 40), "none of the [12] points? held out for validation has a label left to predict"),
        (
            Splits(replace(made_up(100, 10).train, texts=["one text"] * 100)),
            "no validation share .* 100 training points with 1 distinct text",
        ),
    ],
)
def test_where_nothing_can_be_told_the_default_stays(splits, why, monkeypatch):
    tried = faked(monkeypatch, best_of({}))
    choice = choose(splits, asked())
    assert tried == [] and choice.tried == ()
    assert (choice.best, choice.recipe.targets.targets) == (DEFAULT, DEFAULT.targets)
    assert re.fullmatch(f"shrunk targets, by default: {why}", choice.why)


def test_the_run_itself_says_that_it_cannot_validate():
    splits = Splits(replace(made_up(100, 10).train, texts=["one text"] * 100))
    with pytest.raises(DataError, match=r"or train without: gandalf train \.\.\. --validation 0"):
        train(splits, asked())


def test_figures_that_may_decide_are_those_with_an_interval():
    points = made_up().train
    halves = Splits(points[:450], points[450:])
    scores = gandalf.evaluate(halves.test.targets, halves)
    assert set(WITH_INTERVAL) == set(compare(scores, scores).every)


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        ("C@5", "targets cannot be chosen by C@5, which has no interval; choose from P@1, P@3, "),
        ("P@7", "the setting 'validation.metric' is P@7, but it must be one of P@1, "),
    ],
)
def test_other_figures_are_refused_before_any_work(metric, sentence, monkeypatch):
    tried = faked(monkeypatch, best_of({}))
    with pytest.raises(DataError, match=sentence):
        choose(made_up(), asked(f"validation.metric={metric}"))
    assert tried == []
