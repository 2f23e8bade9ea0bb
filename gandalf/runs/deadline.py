"""A stage that ends in time on a machine that has become slower than the budget was planned for."""

from __future__ import annotations

import time

from gandalf.train.loop import Training


class Deadline:
    """Hook that shortens a stage where the steps that are left would end after `until` (`time.monotonic`)."""

    def __init__(self, until: float, every: int) -> None:
        self.until, self.steps = until, every
        self._began: tuple[float, int] | None = None  # time and step of the first call

    def every(self, training: Training) -> int:
        """Return the number of steps between two looks at the clock."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Look at the clock; never end the training, since the rates still have to fall."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, training.step  # the steps before it paid for what is made once
            return False
        began, first = self._began
        seconds_a_step = max(now - began, 1e-9) / max(training.step - first, 1)
        steps_that_fit = int((self.until - now) / seconds_a_step)
        training.shorten(max(steps_that_fit, 1))
        return False
