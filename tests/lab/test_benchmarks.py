"""Recipes of the paper's four sets: derived by rules, dry-run by shape, and their cost said beforehand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import done, done_json, fails

from gandalf import augment, label_graph
from gandalf.cli.recipe_options import RecipeOptions
from gandalf.graph.label_graph import GraphOptions
from gandalf.lab.benchmarks import BENCHMARKS, CONSTANTS, LENGTH, PROVIDE, derived, derived_settings
from gandalf.lab.costs import costs, stand_in
from gandalf.lab.variants import Run, recipe_of
from gandalf.recipe import Recipe
from gandalf.runs.checks import check_recipe
from gandalf.runs.cost import H200, Machine, Size, cost
from gandalf.runs.prepare import epoch_steps
from gandalf.systems import NETWORKS, first_departure
from gandalf.train.rates import at_batch

SMALL, LARGE = "LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M"
CPU = Machine("a CPU", "cpu", 5e10, 400.0, 2e-3, 1e-4, None)


@pytest.fixture(scope="module", params=BENCHMARKS)
def drawn(request):
    """A drawn set of the shape of a benchmark, a thousandth as large."""
    return stand_in(request.param)


@pytest.mark.parametrize("system", NETWORKS)
def test_every_recipe_is_dry_run(system, drawn):
    """All that comes before an update: settings, label points, updates, memory and time by the run's plan."""
    found, shape = derived(system, drawn.name), BENCHMARKS[drawn.name]
    check_recipe(found)
    assert found.system == system and first_departure(system, found) is None
    targets = found.targets
    graph = label_graph(drawn.train, GraphOptions(targets=targets.targets, delta=targets.delta))
    points = augment(drawn.train, graph.matrix)
    assert len(points) == drawn.train.targets.shape[0] + drawn.train.num_labels
    small = epoch_steps(drawn.train, found.training.batch) * found.training.epochs
    for machine in (H200, CPU) if drawn.name == SMALL else (H200,):
        told = cost(found, Size(shape.points, shape.labels), shape.words, machine)
        assert told.steps > 100 * small and told.memory > 4 * shape.labels and told.seconds > 60


def test_constants_are_derived_by_the_rules():
    """Worked out by hand: Renee's published 0.05 at 512 points, summed, is 0.05 x 512 x 2.8^2 at ours."""
    assert pytest.approx(100 / (0.05 * 256)) == LENGTH**2
    renee = derived("renee", SMALL)
    assert renee.head.rate == pytest.approx(100.0)
    at_512 = at_batch(renee.head.rate, "sgd", renee.training.batch)
    assert at_512 == pytest.approx(0.05 * 512 * LENGTH**2)
    assert at_512 * renee.head.weight_decay == pytest.approx(0.05 * 1e-4)  # a row shrinks as it did
    assert derived("renee", LARGE).head.rate == pytest.approx(20.0)
    updates = 100 * math.ceil((294_805 + 131_073) / 512)
    assert renee.training.warm_up == pytest.approx(5_000 / updates, rel=1e-4)
    assert derived("eclare", SMALL).head.rate == pytest.approx(4e-3 * LENGTH, rel=1e-4)  # Adam, unscaled
    assert derived("siamesexml", SMALL).head.rate == pytest.approx(2e-4)  # cosines
    assert derived("astec", SMALL).training.epochs == 35.0  # two stages are one
    assert derived("astec", LARGE).encoder.words_rate == pytest.approx(3e-3)


def test_what_was_not_published_for_a_set_is_that_of_the_nearest():
    assert derived("renee", "LF-WikiSeeAlsoTitles-320K").encoder.rate == derived("renee", SMALL).encoder.rate
    assert derived("renee", "LF-WikiTitles-500K").encoder.rate == derived("renee", LARGE).encoder.rate
    of_lf, base = (derived(name, SMALL) for name in ("inceptionxml-lf", "inceptionxml"))
    assert of_lf.encoder.rate == base.encoder.rate and of_lf.training == base.training


@pytest.mark.parametrize("system", ["astec", "renee"])
def test_train_and_reproduce_have_the_same_recipe(system):
    """But for label points, which rows of a study set themselves, and held-out points."""
    asked = RecipeOptions(system=system, config=Path(SMALL)).recipe()
    assert asked == derived(system, SMALL)
    assert (asked.targets.targets, asked.targets.delta, asked.targets.label_epochs) == ("ratio", 0.1, 1.0)
    run = Run("some", system, "ratio", settings=("targets.label_epochs=1", *derived_settings(system, SMALL)))
    assert recipe_of(run) == replace(asked, validation=replace(asked.validation, share=0.0))


def test_each_system_is_listed_with_its_own_recipe_and_its_cost(tmp_path):
    words = (
        "reproduce",
        "delta",
        LARGE,
        "--config",
        LARGE,
        "--seeds",
        1,
        "--out",
        tmp_path / "out",
        "--list",
    )
    found = done_json(*words, "--systems", "astec,inceptionxml")
    left = found["left"]
    assert sum("astec" in each and "training.batch=255" in each for each in left) == len(left) / 2
    assert sum("inceptionxml" in each and "training.batch=128" in each for each in left) == len(left) / 2
    both = {each["system"]: each for each in found["costs"]}
    assert both["astec"]["largest"][1]["steps"] == 35 * math.ceil((2_248_619 + 1_305_265) / 255)
    assert all(each["seconds"][0] > 86_400 and each["largest"][1]["memory"] > 2**30 for each in both.values())
    assert not (tmp_path / "out").exists()


def test_days_are_said_and_what_is_to_be_provided(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = done("reproduce", "cost", LARGE, "--config", LARGE, "--systems", "inceptionxml", "--list")
    assert " days" in said and "one H200" in said and "derived" in said and "published constants" in said
    assert PROVIDE["inceptionxml"].split(":")[0] in said
    here = done("reproduce", "cost", "man", "--list", "--out", tmp_path / "out")
    assert "one H200" in here and "derived" not in here  # told of every set


def test_a_benchmark_that_is_not_there_is_listed_but_not_run(tmp_path):
    assert "there is no file or folder" in fails("reproduce", "cost", LARGE, "--out", tmp_path / "out")
    assert "there is no recipe of parabel for" in fails("config", "--config", SMALL, "--system", "parabel")


def test_costs_of_thinned_and_drawn_sets_are_told_by_their_names():
    settings = ("training.batch=256",)
    whole, half = (Run(data, "astec", settings=settings) for data in (SMALL, f"{SMALL}?points=0.5"))
    drawn = Run("synthetic?points=1000&labels=100", "astec", settings=settings)
    steps = [costs([run], stand_in(SMALL))[0].largest[1].steps for run in (whole, half, drawn)]
    both = 294_805 + 131_073
    assert steps == [15 * math.ceil(n / 256) for n in (both, both - 294_805 / 2, 1_100)]


RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def test_times_are_right_to_a_factor_of_three():
    """Of runs on one H200 that are stored: three heads alone on the card, two transformers among others."""
    found = []
    for path, systems in (("heads/cost.jsonl", None), ("engine/systems.jsonl", ("ngame", "renee"))):
        for text in (RESULTS / path).read_text("utf-8").splitlines():
            line = json.loads(text)
            run = Run.of(line["run"])
            if run.data == "LF-DocsSeeAlsoTitles-79K" and (systems is None or run.system in systems):
                told = cost(_of_run(run), Size(108_968, 78_610), 30_000, H200)
                found.append((run.system, told.seconds / line["seconds"], told.memory / line["peak_memory"]))
    assert {system for system, *_ in found} >= {"astec", "decaf", "eclare", "ngame", "renee"}
    assert all(1 / 3 < time < 3 and 1 / 3 < memory < 3 for _, time, memory in found), found


def _of_run(run: Run) -> Recipe:
    return recipe_of(replace(run, targets="none"))


def test_every_system_of_the_paper_has_recipes():
    assert set(CONSTANTS) == set(NETWORKS)
