"""Learning rates over the course of training."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gandalf.train.schedules import END, SCHEDULES, START

# At the start, and at the end.
ENDS = {"one-cycle": (START, END), "cosine": (0.0, 0.0), "linear": (0.0, 0.0), "constant": (0.0, 1.0)}
every_schedule = pytest.mark.parametrize("name", SCHEDULES)
warm_ups = st.floats(0.01, 0.99)


@every_schedule
@given(warm_up=warm_ups)
def test_start_peak_and_end(name, warm_up):
    schedule, (start, end) = SCHEDULES[name], ENDS[name]
    assert schedule(0.0, warm_up) == pytest.approx(start, abs=1e-12)
    assert schedule(warm_up, warm_up) == pytest.approx(1.0)
    assert schedule(np.nextafter(warm_up, 0.0), warm_up) == pytest.approx(1.0)  # from both sides
    assert schedule(1.0, warm_up) == pytest.approx(end, abs=1e-12)


@every_schedule
@given(warm_up=warm_ups)
def test_it_rises_to_the_peak_and_never_after(name, warm_up):
    schedule = SCHEDULES[name]
    rising = [schedule(way, warm_up) for way in np.linspace(0, warm_up, 50)]
    falling = [schedule(way, warm_up) for way in np.linspace(warm_up, 1, 50)]
    assert (np.diff(rising) > -1e-12).all() and rising[-1] > rising[0]
    assert (np.diff(falling) < 1e-12).all()
    assert min(rising + falling) >= 0.0 and max(rising + falling) <= 1.0 + 1e-12


@every_schedule
@given(warm_up=warm_ups, way=st.floats(0, 0.999))
def test_nothing_jumps(name, warm_up, way):
    schedule = SCHEDULES[name]
    steepest = 4 / min(warm_up, 1 - warm_up)  # a cosine's slope is at most pi / 2 over its width
    assert abs(schedule(way + 0.001, warm_up) - schedule(way, warm_up)) < 0.001 * steepest


@every_schedule
@pytest.mark.parametrize("way", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("warm_up", [0.0, 1.0])
def test_no_warm_up_and_nothing_else_are_allowed(name, way, warm_up):
    value = SCHEDULES[name](way, warm_up)
    assert 0.0 <= value <= 1.0
    if way == warm_up:
        assert value == 1.0


def test_half_way_down_a_cosine_is_half():
    assert SCHEDULES["cosine"](0.6, 0.2) == pytest.approx(0.5)
    assert SCHEDULES["cosine"](0.1, 0.2) == pytest.approx(0.5)
    assert SCHEDULES["linear"](0.6, 0.2) == pytest.approx(0.5)
    assert SCHEDULES["linear"](0.8, 0.2) == pytest.approx(0.25)
    assert SCHEDULES["constant"](0.6, 0.2) == 1.0
    assert SCHEDULES["one-cycle"](0.6, 0.2) == pytest.approx((1 + END) / 2)
