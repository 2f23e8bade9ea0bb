"""`--targets auto`: what it chooses, by which points alone, and what it says of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import gandalf
from gandalf.cli.main import app
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.errors import DataError
from gandalf.metrics.bootstrap import compare
from gandalf.recipe import Recipe
from gandalf.runs import auto, run
from gandalf.runs.auto import CANDIDATES, DECIDING, DEFAULT, LIGHT_WEIGHT, Candidate, Choice, _with, choose
from gandalf.runs.material import cut
from gandalf.runs.start import train
from gandalf.settings import override, to_dict
from gandalf.systems import recipe

WORDS = 12  # of a label; a text of its points holds two of them


def asked(*settings: str, system: str = "astec") -> Recipe:
    """A recipe that is small and short: these sets are learnt in a few steps."""
    small = ["encoder.dim=64", "training.steps=400", "training.batch=128", "text.min_count=1"]
    return override(recipe(system), ["targets.targets=auto", "device=cpu", *small, *settings])


def made_up(points: int = 900, labels: int = 180, moved: int = 0) -> Splits:
    """Points that say two words of their label; a label's text has all of them.

    `moved`: it has those of another label instead, so that every label point teaches what is wrong.
    """
    rng = np.random.default_rng(0)
    of = rng.integers(labels, size=points)
    said = [rng.choice(WORDS, size=2, replace=False) for _ in of]
    texts = [f"{_word(label, one)} {_word(label, two)}" for label, (one, two) in zip(of, said, strict=True)]
    named = np.roll(np.arange(labels), moved)
    label_texts = [" ".join(_word(label, word) for word in range(WORDS)) for label in named]
    targets = csr_array((np.ones(points, np.float32), (np.arange(points), of)), shape=(points, labels))
    ids = [f"point {number}" for number in range(points)]
    return Splits(Dataset(targets, texts, label_texts, ids=ids), name="made-up")


def _word(label: int, word: int) -> str:
    """Letters alone: a word with digits would be taken apart."""
    number = label * WORDS + word
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(4))


@pytest.fixture(scope="module")
def helpful() -> tuple[Splits, Choice]:
    splits = made_up()
    return splits, choose(splits, asked())


def answered(trial, share, seed=5):
    """Scores of one who knows all labels of a share of the points, and nothing of the others."""
    right = np.random.default_rng(seed).random(len(trial.test)) < share
    known = csr_array(trial.test.targets.multiply(right[:, None]))
    known.eliminate_zeros()
    return gandalf.evaluate(known, trial)


@pytest.fixture(scope="module")
def topics() -> Splits:
    """Points of several labels each, so that labels that occur together make a graph."""
    splits = gandalf.synthetic(1500, 200, seed=2).splits
    ids = [f"point {number}" for number in range(len(splits.train))]
    return replace(splits, train=replace(splits.train, ids=ids))


@pytest.fixture
def quick(monkeypatch):
    """Hardly any training, where it does not matter what is chosen."""
    monkeypatch.setattr(auto, "SHORT", 3 / 400)


def faked(monkeypatch, quality):
    """Let candidates know a share of the points that `quality` gives; note which are tried."""
    tried = []

    def scores(trial, recipe, candidate):
        tried.append(candidate)
        return answered(trial, quality(candidate), seed=len(tried))

    monkeypatch.setattr(auto, "_scores", scores)
    return tried


def best_of(qualities, otherwise=0.5):
    return lambda candidate: qualities.get(str(candidate), otherwise)


# ---- what is chosen


def test_label_points_that_help_are_kept(helpful):
    _, choice = helpful
    none = choice.tried[0]
    assert none.candidate == Candidate("none") and none.difference.high < 0
    assert (choice.best, choice.texts) == (DEFAULT, "new")
    assert choice.why == "shrunk: no other is better by more than noise (P@1 on new texts)"


def test_label_points_that_mislead_are_left_out():
    # To the last step, so that nothing can mend it.
    choice = choose(made_up(points=500, moved=1), asked("targets.label_epochs=1"))
    assert choice.best == Candidate("none") and choice.recipe.targets.targets == "none"
    first = choice.tried[0].difference
    assert first.low > 0
    interval = f"{first.difference:+.1f} P@1 on all texts ({first.low:+.1f} to {first.high:+.1f})"
    assert choice.why == f"none: {interval} against shrunk"


def test_label_points_are_taken_up_where_the_default_has_none(monkeypatch):
    monkeypatch.setattr(auto, "DEFAULT", Candidate("none"))
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
    assert choice.best == Candidate(name)
    expected = asked(f"targets.targets={name}", "targets.delta=0.2")  # nothing else is changed
    assert to_dict(choice.recipe) == to_dict(expected)


def test_none_takes_the_training_points_along(monkeypatch):
    """Without label points there is nothing else to train on, whatever was to be kept beside them."""
    faked(monkeypatch, best_of({"none": 0.9}))
    assert choose(made_up(), asked("targets.keep=labels")).recipe.targets.keep == "both"
    faked(monkeypatch, best_of({}))
    assert choose(made_up(), asked("targets.keep=labels")).recipe.targets.keep == "labels"


def test_a_strength_is_for_those_that_shrink(quick, topics):
    """Others have none, and must not fail for it after minutes of trying."""
    choice = choose(topics, asked("targets.strength=3"))
    assert len(choice.tried) >= len(CANDIDATES)
    strengths = {
        name: _with(asked("targets.strength=3"), Candidate(name)).targets.strength for name in CANDIDATES
    }
    assert strengths == {"none": None, "self": None, "ratio": None, "shrunk": 3.0, "calibrated": 3.0}


def test_a_smaller_weight_is_tried_with_the_best_targets_alone(monkeypatch):
    whole = [Candidate(name) for name in CANDIDATES]
    for name in CANDIDATES:
        tried = faked(monkeypatch, best_of({name: 0.9}))
        choice = choose(made_up(), asked())
        light = [] if name == "none" else [Candidate(name, LIGHT_WEIGHT)]
        assert tried == [*whole, *light] == [each.candidate for each in choice.tried]
        assert choice.recipe.targets.label_weight == 1.0


@pytest.mark.parametrize(("light", "wins"), [(0.9, True), (0.71, False), (0.6, False)])
def test_a_smaller_weight_must_beat_the_full_one(light, wins, monkeypatch):
    """It is better than the default either way, but what counts is that it betters the best."""
    faked(monkeypatch, best_of({"ratio": 0.7, "ratio with weight 0.3": light}))
    choice = choose(made_up(), asked())
    assert choice.best == Candidate("ratio", LIGHT_WEIGHT if wins else 1.0)
    assert choice.tried[-1].difference.low > 0  # to the default
    assert choice.why.endswith("against ratio" if wins else "against shrunk")
    assert choice.recipe.targets.label_weight == choice.best.label_weight


def test_a_trial_is_the_recipe_with_the_targets_of_the_candidate_and_half_as_long(monkeypatch):
    given, place_of = [], []

    def trained(splits, recipe, place):
        assert splits.test is None
        given.append(recipe)
        place_of.append(place)
        return run.train(splits, override(recipe, ["training.steps=1"]))

    monkeypatch.setattr(auto, "train", trained)
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


def test_the_candidate_stands_beside_the_bar(quick, monkeypatch):
    titles = []

    class Bar(run.TrainingBar):
        def __init__(self, description, total, done=0):
            titles.append(description)
            super().__init__(description, total, done)

    monkeypatch.setattr(run, "TrainingBar", Bar)
    choice = choose(made_up(400, 40), asked("targets.label_weight=0.5"))
    assert titles == [f"trying {each.candidate}" for each in choice.tried] and len(titles) > len(CANDIDATES)
    run.train(made_up(400, 40), asked("targets.targets=none", "training.steps=1"))
    assert titles[-1] == "astec"


# ---- by which points


@pytest.mark.parametrize("texts", ["new", "label", "all"])
def test_the_texts_that_decide(texts, monkeypatch):
    """Candidates that are good at one kind of text each: the winner tells which texts decided."""
    splits = gandalf.synthetic(3000, 400, seed=1, known=0.5).splits

    def scores(trial, recipe, candidate):
        known = gandalf.evaluate(trial.test.targets, trial).known
        gains = {"none": 0.3 * ~known, "ratio": 0.3 * known, "self": np.full(len(known), 0.25)}
        return answered(trial, 0.5 + gains.get(candidate.targets, 0.0))

    monkeypatch.setattr(auto, "_scores", scores)
    choice = choose(splits, asked(f"validation.texts={texts}"))
    assert choice.best.targets == {"new": "none", "label": "ratio", "all": "self"}[texts]
    assert choice.texts == texts


def test_all_texts_decide_where_there_are_too_few_of_the_kind(quick):
    choice = choose(made_up(), asked("validation.texts=label", "validation.metric=PSP@3"))
    assert choice.texts == "all" and "PSP@3 on all texts" in choice.why
    assert "label_text" not in choice.tried[0].figures  # there are none at all
    assert choice.table["by"] == "PSP@3 on all texts"


def test_the_interval_is_that_of_the_texts_and_figure_that_decide(helpful):
    _, choice = helpful
    for each in choice.tried:
        if each.candidate != DEFAULT:
            default = next(other for other in choice.tried if other.candidate == DEFAULT)
            gap = each.figures["new_text"] - default.figures["new_text"]
            assert each.difference.difference == pytest.approx(gap)
            assert each.difference.low <= gap <= each.difference.high


# ---- nothing leaks


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
    made, fitted, looped = run.augmented, run.fit_tokens, run.loop_points

    def augmented(*given):
        found = made(*given)
        graph = found.graph
        seen.append([] if graph is None else [graph.matrix.toarray(), repr(graph.details)])
        return found

    def fit_tokens(*given):
        found = fitted(*given)
        seen.append([found.idf(), np.asarray(found.size)])
        return found

    def loop_points(*given):
        found = looped(*given)
        weights = np.ones(0) if found.weights is None else found.weights
        seen.append([found.tokens, found.targets.toarray(), weights])
        return found

    with monkeypatch.context() as patch:
        for name, spy in (("augmented", augmented), ("fit_tokens", fit_tokens), ("loop_points", loop_points)):
            patch.setattr(run, name, spy)
        return choose(splits, recipe), seen


def same(one, other) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(left, right)
        for a, b in zip(one, other, strict=True)
        for left, right in zip(a, b, strict=True)
    )


def test_labels_of_held_points_reach_no_target(quick, topics, monkeypatch):
    wanted = asked()
    rest = cut(topics.train, wanted).rest
    trial = holdout(rest, auto.SHARE, wanted.seed + 1, at_most=auto.AT_MOST).rest
    choice, seen = spied(monkeypatch, topics, wanted)
    own = set(topics.train.ids) - set(rest.ids)  # the run's validation share
    held = set(rest.ids) - set(trial.ids)  # what is chosen by
    assert len(own) > 50 and len(held) > 200 and len(seen) == 3 * len(choice.tried)
    other, after = spied(monkeypatch, replace(topics, train=relabelled(topics.train, own)), wanted)
    assert same(seen, after) and other == choice
    other, after = spied(monkeypatch, replace(topics, train=relabelled(topics.train, held)), wanted)
    five = 3 * len(CANDIDATES)  # what is tried after these may be another
    assert same(seen[:five], after[:five]) and other.tried != choice.tried
    trained_on = set(trial.ids)  # and were they not held, it would show
    _, after = spied(monkeypatch, replace(topics, train=relabelled(topics.train, trained_on)), wanted)
    assert not any(same(seen[at : at + 1], after[at : at + 1]) for at in range(2, five, 3))


def test_the_test_split_has_no_say(quick, topics):
    wanted, choice = asked(), choose(topics, asked())
    test = replace(topics.test, targets=topics.test.targets[::-1], texts=topics.test.texts[::-1])
    assert choose(replace(topics, test=test), wanted) == choice == choose(replace(topics, test=None), wanted)


# ---- the same again


def test_same_seed_same_choice(quick, topics):
    choice = choose(topics, asked())
    assert choose(topics, asked()) == choice
    assert choose(topics, asked("seed=1")).tried != choice.tried
    assert choose(topics, asked("encoder.dim=48")).tried != choice.tried  # it is the recipe that is tried


# ---- where nothing can be told


@pytest.mark.parametrize(
    ("splits", "why"),
    [
        (made_up(100, 10), "only 1[0-9] points could be held out to choose by"),
        (made_up(3, 40), "none of the .* points held for validation has a label that can be asked for"),
        (
            Splits(replace(made_up(100, 10).train, texts=["one text"] * 100)),
            "no validation share can be cut from 100 training points of 1 texts",
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
    with pytest.raises(DataError, match="or train without: --validation 0"):
        train(splits, asked())


# ---- by what it cannot be chosen


def test_figures_that_may_decide_are_those_with_an_interval(helpful):
    splits, _ = helpful
    halves = Splits(splits.train[:450], splits.train[450:])
    scores = gandalf.evaluate(halves.test.targets, halves)
    assert set(DECIDING) == set(compare(scores, scores).every)


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


# ---- from Python and by command


def test_train_trains_what_was_chosen(monkeypatch):
    faked(monkeypatch, best_of({"self": 0.9, "self with weight 0.3": 1.0}))
    trained = train(made_up(), asked("training.steps=1"))
    assert trained.details["targets_used"] == "self" and trained.label_points == 180
    assert trained.model.config["recipe"]["targets"]["label_weight"] == LIGHT_WEIGHT


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "made-up"
    gandalf.export(made_up(), folder, "raw")
    return folder


def command(data, out, *more):
    fixed = ("--targets", "auto", "--steps", "2", "--device", "cpu")
    return CliRunner().invoke(app, list(map(str, ("train", data, out, *fixed, *more))))


def test_the_table_is_shown_before_the_training(data, tmp_path, monkeypatch):
    faked(monkeypatch, best_of({"self": 0.9}))
    result = command(data, tmp_path / "out")
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert shown.startswith("Targets tried on held-out training points ")
    assert "P@1 on new texts, to the default" in shown and "text is a label's" not in shown
    choice = json.loads((tmp_path / "out" / "metrics.json").read_text())["choice"]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert [row[1:3] for row in rows] == [
        [each["targets"], f"{each['label_weight']:g}"] for each in choice["tried"]
    ]
    assert [row[1] for row in rows if row[0] == "*"] == ["self"]
    assert [row[1] for row in rows if row[-1] == "the default"] == ["shrunk"]
    for row, each in zip(rows, choice["tried"], strict=True):
        assert row[3:6] == [f"{each['figures'][name]:.2f}" for name in ("P@1", "new_text", "PSP@5")]
        if found := each["difference"]:
            assert row[6] == f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"
    assert shown.index(f"Targets: {choice['why']}") < shown.index("astec on made-up")
    assert choice["chosen"] == {"targets": "self", "label_weight": 1.0}


def test_json_holds_the_table_and_nothing_else_is_printed(data, tmp_path, monkeypatch):
    faked(monkeypatch, best_of({"none": 0.9}))
    result = command(data, tmp_path / "out", "--json")
    printed = json.loads(result.stdout)["choice"]
    faked(monkeypatch, best_of({"none": 0.9}))
    expected = choose(gandalf.load(data), asked("text.min_count=2")).table
    assert printed == json.loads(json.dumps(expected))


def test_without_a_table_the_reason_alone_is_shown(tmp_path):
    gandalf.export(made_up(100, 10), tmp_path / "few", "raw")
    result = command(tmp_path / "few", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert re.match(r"Targets: shrunk targets, by default: only \d+ points could be held", result.stdout)


def test_a_run_that_begins_is_preceded_by_the_choice(data, tmp_path, monkeypatch):
    """A training that fails has told what was chosen."""
    faked(monkeypatch, best_of({"ratio": 0.9}))

    def fails(*_):
        raise DataError("stopped here")

    monkeypatch.setattr("gandalf.runs.output.train", fails)
    result = command(data, tmp_path / "out")
    assert result.exit_code == 2 and "Targets: ratio: " in result.stdout
