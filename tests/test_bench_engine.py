"""The machinery of the experiments: which runs there are, that none is repeated or lost, and their page."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import torch

from bench import engine
from bench.engine import append, parts, read_lines, recipe_of
from bench.parallel import Clock, in_turn, results
from bench.results_page import measured_on, page
from bench.studies import RECIPES, SEEDS, SETS, STUDIES, SYSTEMS, VARIANTS, Run
from bench.tables import WHO_GAINS, Sample, best_rows, figure, noise, pooled, setting_table
from gandalf import export, load, synthetic
from gandalf.data.holdout import holdout

TINY = ("steps=4", "batch=16", "dim=8", "device=cpu", "precision=float32")
RUN = Run("man", "astec", "shrunk", settings=("training.steps=20",))


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


@pytest.mark.parametrize("study", STUDIES)
def test_studies_name_each_run_once_and_every_run_has_a_recipe(study):
    runs = STUDIES[study]()
    assert runs and len({run.key for run in runs}) == len(runs)
    for run in runs:
        chosen = recipe_of(run)
        assert (chosen.system, chosen.targets.targets, chosen.seed) == (run.system, run.targets, run.seed)
        assert chosen.validation.share == 0


def test_main_is_every_variant_of_every_system_on_every_set_at_equal_settings():
    runs = STUDIES["main"]()
    seeds = sum(len(SEEDS) if variant.keep == "both" else 1 for variant in VARIANTS.values())
    assert len(runs) == len(SETS) * len(SYSTEMS) * seeds
    assert all(run.split == "test" for run in runs)
    # What the variant says of its label points, and then the same for all of them.
    assert all(run.settings[1:] == RECIPES.get((run.system, run.data), ()) for run in runs)
    assert all(run.settings[0].startswith("targets.label_epochs=") for run in runs)


def test_what_is_chosen_is_never_chosen_on_a_test_split():
    assert {run.split for name in ("who_gains", "plateau") for run in STUDIES[name]()} == {"validation"}


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
    given, scored = parts("tiny", "test", 0, root)
    assert (given.train, given.test) == (whole.train, None)
    assert scored.test == whole.test
    given, scored = parts("tiny", "validation", 3, root)
    cut = holdout(whole.train, 0.1, 3, at_most=None)
    assert (given.train, given.test) == (cut.rest, None)
    assert (scored.train, scored.test) == (cut.rest, cut.held)
    assert not set(given.train.texts) & set(scored.test.texts)


def test_man_is_the_bundled_set(tmp_path):
    assert parts("man", "test", 0, tmp_path)[1].name == "LF-ManSeeAlso-9K"


# ---- lines on disk


def test_a_line_that_was_cut_short_costs_that_line_alone(tmp_path):
    path = tmp_path / "new" / "study.jsonl"
    for key in ("a", "b"):
        append(path, {"key": key, "value": 1})
    path.write_bytes(path.read_bytes()[:-5])
    assert [line["key"] for line in read_lines(path)] == ["a"]
    append(path, {"key": "c", "value": 2})
    append(path, {"key": "a", "value": 3})
    assert read_lines(path, tmp_path / "none.jsonl") == [{"key": "a", "value": 3}, {"key": "c", "value": 2}]


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {"typer", "faiss", "sklearn", "tensorboard", "pyarrow", "matplotlib", "transformers", "pytest"}
    assert not unwanted & set(loaded.stdout.split())


# ---- figures over seeds


def test_noise_is_the_interval_of_a_two_sample_t_test():
    one, other = Sample((50.0, 52.0, 54.0)), Sample((40.0, 41.0, 42.0))
    assert pooled([one, other, Sample((7.0,))]) == (pytest.approx(np.sqrt(2.5)), 4)
    # 2.776 is Student's 97.5 % point with 4 degrees of freedom.
    assert noise(one, other, pooled([one, other])) == pytest.approx(2.776 * np.sqrt(2.5 * 2 / 3), abs=1e-3)
    assert np.isnan(noise(Sample((1.0,)), Sample((2.0,)), pooled([Sample((1.0,))])))
    assert one.error == pytest.approx(2 / np.sqrt(3))


def test_the_best_rows_are_those_that_none_beats_by_more_than_noise():
    low, near, high = Sample((1.0, 1.2)), Sample((4.9, 5.1)), Sample((5.0, 5.2))
    assert best_rows({"low": low, "high": high}) == {"high"}
    assert best_rows({"low": low, "near": near, "high": high}) == {"near", "high"}
    assert best_rows({"near": near, "high": high}) == set()
    assert best_rows({"high": high, "absent": Sample(())}) == set()
    assert best_rows({"one": Sample((1.0,)), "other": Sample((9.0,))}) == set()  # noise is not known


# ---- the page


def line_of(run: Run, p1: float, **targets: object) -> dict[str, object]:
    """A made-up line: other figures follow from P@1."""
    figures = {f"{name}@{k}": p1 - k for name in ("P", "PSP", "C") for k in (1, 3, 5)} | {"P@1": p1}
    kind = {"targets": run.targets, "scale": 1.0, "label_weight": 1.0, "label_epochs": 1.0}
    return {
        "key": run.key,
        "run": asdict(run),
        "name": "Some-1K",
        "device": "cuda",
        "figures": {
            **figures,
            "points": 1000,
            "label_text": {"points": 400, "P@1": p1 + 10, "PSP@5": p1},
            "new_text": {"points": 600, "P@1": p1 - 10, "PSP@5": p1},
        },
        "steps": 1234,
        "seconds": 60.0 + run.seed,
        "wall": 70.0,
        "peak_memory": 5 * 2**30,
        "recipe": {"targets": kind | targets, "training": {"epochs": 10.0}},
        "commit": "1a2b3c4",
        "machine": {"cpu": "Some CPU", "gpu": "Some GPU", "cores": 16, "python": "3.12.1", "torch": "2.11.0"},
        "jobs": 6,
    }


def made_up_study():
    base = Run("some", "astec", settings=("batch=64",))
    runs = {
        name: [
            replace(base, targets=one.targets, keep=one.keep, settings=(*one.settings, "batch=64"), seed=seed)
            for seed in (0, 1)
        ]
        for name, one in VARIANTS.items()
        if name in ("D", "Z1", "G")
    }
    p1 = {"D": (40.0, 40.4), "Z1": (45.0, 45.4), "G": (48.0, 48.4)}
    lines = [line_of(run, value) for name in runs for run, value in zip(runs[name], p1[name], strict=True)]
    return [run for of in runs.values() for run in of], lines


GOLDEN = """\
- Some GPU, Some CPU with 16 cores, Python 3.12.1, torch 2.11.0: 6 runs, 6 at once, commit 1a2b3c4

## Some-1K

### astec

Seeds: 2. Steps: 1,234, on cuda. Test points: 1,000, 400 with the text of a label and 600 with a new one. \
Settings: `targets.label_epochs=1`, `batch=64`.

|  | P@1 | P@3 | P@5 | PSP@1 | PSP@3 | PSP@5 | C@1 | C@3 | C@5 | P@1 label text | P@1 new text | seconds \
| peak MB |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| D | 40.20 ± 0.28 | 37.20 ± 0.28 | 35.20 ± 0.28 | 39.20 ± 0.28 | 37.20 ± 0.28 | 35.20 ± 0.28 | 39.20 ± 0.28 \
| 37.20 ± 0.28 | 35.20 ± 0.28 | 50.20 ± 0.28 | 30.20 ± 0.28 | 60.5 | 5,120 |
| Z1 | 45.20 ± 0.28 | 42.20 ± 0.28 | 40.20 ± 0.28 | 44.20 ± 0.28 | 42.20 ± 0.28 | 40.20 ± 0.28 \
| 44.20 ± 0.28 | 42.20 ± 0.28 | 40.20 ± 0.28 | 55.20 ± 0.28 | 35.20 ± 0.28 | 60.5 | 5,120 |
| G | **48.20** ± 0.28 | **45.20** ± 0.28 | **43.20** ± 0.28 | **47.20** ± 0.28 | **45.20** ± 0.28 \
| **43.20** ± 0.28 | **47.20** ± 0.28 | **45.20** ± 0.28 | **43.20** ± 0.28 | **58.20** ± 0.28 \
| **38.20** ± 0.28 | 60.5 | 5,120 |

|  | P@1 − D | PSP@5 − D | P@1 label text − D | P@1 new text − D | P@1 − Z1 | PSP@5 − Z1 \
| P@1 label text − Z1 | P@1 new text − Z1 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| Z1 | **+5.00** ± 0.90 | **+5.00** ± 0.90 | **+5.00** ± 0.90 | **+5.00** ± 0.90 |  |  |  |  |
| G | **+8.00** ± 0.90 | **+8.00** ± 0.90 | **+8.00** ± 0.90 | **+8.00** ± 0.90 | **+3.00** ± 0.90 \
| **+3.00** ± 0.90 | **+3.00** ± 0.90 | **+3.00** ± 0.90 |
"""


def test_the_page_of_made_up_results():
    wanted, lines = made_up_study()
    assert page(lines, [], wanted).endswith(GOLDEN)


def test_the_page_shows_runs_of_the_study_alone_and_says_what_is_missing():
    wanted, lines = made_up_study()
    old = line_of(replace(wanted[0], settings=("batch=32",)), 99.0)
    assert page([old, *lines], [], wanted) == page(lines, [], wanted)
    text = page(lines[:-1], [], wanted)
    assert "**1 of 6 runs are still to be made.**" in text
    assert "Seeds: 1 to 2." in text
    assert "\n| G | **48.00** | " in text  # one seed has no spread of its own


def test_chosen_settings_have_a_row_of_their_own_even_where_a_variant_was_chosen():
    wanted, lines = made_up_study()
    first = line_of(replace(wanted[4], settings=("scale=0.3",)), 10.0, scale=0.3)
    chosen = [first, line_of(wanted[4], 50.0), line_of(wanted[5], 51.0, scale=0.5)]
    text = page(lines, chosen, wanted)
    assert "\n| auto | **50.50** ± 0.71 |" in text and "\n| G | 48.20 ± 0.28 |" in text
    assert "- auto, seed 0: targets ratio, scale 1.0, label_weight 1.0, label_epochs 1.0\n" in text
    assert "- auto, seed 1: targets ratio, scale 0.5, label_weight 1.0, label_epochs 1.0\n" in text


def test_a_table_of_settings_has_standard_errors_and_mixes_no_two_settings():
    base = Run("some", "astec", "shrunk", settings=("scale=0.5",), split="validation")
    lines = [line_of(replace(base, seed=seed), 40.0 + seed, scale=0.5) for seed in (0, 2)]
    lines.append(line_of(replace(base, settings=()), 38.0))
    lines.append(line_of(replace(base, settings=("epochs=20",)), 39.0))
    lines.append(line_of(replace(base, targets="none"), 30.0))
    columns = {"new": WHO_GAINS["P@1 new text"], "PSP@5": figure("PSP@5", "label_text")}
    assert setting_table(lines, ("targets", "scale", "training.epochs"), columns).splitlines() == [
        "| targets | scale | epochs | new | PSP@5 | seeds |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| shrunk | 0.5 | 10 | 31.00 ± 1.00 | 41.00 ± 1.00 | 2 |",
        "| shrunk | 1 | 10 | 28.00 | 38.00 | 1 |",
        "| shrunk | 1 | 10 | 29.00 | 39.00 | 1 |",
        "| none |  | 10 | 20.00 | 30.00 | 1 |",
    ]


def test_runs_on_a_cpu_name_no_gpu():
    line = line_of(RUN, 50.0) | {"device": "cpu"}
    line["machine"] = {name: value for name, value in line["machine"].items() if name != "gpu"}
    assert measured_on([line]).startswith("- Some CPU with 16 cores, Python 3.12.1")
