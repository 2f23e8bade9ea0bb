"""A machine that becomes slower while a network learns: the stage ends in time, and the search says so."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.util import find_spec

import pytest
from small_runs import small, small_splits

from gandalf.runs import candidates, search, watch
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.runs.watch import Deadline
from gandalf.settings import override
from gandalf.systems import recipe


class MadeUpClock:
    """Time that goes on by a second a step, and by `slow` seconds from a step on."""

    def __init__(self, slow: float = 1.0, after: int = 0) -> None:
        self.now, self.slow, self.after, self.steps = 0.0, slow, after, 0

    def monotonic(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += self.slow if self.steps >= self.after else 1.0
        self.steps += 1


class FakeTraining:
    """As much of a training as a deadline looks at."""

    def __init__(self, steps: int, clock: MadeUpClock) -> None:
        self.step, self.steps, self.clock = 0, steps, clock

    def shorten(self, left: int) -> None:
        self.steps = min(self.steps, self.step + left)

    def run(self, hook: Deadline) -> float:
        while self.step < self.steps:
            self.step += 1
            self.clock.tick()
            if self.step % hook.every(self) == 0:
                hook(self)
        return self.clock.now


@pytest.mark.parametrize(
    "slow, after, least, most",
    [(1, 0, 1000, 1000), (1.9, 0, 1000, 1000), (10, 0, 200, 200), (10, 500, 650, 660)],
    ids=["in time", "late but within the limit", "ten times slower", "ten times slower from the middle on"],
)
def test_steps_that_do_not_fit_are_left_out(monkeypatch, slow, after, least, most):
    clock = MadeUpClock(slow, after)
    monkeypatch.setattr(watch, "time", clock)
    training = FakeTraining(1000, clock)
    ended = training.run(Deadline(2000.0, 10))
    assert least <= training.step <= most
    assert ended <= 2000 + 10 * slow  # a look at the clock every ten steps


def test_a_run_without_a_deadline_takes_all_steps_and_one_with_too_little_time_few():
    asked = small("training.steps=400", "validation.share=0.2", "training.last_stretch=0.5")
    late = RunPlace(until=time.monotonic())
    short = run_training(small_splits(), asked, late)
    assert short.shortened and short.steps < 40 and short.held is not None
    assert not run_training(small_splits(), small("training.steps=4"), RunPlace()).shortened


@pytest.mark.skipif(find_spec("omikuji") is None, reason="omikuji is an optional library: extra [parabel]")
def test_a_search_ends_in_time_where_the_machine_becomes_slower(monkeypatch):
    words = override(recipe("astec"), ["encoder.dim=16", "training.batch=32", "training.epochs=400"])
    monkeypatch.setattr(candidates, "words_recipe", lambda *_: words)
    monkeypatch.setattr(search, "LATE", 0.1)
    given = override(recipe("auto"), ["search.minutes=0.2", "device=cpu"])
    given = replace(given, search=replace(given.search, parts=("linear", "words")))
    told: list[str] = []
    found = search.search(small_splits(), given, RunPlace(tell_search=told.append))
    row = next(each for each in found.tried if each.name == "words")
    assert "slower" in row.note and any("slower" in note for note in found.notes)
    assert row.scores is not None
