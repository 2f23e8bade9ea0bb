"""How long studies will take, told before they start."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from small_runs import small_splits

from gandalf.cli.reproduce import spoken
from gandalf.lab.costs import Pace, kind, passes, steps
from gandalf.lab.variants import Run
from gandalf.runs.choose import CANDIDATES

BASE = ("training.batch=32", "encoder.dim=8", "device=cpu")


def run_of(*settings, **more):
    return Run("some", "astec", settings=(*BASE, *settings), **more)


def test_steps_are_those_of_the_recipe():
    splits = small_splits()  # 300 points and 120 labels: 14 batches of 32
    assert steps(run_of("training.epochs=3"), splits) == 3 * 14
    assert steps(run_of("training.steps=7"), splits) == 7
    assert steps(run_of("training.epochs=3", targets="auto"), splits) == 3 * 14


def test_a_stored_run_tells_the_pace():
    pace = Pace(small_splits(), "Some CPU")
    line = {
        "run": asdict(run_of("training.steps=10")),
        "machine": {"cpu": "Some CPU"},
        "steps": 10,
        "wall": 5.0,
    }
    pace.learn([{**line, "machine": {"cpu": "Other"}, "wall": 500.0}, line])
    assert pace.seconds(run_of("training.steps=20")) == pytest.approx(10.0)
    assert pace.seconds(run_of("training.steps=20", targets="auto")) == pytest.approx(10.0 * passes("auto"))
    assert passes("auto") == 1 + 0.5 * (len(CANDIDATES) + 1) and passes("ratio") == 1


def test_a_few_steps_tell_it_where_nothing_is_stored():
    pace = Pace(small_splits(), "Some CPU")
    few, many = (pace.seconds(run_of(f"training.steps={number}")) for number in (10, 1000))
    assert few > 0 and many == pytest.approx(100 * few)
    assert kind(run_of()) in pace.known and kind(run_of("encoder.dim=16")) not in pace.known


def test_stretches_of_time():
    assert [spoken(each) for each in (0.2, 80, 100, 3000, 9000)] == [
        "1 second",
        "80 seconds",
        "2 minutes",
        "50 minutes",
        "2.5 hours",
    ]
