"""Learning rate over the course of training, as a share of its highest value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

ScheduleName = Literal["one-cycle", "cosine", "linear", "constant"]
START, END = 0.1, 1e-4  # of one-cycle, as shares of the highest rate


def _cosine(start: float, end: float, way: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * way)) / 2


def one_cycle(way: float, warm_up: float) -> float:
    """From a tenth up to the full rate along a cosine, then down to nearly nothing."""
    if way < warm_up:
        return _cosine(START, 1.0, way / warm_up)
    return _cosine(1.0, END, (way - warm_up) / max(1 - warm_up, 1e-9))


def cosine(way: float, warm_up: float) -> float:
    """Straight up from nothing, then down to nothing along a cosine."""
    if way < warm_up:
        return way / warm_up
    return _cosine(1.0, 0.0, (way - warm_up) / max(1 - warm_up, 1e-9))


def linear(way: float, warm_up: float) -> float:
    """Straight up from nothing, then straight down to nothing."""
    return way / warm_up if way < warm_up else 1 - (way - warm_up) / max(1 - warm_up, 1e-9)


def constant(way: float, warm_up: float) -> float:
    """Straight up from nothing, then always the same."""
    return way / warm_up if way < warm_up else 1.0


SCHEDULES: dict[ScheduleName, Callable[[float, float], float]] = {
    "one-cycle": one_cycle,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
