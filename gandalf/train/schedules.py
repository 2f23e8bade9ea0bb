"""Schedule the learning rate: a share of its highest value, by the progress of the stage from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

ScheduleName = Literal["one-cycle", "cosine", "linear", "constant"]
START, END = 0.1, 1e-4  # of one-cycle, as shares of the highest rate


def _after(progress: float, warm_up: float) -> float:
    """Return the share of the time after the warm-up that is over."""
    return (progress - warm_up) / max(1 - warm_up, 1e-9)


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def one_cycle(progress: float, warm_up: float) -> float:
    """Rise from a tenth to the full rate along a cosine, then fall to nearly 0 along a cosine."""
    if progress < warm_up:
        return _cosine(START, 1.0, progress / warm_up)
    return _cosine(1.0, END, _after(progress, warm_up))


def cosine(progress: float, warm_up: float) -> float:
    """Rise linearly from 0, then fall to 0 along a cosine."""
    if progress < warm_up:
        return progress / warm_up
    return _cosine(1.0, 0.0, _after(progress, warm_up))


def linear(progress: float, warm_up: float) -> float:
    """Rise linearly from 0, then fall linearly to 0."""
    return progress / warm_up if progress < warm_up else 1 - _after(progress, warm_up)


def constant(progress: float, warm_up: float) -> float:
    """Rise linearly from 0, then stay at the full rate."""
    return progress / warm_up if progress < warm_up else 1.0


SCHEDULES: dict[ScheduleName, Callable[[float, float], float]] = {
    "one-cycle": one_cycle,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
}
