"""What `gandalf check` forecasts of a training is the plan that the training makes for itself."""

from __future__ import annotations

import re

import pytest
from command_line import done_json
from small_runs import small_splits

import gandalf
from gandalf.data.forecast import forecast
from gandalf.runs.cost import PATIENCE, Size, with_runs


def test_updates_memory_and_budget_are_those_of_the_run():
    splits = small_splits()
    found = with_runs(forecast(splits), splits)
    search, astec, there = found.costs[1:4]
    assert [cost.step for cost in (search, astec)] == ["train DATA OUT", "train --system astec"]
    assert not any(cost.step.startswith("training") for cost in found.costs)
    minutes = Size.of(splits.train).minutes
    assert 60 * minutes <= search.seconds <= 60 * minutes * PATIENCE
    told: list[str] = []
    trained = gandalf.train(splits, "astec", "validation.share=0", device="cpu", tell=told.append)
    assert f"astec makes {trained.steps:,} updates" in found.assumptions[0]
    (taken,) = re.findall(r"training takes about (\d+) MB", " ".join(told))
    assert astec.bytes / 1e6 == pytest.approx(int(taken), rel=0.3, abs=1)
    assert there.bytes == astec.bytes


def test_check_shows_it():
    steps = [cost["step"] for cost in done_json("check", "man")["forecast"]["costs"]]
    assert steps[:3] == ["graph", "train DATA OUT", "train --system astec"]
