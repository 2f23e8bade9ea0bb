"""The machinery of the experiments: which runs there are, and that none is repeated or lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from dataclasses import asdict, replace
from functools import partial

import command_line
import pytest
import torch
from bench_lines import RUN, line_of

from bench import engine
from bench.engine import source_of
from bench.studies import RECIPES, RUN_LISTS, SEEDS, SETS, SYSTEMS, VARIANTS, Run
from gandalf import export, load, synthetic
from gandalf.data.holdout import hold_out_points
from gandalf.lab.measure import open_parts
from gandalf.lab.parallel import Clock, in_turn, results
from gandalf.lab.store import append, read_lines
from gandalf.lab.studies import StudyScope, entries
from gandalf.lab.variants import recipe_of

pytestmark = pytest.mark.slow

TINY = ("steps=4", "batch=16", "dim=8", "device=cpu", "precision=float32")


# ---- runs and studies


def test_a_key_is_the_same_today_and_tomorrow_and_different_for_every_difference():
    assert RUN.key == "ede23b90292b73ef"  # stored results are found by it
    assert Run.of(json.loads(json.dumps(asdict(RUN)))).key == RUN.key
    others = [
        replace(RUN, data="web"),
        replace(RUN, system="inceptionxml"),
        replace(RUN, targets="ratio"),
        replace(RUN, keep="labels"),
        replace(RUN, settings=("training.steps=21",)),
        replace(RUN, seed=1),
        replace(RUN, split="validation"),
    ]
    assert len({RUN.key, *(run.key for run in others)}) == 1 + len(asdict(RUN))


@pytest.mark.parametrize("study", RUN_LISTS)
def test_studies_name_each_run_once_and_every_run_has_a_recipe(study):
    runs = RUN_LISTS[study]()
    assert runs and len({run.key for run in runs}) == len(runs)
    for run in runs:
        chosen = recipe_of(run)
        assert (chosen.system, chosen.targets.targets, chosen.seed) == (run.system, run.targets, run.seed)
        # A share for the curves alone is held back of runs that are scored on held-out points anyway.
        assert chosen.validation.share == (0.05 if study == "convergence" else 0)


def test_main_is_every_variant_of_every_system_on_every_set_at_equal_settings():
    runs = RUN_LISTS["main"]()
    seeds = sum(len(SEEDS) if variant.keep == "both" else 1 for variant in VARIANTS.values())
    assert len(runs) == len(SETS) * len(SYSTEMS) * seeds
    assert all(run.split == "test" for run in runs)
    # What the variant says of its label points, and then the same for all of them.
    assert all(run.settings[1:] == RECIPES.get((run.system, run.data), ()) for run in runs)
    assert all(run.settings[0].startswith("targets.label_epochs=") for run in runs)


def test_plateau_runs_are_those_that_the_command_looks_for():
    asked = StudyScope("man", ("inceptionxml-lf",), (0,), 9599, 8808, ("text.max_length=16",))
    wanted = {entry.row: entry.run.key for entry in entries(["convergence"], asked)}
    made = {run.key for run in RUN_LISTS["convergence"]()}
    assert {row for row, key in wanted.items() if key in made} == {"D x 1", "D x 2", "G x 1", "G x 2"}


def test_what_is_chosen_is_never_chosen_on_a_test_split():
    assert {run.split for name in ("who_gains", "convergence") for run in RUN_LISTS[name]()} == {"validation"}


def test_settings_have_the_last_word():
    chosen = recipe_of(replace(RUN, settings=("validation.share=0.05", "label_weight=0.5")))
    assert (chosen.validation.share, chosen.targets.label_weight) == (0.05, 0.5)


# ---- what is trained on and scored


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    export(synthetic(400, 60, seed=1, known=0.5).splits, folder / "tiny", "raw")
    return folder


def test_runs_never_train_on_what_they_are_scored_on(root):
    whole = load(root / "tiny")
    given, scored, _ = open_parts("tiny", source_of("tiny", root), "test", 0)
    assert (given.train, given.test) == (whole.train, None)
    assert scored.test == whole.test
    given, scored, _ = open_parts("tiny", source_of("tiny", root), "validation", 3)
    cut = hold_out_points(whole.train, 0.1, 3, at_most=None)
    assert (given.train, given.test) == (cut.rest, None)
    assert (scored.train, scored.test) == (cut.rest, cut.held)
    assert not set(given.train.texts) & set(scored.test.texts)


def test_man_is_the_bundled_set(tmp_path):
    (tmp_path / "man").mkdir()
    assert open_parts("man", source_of("man", tmp_path), "test", 0)[1].name == "LF-ManSeeAlso-9K"


# ---- lines on disk


def test_a_line_that_was_cut_short_costs_that_line_alone(tmp_path):
    path = tmp_path / "new" / "study.jsonl"
    rest = {"run": {}, "name": "", "figures": {}, "steps": 1, "recipe": {}}
    for key in ("a", "b"):
        append(path, {**rest, "key": key, "value": 1})
    path.write_bytes(path.read_bytes()[:-5])
    assert [line["key"] for line in read_lines(path)] == ["a"]
    append(path, {**rest, "key": "c", "value": 2})
    append(path, {**rest, "key": "a", "value": 3})
    found = read_lines(path, tmp_path / "none.jsonl")
    assert [(line["key"], line["value"]) for line in found] == [("a", 3), ("c", 2)]


def started(monkeypatch, tmp_path, runs, *arguments):
    """Run the command on these runs with made-up results; gives the runs that it would have trained."""
    study = tmp_path / "some.json"
    study.write_text(json.dumps([asdict(run) for run in runs]), "utf-8")
    taken = []

    def made_up(left, work, jobs, clock):
        taken.extend(left)
        yield from ((run, line_of(run, 50.0)) for run in left)

    monkeypatch.setattr(engine, "results", made_up)
    monkeypatch.setattr(sys, "argv", ["engine", str(study), "--out", str(tmp_path), *arguments])
    assert engine.main() == 0
    return taken


def test_no_run_is_repeated_and_a_lost_one_is(monkeypatch, tmp_path):
    runs = [replace(RUN, seed=seed) for seed in range(3)]
    stored = tmp_path / "some.jsonl"
    assert started(monkeypatch, tmp_path, [*runs[:2], runs[0]]) == runs[:2]
    assert started(monkeypatch, tmp_path, runs) == runs[2:]
    assert started(monkeypatch, tmp_path, runs) == []
    stored.write_bytes(stored.read_bytes()[:-10])
    assert started(monkeypatch, tmp_path, runs) == runs[2:]
    assert [line["key"] for line in read_lines(stored)] == [run.key for run in runs]


def test_only_what_is_asked_for_is_run(monkeypatch, tmp_path):
    runs = [replace(RUN, seed=seed, data=data) for seed in range(2) for data in ("man", "web")]
    taken = started(monkeypatch, tmp_path, runs, "--data", "web", "--seed", "1", "--set", "epochs=2")
    assert taken == [replace(runs[3], settings=(*RUN.settings, "epochs=2"))]
    assert started(monkeypatch, tmp_path, runs, "--list") == []


# ---- several at once


def test_runs_of_one_data_set_come_together_in_the_order_of_the_study():
    runs = [replace(RUN, data=data, seed=seed) for seed in range(2) for data in ("b", "a")]
    assert [(run.data, run.seed) for run in in_turn(runs)] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]


def behave(run: Run, mark: int) -> dict[str, object]:
    """Work as the run's name says, in another process."""
    if run.data == "dies":
        os._exit(mark)
    if run.data == "sleeps":
        time.sleep(600)
    if run.data == "fails":
        raise ValueError("there it is")
    return {"key": run.key, "process": os.getpid()}


def test_a_run_that_fails_or_dies_takes_no_other_with_it():
    names = ["good", "fails", "dies", "good"]
    runs = [replace(RUN, data=name, seed=seed) for seed, name in enumerate(names)]
    found = dict(results(runs, partial(behave, mark=3), jobs=1, clock=Clock(float("inf"))))
    assert set(found) == set(runs)
    assert "there it is" in found[runs[1]]
    assert "died (3)" in found[runs[2]]
    first, last = found[runs[0]], found[runs[3]]
    assert (first["key"], last["key"]) == (runs[0].key, runs[3].key)
    assert first["process"] == last["process"] != os.getpid()  # runs of a data set are neighbours
    assert not multiprocessing.active_children()


def test_nothing_is_left_running_when_the_time_is_up():
    sleepers = [replace(RUN, data="sleeps", seed=seed) for seed in range(3)]
    assert list(results(sleepers, partial(behave, mark=3), jobs=2, clock=Clock(0.5))) == []
    assert not multiprocessing.active_children()


def test_a_run_is_not_started_that_would_end_too_late():
    clock = Clock(100.0)
    assert clock.allows(RUN)
    clock.longest[RUN.data, RUN.system] = 90.0
    assert not clock.allows(RUN)
    assert not clock.allows(replace(RUN, data="unknown"))
    clock.longest["quick", RUN.system] = 1.0
    assert clock.allows(replace(RUN, data="quick"))


@pytest.fixture
def one_thread():
    """Train here as workers do: other numbers of threads add in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_two_processes_train_and_store_what_one_would(root, monkeypatch, tmp_path):
    base = Run("tiny", "astec", "ratio", settings=TINY)
    runs = [base, replace(base, targets="none", split="validation")]
    study = tmp_path / "tiny.json"
    study.write_text(json.dumps([asdict(run) for run in runs]), "utf-8")
    arguments = [str(study), "--out", str(tmp_path), "--data-root", str(root), "--jobs", "2", "--commit", "c"]
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys, "argv", ["engine", *arguments])
    assert engine.main() == 0
    found = {line["key"]: line for line in read_lines(tmp_path / "tiny.jsonl")}
    assert set(found) == {run.key for run in runs}
    for run in runs:
        line, alone = found[run.key], engine.measured(run, root)
        assert line["figures"] == json.loads(json.dumps(alone["figures"]))
        assert (line["steps"], line["device"], line["commit"], line["jobs"]) == (4, "cpu", "c", 2)
        assert line["peak_memory"] > 2**20 and line["wall"] >= line["seconds"] > 0
        assert (
            line["figures"]["label_text"]["points"] + line["figures"]["new_text"]["points"]
            == (line["figures"]["points"])
        )
        assert Run.of(line["run"]) == run


def test_the_command_needs_only_what_a_training_machine_has():
    code = "import sys, bench.engine; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = command_line.python(code)
    assert loaded.returncode == 0, loaded.stderr
    unwanted = {"typer", "faiss", "sklearn", "tensorboard", "pyarrow", "matplotlib", "transformers", "pytest"}
    assert not unwanted & set(loaded.stdout.split())
