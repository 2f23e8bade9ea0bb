"""Without a system: several models are tried on held-out training points, and the best mix is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from command_line import done, fails
from scipy.sparse import csr_array
from small_runs import KilledError, at_step, killed, same, small, small_splits
from small_transformer import WORDS, write_transformer

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.evaluate import evaluate
from gandalf.model import Calibration, Mix, ModelWithMemory, Part, Trees, load_model
from gandalf.recipe import Search
from gandalf.runs import candidates, stages
from gandalf.runs import cost as budget
from gandalf.runs import few_points as repeated
from gandalf.runs import search as searching
from gandalf.runs.cost import FEWEST_EPOCHS, MACHINE, PATIENCE, Clock, Size, fit_epochs, patience
from gandalf.runs.few_points import repeated_answers
from gandalf.runs.folder import RunPlace, state_of
from gandalf.runs.mix import fit_mix
from gandalf.runs.search import search
from gandalf.runs.session import run_training
from gandalf.runs.start import train_to_folder
from gandalf.runs.trees import Baseline, note_if_behind
from gandalf.runs.validation import HeldAnswers, pooled
from gandalf.settings import override
from gandalf.systems import default_system, frozen, recipe
from gandalf.train.orders import Phase

pytestmark = pytest.mark.skipif(
    find_spec("omikuji") is None, reason="omikuji is an optional library: extra [parabel]"
)


def quick(*settings: str) -> gandalf.recipe:
    parts = override(recipe("auto"), ["search.minutes=0.5", "device=cpu", *settings])
    return replace(parts, search=replace(parts.search, parts=("linear", "words")))


@pytest.fixture(autouse=True)
def small_network(monkeypatch):
    """Let the network of words be small: these tests ask how it is chosen, not how good it is."""
    made = override(recipe("astec"), ["encoder.dim=16", "training.batch=32", "training.epochs=4"])
    monkeypatch.setattr(candidates, "words_recipe", lambda *_: made)


# ---- the weights of a mix


def answers(ids, scores, truth, frequencies) -> HeldAnswers:
    """Make answers to points with these true labels, by a part that gives these logits."""
    labels = len(frequencies)
    rest = [(point, label) for label, count in enumerate(frequencies) for point in range(count)]
    rows, columns = zip(*rest, strict=True)
    train = csr_array((np.ones(len(rest)), (rows, columns)), shape=(max(frequencies), labels))
    held = csr_array((np.ones(len(truth)), (range(len(truth)), truth)), shape=(len(truth), labels))
    splits = Splits(train=Dataset(train), test=Dataset(held))
    return HeldAnswers(splits, np.array(ids), np.array(scores, dtype=np.float32), Calibration())


def test_a_part_that_is_right_gets_all_weight_and_one_that_adds_nothing_is_dropped():
    truth = [0, 1, 2, 3] * 20
    right = answers([[label, 4] for label in truth], [[3.0, -3.0]] * 80, truth, [9] * 5)
    wrong = answers([[4, label] for label in truth], [[1.0, -3.0]] * 80, truth, [9] * 5)
    found = fit_mix({"wrong": wrong, "right": right})
    assert found.names == ("right",) and found.weights == (1.0,)
    assert found.scores["P@1"] == 100


def test_of_few_points_no_part_gets_all_or_nothing_by_chance():
    """One part is right on 11 of 20 points, the other on the other 9: all weight for either is luck."""
    truth = [0] * 20
    known = [[3.0, -3.0] if point < 11 else [-3.0, 3.0] for point in range(20)]
    one = answers([[0, 1]] * 20, known, truth, [9] * 3)
    other = answers([[0, 2]] * 20, [row[::-1] for row in known], truth, [9] * 3)
    few = fit_mix({"one": one, "other": other})
    assert all(0.2 < weight < 0.8 for weight in few.weights) and len(few.weights) == 2
    assert fit_mix({"one": one, "other": other}).weights == few.weights  # the same every time


def test_repeated_trials_hold_out_other_points_and_are_judged_together():
    recipes = {"words": override(small(), ["validation.share=0.2"])}
    trials = repeated_answers(small_splits(), recipes, Clock(5.0))
    found = pooled([each["words"] for each in trials])
    once = run_training(small_splits(), recipes["words"]).held
    assert len(found.held) > 4 * len(once.held) and len(found.ids) == len(found.scores) == len(found.held)
    assert found.held.texts[: len(once.held)] == list(once.held.texts)
    np.testing.assert_array_equal(found.ids[: len(once.ids)], once.ids)
    assert len(set(found.held.texts)) > len(once.held)
    (first,) = repeated_answers(small_splits(), recipes, Clock(1e-9))  # then time is up
    assert first["words"].held == once.held


def test_parts_that_know_different_points_are_mixed_and_beat_both():
    truth = [0, 1] * 40
    sure, unsure = [3.0, -3.0], [0.2, 0.1]
    first = [sure if label == 0 else unsure for label in truth]
    second = [unsure if label == 0 else sure for label in truth]
    one = answers([[label, 2] if label == 0 else [3, label] for label in truth], first, truth, [9] * 4)
    two = answers([[2, label] if label == 0 else [label, 3] for label in truth], second, truth, [9] * 4)
    found = fit_mix({"one": one, "two": two})
    assert set(found.names) == {"one", "two"} and sum(found.weights) == pytest.approx(1.0)
    assert found.scores["P@1"] == 100 > max(one.evaluated()["P@1"], two.evaluated()["P@1"])


def test_the_objective_is_the_mean_of_the_two_figures_as_evaluate_has_them():
    from gandalf.runs.mix import MixObjective

    splits = small_splits()
    held = run_training(replace(splits, test=None), small("validation.share=0.3")).held
    found = MixObjective([held]).value(np.array([1.0]))
    scores = held.evaluated()
    assert found == pytest.approx((scores["P@1"] + scores["PSP@5"]) / 2)


# ---- the search


def test_the_best_on_held_out_points_is_found_and_all_is_told():
    said: list[str] = []
    first: list[Part] = []
    splits = small_splits()
    found = search(splits, quick(), RunPlace(tell_search=said.append, take_first_model=first.append))
    assert "at most 0.5 minutes" in said[0] and "linear, words" in said[0]
    assert [row.name for row in found.tried] == ["linear", "words"]
    assert len(first) == 1 and isinstance(first[0], Trees)
    assert sum(row.weight for row in found.tried) == pytest.approx(1.0)
    best = max(row.scores["P@1"] + row.scores["PSP@5"] for row in found.tried)
    assert found.scores["P@1"] + found.scores["PSP@5"] >= best - 0.5
    assert [each.name for each in found.baselines] == ["popularity", "TF-IDF + linear"]
    json.dumps(found.table, allow_nan=False)


class Poison:
    """A test split that nobody may look at."""

    def __getattr__(self, name):
        raise AssertionError(f"the test split was asked for its {name}")


def test_no_test_point_is_ever_seen(monkeypatch):
    splits, seen = replace(small_splits()), []
    object.__setattr__(splits, "test", Poison())
    with pytest.raises(AssertionError, match="asked for its texts"):
        _ = splits.test.texts

    def spied(part):
        def called(*given):
            seen.extend(each.test for each in given if isinstance(each, Splits))
            return part(*given)

        return called

    for name in ("run_training", "trial_trees", "trees_of_all_points"):
        monkeypatch.setattr(searching, name, spied(getattr(searching, name)))
    found = search(splits, quick())
    assert len(seen) in (2, 3) and set(seen) == {None} and found.scores is not None


def test_a_linear_model_learns_from_all_points_once_it_is_chosen_and_keeps_its_figures(monkeypatch):
    first: list[Part] = []
    asked = replace(quick(), search=replace(quick().search, parts=("linear",)))
    found = search(small_splits(), asked, RunPlace(take_first_model=first.append))
    assert found.trained.points == len(small_splits().train) and found.trained.model is not first[0]
    assert found.trained.model.calibration == first[0].calibration == found.trained.held.calibration
    assert found.trained.held.evaluated()["P@1"] == found.scores["P@1"]
    of_rest = run_training(small_splits(), override(recipe("linear"), ["validation.share=0.2"])).held
    assert len(of_rest.held) == len(found.trained.held.held)


def test_networks_leave_time_for_linear_models_to_learn_from_all_points(monkeypatch):
    run = searching.ModelSearch(small_splits(), quick("search.minutes=1"), RunPlace())
    assert run.seconds_left > 50
    run._try(run.candidates[0])
    run.tried[0].seconds = 40.0
    assert run.seconds_left < 60 - 1.25 * 40.0


def test_the_folder_holds_a_mix_that_predicts_as_its_parts_say(tmp_path):
    splits = small_splits()
    outcome = train_to_folder(splits, quick(), RunPlace(tmp_path / "out"))
    assert state_of(tmp_path / "out") == "finished" and not (tmp_path / "out" / "checkpoints").exists()
    model = load_model(tmp_path / "out")
    assert isinstance(model, Mix | Trees) or model.config["system"] == "astec"
    texts = list(splits.test.texts)
    expected = gandalf.Predictor(outcome.trained.model).predict(texts, 5)[1]
    np.testing.assert_allclose(gandalf.Predictor(model).predict(texts, 5)[1], expected, atol=1e-5)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text("utf-8"))
    assert metrics["search"]["why"] and metrics["search"]["baselines"][0]["name"] == "popularity"
    assert metrics["P@1"] == pytest.approx(outcome.scores["P@1"])


def test_a_killed_search_leaves_a_usable_model_and_goes_on_where_it_was(tmp_path, monkeypatch):
    splits, out = small_splits(), tmp_path / "out"
    whole = train_to_folder(splits, quick(), RunPlace(tmp_path / "whole"))
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 5, killed)
        train_to_folder(splits, quick(), RunPlace(out))
    assert state_of(out) == "unfinished"
    assert isinstance(load_model(out), Trees)  # the first usable model
    with pytest.raises(DataError, match="resume=True"):
        train_to_folder(splits, quick(), RunPlace(out))
    trained = []
    with monkeypatch.context() as patch:
        patch.setattr(
            searching, "run_training", lambda *given: trained.append(given[1].system) or run_training(*given)
        )
        patch.setattr(searching, "trial_trees", lambda *_: pytest.fail("the linear model was kept"))
        again = train_to_folder(splits, quick(), RunPlace(out, resume=True))
    assert trained == ["astec"]  # not the linear model again
    assert state_of(out) == "finished"
    for outcome in (again, whole):
        tried = outcome.metrics["search"]["tried"]
        assert [row["name"] for row in tried] == ["linear", "words"] and all("P@1" in row for row in tried)
    # The network is the same to the bit; omikuji draws its classifiers anew each time.
    one, other = (outcome.metrics["search"]["tried"][1]["P@1"] for outcome in (again, whole))
    assert one == other


def test_a_budget_for_nothing_but_the_linear_model_gives_that_and_says_so():
    found = search(small_splits(), quick("search.minutes=0.0001"))
    assert isinstance(found.trained.model, Trees)
    assert "too few" in found.tried[1].note and any("words left out" in note for note in found.notes)


def test_too_few_points_to_choose_by_give_the_linear_model_of_all_of_them():
    splits = small_splits()
    found = search(Splits(train=splits.train[np.arange(40)], name="few"), quick())
    assert isinstance(found.trained.model, Trees) and found.trained.points == 40
    assert found.why.startswith("linear alone, learnt from all points; ")
    assert found.tried[1].note.startswith("left out: it needs 50 held-out points at once")


@pytest.fixture
def tiny_transformer(monkeypatch, tmp_path):
    """Let the part `frozen` read by a transformer of random weights."""
    pytest.importorskip("transformers", reason="transformers is an optional library: extra [transformers]")
    words = {word for text in small_splits().train.texts for word in text.split()}
    write_transformer(tmp_path / "encoder", [*WORDS, *sorted(words - {*WORDS})])
    made = override(recipe("frozen"), [f"encoder.model={tmp_path / 'encoder'}", "training.epochs=2"])
    monkeypatch.setattr(searching, "frozen", lambda: made)
    monkeypatch.setattr(candidates, "frozen", lambda: made)


def with_parts(*parts: str) -> gandalf.recipe:
    asked = quick("search.minutes=5")
    return replace(asked, search=replace(asked.search, parts=parts))


def few_points() -> Splits:
    return Splits(train=small_splits().train[np.arange(40)], name="few")


def test_few_points_are_held_out_again_and_again_to_fit_the_weights(tiny_transformer):
    found = search(few_points(), with_parts("linear", "frozen", "words", "memory"))
    model = found.trained.model
    assert found.scores is not None and found.scores.filtered.points >= repeated.FEWEST
    assert [row.name for row in found.tried] == ["linear", "frozen", "words"]
    assert all(row.scores is not None for row in found.tried[:2]) and found.tried[2].scores is None
    assert [each.name for each in found.baselines] == ["popularity", "TF-IDF + linear"]
    points = {row.scores.filtered.points for row in [*found.tried[:2], *found.baselines]}
    assert points == {found.scores.filtered.points}  # the same held-out points
    weights = {row.name: row.weight for row in found.tried if row.weight}
    assert sum(weights.values()) == pytest.approx(1.0)
    if isinstance(model, Mix):
        assert dict(zip(model.names, model.weights, strict=True)) == weights


def test_too_few_points_to_choose_by_give_fixed_parts_of_all_of_them(tiny_transformer, monkeypatch):
    monkeypatch.setattr(repeated, "FEWEST", 10_000)
    found = search(few_points(), with_parts("linear", "frozen", "words", "memory"))
    model = found.trained.model
    assert isinstance(model, Mix) and model.names == ("linear", "frozen")
    assert model.weights == pytest.approx((0.3, 0.7)) and found.scores is None
    assert [row.weight for row in found.tried] == pytest.approx([0.3, 0.7, 0.0])
    assert "too few to choose by" in found.why


def test_few_points_and_hardly_any_time_give_the_linear_model_and_say_so(tiny_transformer):
    found = search(
        few_points(), replace(with_parts("linear", "frozen"), search=Search(1e-4, ("linear", "frozen")))
    )
    assert isinstance(found.trained.model, Trees) and "too few for it" in found.tried[1].note


def test_a_memory_is_tried_where_a_transformer_reads_for_it(tiny_transformer, monkeypatch):
    monkeypatch.setattr(searching, "fit_mix", lambda answers: fit_mix({"frozen": answers["frozen"]}))
    found = search(small_splits(), with_parts("linear", "frozen", "memory"))
    row = found.tried[-1]
    assert row.name == "memory" and found.scores is not None
    if row.weight:
        assert isinstance(found.trained.model, ModelWithMemory) and "a memory of" in found.why
        assert sum(each.weight for each in found.tried) == pytest.approx(1.0)
    else:
        assert row.note == "adds nothing to the others"
    without = search(small_splits(), with_parts("linear", "frozen"))
    assert [row.name for row in without.tried] == ["linear", "frozen"]


def test_a_missing_library_is_named_once_and_the_search_goes_on(monkeypatch):
    def missing(encoder):
        if encoder.kind == "transformer":
            raise DataError("a transformer needs transformers", remedy="pip install it")

    monkeypatch.setattr(searching, "check_encoder", missing)
    reads = override(recipe("astec"), ["encoder.dim=16", "training.epochs=4", "text.vectors=distilled"])
    monkeypatch.setattr(candidates, "words_recipe", lambda *_: reads)
    asked = replace(quick(), search=replace(quick().search, parts=("linear", "frozen", "words")))
    found = search(small_splits(), asked)
    assert found.tried[1].scores is None and found.tried[2].scores is not None  # words learn their vectors
    assert sum("needs transformers" in note for note in found.notes) == 1


def test_a_part_that_is_not_there_is_refused():
    asked = quick()
    asked = replace(asked, search=replace(asked.search, parts=("liner",)))
    with pytest.raises(DataError, match=r"'liner'.*linear, .*frozen, words"):
        search(small_splits(), asked)


# ---- held-out points come back


def test_the_last_stretch_learns_from_all_points_and_reports_the_figure_from_before():
    splits = replace(small_splits(), test=None)
    settings = ("validation.share=0.3", "training.steps=150", "encoder.dim=64")
    without = run_training(splits, small(*settings))
    with_stretch = run_training(splits, small(*settings, "training.last_stretch=1.0"))
    assert with_stretch.points == len(splits.train) > without.points
    assert with_stretch.steps == 300 and without.steps == 150
    held = with_stretch.held
    scores = without.held.evaluated()
    assert held.evaluated()["P@1"] == pytest.approx(scores["P@1"])  # measured before the stretch
    predictor = gandalf.Predictor(with_stretch.model)
    after = evaluate(predictor.predict(held.held.texts, 20, held.held.exclude), held.splits)
    assert after["P@1"] > scores["P@1"] + 2  # those points have been learnt from by now


@pytest.mark.parametrize(("share", "labels"), [("0.7", 0), ("1", 1)])
def test_label_points_stay_in_the_last_stretch_if_they_stayed_in_training(share, labels, monkeypatch):
    splits, met = replace(small_splits(), test=None), []
    monkeypatch.setattr(stages, "Phase", lambda points, steps: met.append(points) or Phase(points, steps))
    settings = ("validation.share=0.3", "training.last_stretch=0.5", "targets.targets=self")
    found = run_training(splits, small(*settings, f"targets.label_epochs={share}"))
    assert len(met[-1]) == len(splits.train) + labels * splits.train.num_labels
    assert found.steps == 60


def test_a_stretch_that_is_killed_ends_with_the_same_weights(tmp_path, monkeypatch):
    splits, settings = small_splits(), ("validation.share=0.3", "training.last_stretch=0.5")
    whole = run_training(splits, small(*settings))
    place = RunPlace(tmp_path / "run", minutes=0)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 50, killed)
        run_training(splits, small(*settings), place)
    resumed = run_training(splits, small(*settings), replace(place, resume=True))
    same(resumed, whole)
    np.testing.assert_array_equal(resumed.held.ids, whole.held.ids)


# ---- what is asked for


@pytest.mark.parametrize(
    ("settings", "system"),
    [
        ((), "auto"),
        (("seed", "device"), "auto"),
        (("search.minutes",), "auto"),
        (("validation.share",), "auto"),
        (("training.steps=20",), "astec"),
        (("targets.share=0.5",), "astec"),
        (("seed=1", "encoder.dim=20"), "astec"),
    ],
)
def test_settings_of_one_system_mean_one_system(settings, system):
    assert default_system(settings) == system


def test_the_budget_shortens_a_network_and_refuses_what_is_too_short():
    asked, size = override(recipe("astec"), ["device=cpu"]), Size(10_000, 10_000)
    enough = fit_epochs(asked, size, 1e6, 1e11)
    assert enough.training.epochs == asked.training.epochs
    less = fit_epochs(asked, size, 100.0, 1e11)
    assert 2 <= less.training.epochs < asked.training.epochs
    assert fit_epochs(asked, size, 5.0, 1e11) is None
    assert Size(1_000, 500).minutes < Size(9_599, 8_808).minutes < 4 < Size(108_968, 78_610).minutes < 15


def test_a_transformer_is_given_the_time_that_texts_of_their_length_take():
    reads = replace(frozen(), device="cpu")
    short, long = (fit_epochs(reads, Size(3_000, 5_000, length), 40.0, 1.6e11) for length in (20.0, 400.0))
    assert short is not None
    assert long is None


def test_the_size_of_a_set_has_the_mean_length_of_its_texts():
    points = small_splits().train
    texts = [*points.texts, *points.label_texts]
    assert Size.of(points) == Size(len(points), points.num_labels, np.mean([len(text) for text in texts]))


def test_the_command_prints_what_it_tried(tmp_path):
    data = tmp_path / "data"
    gandalf.export(small_splits(), data, "raw")
    said = done("train", data, tmp_path / "out", "--minutes", "0.3", "--set", 'search.parts=["linear"]')
    assert "held-out training points" in said and "popularity" in said and "Chosen: linear" in said
    assert "search.minutes" in fails("train", data, tmp_path / "no", "--minutes", "0")


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        (("--system", "astec", "--minutes", "3"), "search.minutes"),
        (("--epochs", "5", "--minutes", "3"), "search.minutes"),
        (("--system", "linear", "--set", 'search.parts=["linear"]'), "search.parts"),
    ],
)
def test_a_single_system_has_no_settings_of_the_search(tmp_path, asked, setting):
    said = fails("train", tmp_path / "data", tmp_path / "out", *asked)  # before any data are read
    assert f"{setting} belongs to the search" in said and "leave out --minutes" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("asked", [("--epochs", "5"), ("--targets", "self"), ("--set", "encoder.dim=20")])
def test_a_search_has_no_settings_of_a_single_system(tmp_path, asked):
    said = fails("train", tmp_path / "data", tmp_path / "out", "--system", "auto", *asked)
    assert "says how one system is trained" in said and "--system astec" in said
    assert not (tmp_path / "out").exists()


def test_a_network_may_need_all_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr(searching, "speed", lambda device: 1e11)
    splits = small_splits()
    recipe_of_words = override(recipe("astec"), ["device=cpu", "training.epochs=4"])
    needed = next(
        seconds
        for seconds in np.arange(1.0, 60.0, 0.05)
        if fit_epochs(recipe_of_words, Size.of(splits.train), seconds, 1e11) is not None
    )
    for given, begins in ((0.9 * needed, False), (1.2 * needed, True), (3 * needed, True)):
        run = searching.ModelSearch(splits, quick(), RunPlace())
        run.clock = Clock(given / 60)
        if begins:
            assert run.fit_network(recipe_of_words, last=False).training.epochs >= FEWEST_EPOCHS
        else:
            with pytest.raises(DataError, match="of the budget are too few for it"):
                run.fit_network(recipe_of_words, last=False)
    assert given * candidates.TIME_SHARES[0] > needed > 1.2 * needed * candidates.TIME_SHARES[0]


def test_a_transformer_reads_the_beginning_of_long_texts_where_time_is_short(monkeypatch):
    monkeypatch.setattr(searching, "speed", lambda device: 1e11)
    run = searching.ModelSearch(small_splits(), quick(), RunPlace())
    run.size, reads = Size(1_000, 100, characters=800.0), replace(frozen(), device="cpu")
    lengths = []
    for seconds in (600.0, 60.0, 18.0):
        run.clock = Clock(seconds / 60)
        lengths.append(run.fit_network(reads, last=True).text.max_length)
    assert lengths == [0, 64, 32]
    run.clock = Clock(5.0 / 60)
    with pytest.raises(DataError, match="of the budget are too few for it"):
        run.fit_network(reads, last=True)
    assert "frozen reads the first" in run.notes[-1] and len(run.notes) == len(set(run.notes))


def test_the_speed_is_what_a_product_usually_has_not_the_best(monkeypatch):
    clock = iter(np.cumsum([0, 1] + [0, 3] * 19))
    monkeypatch.setattr(budget.time, "perf_counter", lambda: float(next(clock)))
    assert budget.speed("cpu") == pytest.approx(2 * np.prod(budget.PROBE) / 3)


def test_a_yardstick_that_is_ahead_is_named_with_its_own_figure():
    rivals = [Baseline("TF-IDF + linear", {"P@1": 68.0, "PSP@5": 20.0}, 1.0)]
    said = note_if_behind({"P@1": 61.2, "PSP@5": 30.0}, rivals)
    assert "ahead on held-out points: TF-IDF + linear has P@1 68.0, the model 61.2; gandalf train" in said
    assert note_if_behind({"P@1": 68.0, "PSP@5": 30.0}, rivals) is None


def test_of_equal_parts_the_first_which_is_the_quickest_stays():
    truth = [0, 1] * 40
    same_answers = answers([[label, 2] for label in truth], [[3.0, -3.0]] * 80, truth, [9] * 3)
    assert fit_mix({"quick": same_answers, "slow": same_answers}).names == ("quick",)


def test_a_slower_machine_is_given_more_time_unless_the_user_says_how_much(monkeypatch):
    assert patience(2 * MACHINE) == 1.0 and patience(MACHINE / 2) == 2.0 and patience(1.0) == PATIENCE
    monkeypatch.setattr(searching, "speed", lambda device: MACHINE / 3)
    points = small_splits().train[np.arange(40)]
    told: list[float] = []
    for asked in (quick(), override(quick(), ["search.minutes=none"])):
        told.append(search(Splits(train=points, name="few"), asked).minutes)
    assert told == [0.5, pytest.approx(3 * Size.of(points).minutes)]


def test_a_budget_of_nothing_is_refused_in_python_too():
    with pytest.raises(DataError, match=r"search\.minutes"):
        search(small_splits(), quick("search.minutes=0"))
