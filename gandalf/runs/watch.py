"""Watch a training between its steps: log it, save it from time to time, end it in time or by Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gandalf.errors import DataError
from gandalf.runs.validation import Validate
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Training
from gandalf.train.parallel.ranks import Ranks


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user between two steps."""

    def __init__(self, step: int, steps: int, saved: bool) -> None:
        super().__init__(f"stopped after step {step:,} of {steps:,}")
        self.saved = saved  # True if a checkpoint holds the weights of this step


class StopRequest:
    """Remember that Ctrl-C asked for the end, so that the run ends between two steps; a second ends it at
    once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Ctrl-C and the signal of `kill` for the body; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._ask) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def on_any_rank(self, ranks: Ranks) -> bool:
        """Return True if a rank was asked to end; signals reach the ranks at different steps."""
        self.asked = ranks.any_rank(self.asked)
        return self.asked

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class AfterEachStep:
    """Move the bar after each step, save a checkpoint when it is due, and end if the user asked for it."""

    def __init__(
        self, bar: TrainingBar, stop: StopRequest, save: Callable[[], None], minutes: float, ranks: Ranks
    ) -> None:
        self.bar, self.stop, self.save, self.ranks = bar, stop, save, ranks
        self.seconds, self.last_save = 60 * minutes, time.monotonic()

    def __call__(self, training: Training) -> bool:
        """Return True if the user asked for the end; a checkpoint is saved before."""
        self.bar.advance(training.stage.order.batch)
        if training.step == training.steps:
            return False  # the run saves a checkpoint at the end of a stage
        stop = self.stop.on_any_rank(self.ranks)
        if stop or self.ranks.any_rank(time.monotonic() - self.last_save >= self.seconds):
            self.save()
            self.last_save = time.monotonic()
        return stop


def log_loss(log: RunLog, bar: TrainingBar, training: Training) -> None:
    """Write the loss; refuse to go on after a loss that is not finite."""
    points = training.step * training.stage.order.batch
    log.write("train", training.all_steps, loss=training.loss, points=points)
    bar.advance(0, training.loss)
    if not math.isfinite(training.loss):
        raise DataError(
            f"the loss at step {training.step:,} is no number any more",
            remedy="learn more slowly: lower head.rate, encoder.rate or encoder.words_rate with --set",
        )


def log_validation(log: RunLog, bar: TrainingBar, validate: Validate, training: Training) -> None:
    """Write the figures of the validation at this step."""
    figures = validate.history[-1]
    log.write("validation", **figures)
    bar.show_figure(f"{validate.options.metric} {figures['value']:.1f}")


class Deadline:
    """Hook that shortens a stage whose remaining steps would end after `until` (`time.monotonic`).

    A machine may become slower than the budget was planned for.
    """

    def __init__(self, until: float, steps: int) -> None:
        self.until, self.steps = until, steps
        self._began: tuple[float, int] | None = None  # time and step of the first call

    def every(self, training: Training) -> int:
        """Return the number of steps between two looks at the clock."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Shorten the training if it is late; never end it here, since the rates still have to fall."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, training.step  # the steps before include the time to warm up
            return False
        began, first = self._began
        seconds_a_step = max(now - began, 1e-9) / max(training.step - first, 1)
        steps_that_fit = int((self.until - now) / seconds_a_step)
        training.shorten(max(steps_that_fit, 1))
        return False
