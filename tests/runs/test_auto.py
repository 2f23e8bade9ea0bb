"""`--targets auto`: which targets it chooses, and what it tries for that."""

from __future__ import annotations

import pytest
from made_up_choice import asked, best_of, faked, hasten, made_up, topics

from gandalf.runs import choose as auto
from gandalf.runs import session as run
from gandalf.runs.choose import (
    CANDIDATES,
    DEFAULT,
    LIGHT_WEIGHT,
    Choice,
    TargetsCandidate,
    choose,
    with_targets,
)
from gandalf.settings import override, to_dict

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def helpful() -> Choice:
    return choose(made_up(), asked())


def test_label_points_that_help_are_kept(helpful):
    choice, none = helpful, helpful.tried[0]
    assert none.candidate == TargetsCandidate("none") and none.difference.high < 0
    assert (choice.best, choice.texts) == (DEFAULT, "new")
    assert choice.why == "shrunk: no other is better by more than noise (P@1 on new texts)"


def test_label_points_that_mislead_are_left_out():
    # To the last step, so that nothing can mend it.
    choice = choose(made_up(points=500, moved=1), asked("targets.label_epochs=1"))
    assert choice.best == TargetsCandidate("none") and choice.recipe.targets.targets == "none"
    first = choice.tried[0].difference
    assert first.low > 0
    interval = f"{first.difference:+.1f} P@1 on all texts ({first.low:+.1f} to {first.high:+.1f})"
    assert choice.why == f"none: {interval} against shrunk"


def test_label_points_are_taken_up_where_the_default_has_none(monkeypatch):
    monkeypatch.setattr(auto, "DEFAULT", TargetsCandidate("none"))
    choice = choose(made_up(), asked())
    assert choice.best.targets != "none" and choice.tried[0].difference is None


@pytest.mark.parametrize("better", [0.0, 0.01, -0.01])
def test_the_default_stays_within_noise(better, monkeypatch):
    faked(monkeypatch, best_of({"ratio": 0.5 + better, "none": 0.5 - better}))
    assert choose(made_up(), asked()).best == DEFAULT


@pytest.mark.parametrize("name", [name for name in CANDIDATES if name != DEFAULT.targets])
def test_whatever_is_clearly_better_wins(name, monkeypatch):
    faked(monkeypatch, best_of({"none": 0.7, "ratio": 0.6, name: 0.9}))
    choice = choose(made_up(), asked("targets.delta=0.2"))
    assert choice.best == TargetsCandidate(name)
    expected = asked(f"targets.targets={name}", "targets.delta=0.2")  # nothing else is changed
    assert to_dict(choice.recipe) == to_dict(expected)


def test_none_takes_the_training_points_along(monkeypatch):
    """Without label points there is nothing else to train on, whatever was to be kept beside them."""
    faked(monkeypatch, best_of({"none": 0.9}))
    assert choose(made_up(), asked("targets.keep=labels")).recipe.targets.keep == "both"
    faked(monkeypatch, best_of({}))
    assert choose(made_up(), asked("targets.keep=labels")).recipe.targets.keep == "labels"


def test_a_strength_is_for_those_that_shrink(monkeypatch):
    """Others have none, and must not fail for it after minutes of trying."""
    hasten(monkeypatch)
    choice = choose(topics(), asked("targets.strength=3"))
    assert len(choice.tried) >= len(CANDIDATES)
    strengths = {
        name: with_targets(asked("targets.strength=3"), TargetsCandidate(name)).targets.strength
        for name in CANDIDATES
    }
    assert strengths == {"none": None, "self": None, "ratio": None, "shrunk": 3.0, "calibrated": 3.0}


def test_a_smaller_weight_is_tried_with_the_best_targets_alone(monkeypatch):
    whole = [TargetsCandidate(name) for name in CANDIDATES]
    for name in CANDIDATES:
        tried = faked(monkeypatch, best_of({name: 0.9}))
        choice = choose(made_up(), asked())
        light = [] if name == "none" else [TargetsCandidate(name, LIGHT_WEIGHT)]
        assert tried == [*whole, *light] == [each.candidate for each in choice.tried]
        assert choice.recipe.targets.label_weight == 1.0


@pytest.mark.parametrize(("light", "wins"), [(0.9, True), (0.71, False), (0.6, False)])
def test_a_smaller_weight_must_beat_the_full_one(light, wins, monkeypatch):
    """It is better than the default either way, but what counts is that it betters the best."""
    faked(monkeypatch, best_of({"ratio": 0.7, "ratio with weight 0.3": light}))
    choice = choose(made_up(), asked())
    assert choice.best == TargetsCandidate("ratio", LIGHT_WEIGHT if wins else 1.0)
    assert choice.tried[-1].difference.low > 0  # to the default
    assert choice.why.endswith("against ratio" if wins else "against shrunk")
    assert choice.recipe.targets.label_weight == choice.best.label_weight


def test_a_trial_is_the_recipe_with_the_targets_of_the_candidate_and_half_as_long(monkeypatch):
    given, place_of = [], []

    def trained(splits, recipe, place):
        assert splits.test is None
        given.append(recipe)
        place_of.append(place)
        return run.run_training(splits, override(recipe, ["training.steps=1"]))

    monkeypatch.setattr(auto, "run_training", trained)
    choice = choose(
        made_up(), asked("targets.delta=0.3", "seed=7", "text.max_length=5", "epochs=99", "steps=50")
    )
    assert [(each.targets.targets, each.targets.label_weight) for each in given] == [
        (each.candidate.targets, each.candidate.label_weight) for each in choice.tried
    ]
    for each in given:
        assert (each.targets.delta, each.seed, each.text.max_length) == (0.3, 7, 5)
        assert each.validation.share == 0 and each.encoder.dim == 64
        assert (each.training.epochs, each.training.steps) == (49.5, 25)
    titles = [f"trying {each.candidate}" for each in choice.tried]
    assert [place.title for place in place_of] == titles and all(place.folder is None for place in place_of)


def test_the_candidate_stands_beside_the_bar(monkeypatch):
    hasten(monkeypatch)
    titles = []

    class Bar(run.TrainingBar):
        def __init__(self, description, total, done=0):
            titles.append(description)
            super().__init__(description, total, done)

    monkeypatch.setattr(run, "TrainingBar", Bar)
    choice = choose(made_up(400, 40), asked("targets.label_weight=0.5"))
    assert titles == [f"trying {each.candidate}" for each in choice.tried] and len(titles) > len(CANDIDATES)
    run.run_training(made_up(400, 40), asked("targets.targets=none", "training.steps=1"))
    assert titles[-1] == "astec"


def test_the_interval_is_that_of_the_texts_and_figure_that_decide(helpful):
    for each in helpful.tried:
        if each.candidate != DEFAULT:
            default = next(other for other in helpful.tried if other.candidate == DEFAULT)
            gap = each.figures["new_text"] - default.figures["new_text"]
            assert each.difference.difference == pytest.approx(gap)
            assert each.difference.low <= gap <= each.difference.high


def test_same_seed_same_choice(monkeypatch):
    hasten(monkeypatch)
    whole, choice = topics(), choose(topics(), asked())
    assert choose(whole, asked()) == choice
    assert choose(whole, asked("seed=1")).tried != choice.tried
    assert choose(whole, asked("encoder.dim=48")).tried != choice.tried  # it is the recipe that is tried
