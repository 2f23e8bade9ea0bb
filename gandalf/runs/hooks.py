"""What happens between the steps of a run: logs, checkpoints, and an end when someone asks for it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch

from gandalf.runs.validation import Validate
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.labels import Shortlist
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Training


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user between two steps, after a checkpoint."""


class Stop:
    """Ctrl-C asks for the end; the loop answers between two steps. A second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    def every(self, training: Training) -> int:
        """Looked at after every step that ends a stretch; see `Log`."""
        return max(1, training.steps)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Ctrl-C for the body, where that is possible: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Log:
    """Hook that writes the loss down and moves the bar, and stops where it is asked to."""

    def __init__(
        self, log: RunLog, bar: TrainingBar, stop: Stop, every: int, validate: Validate | None
    ) -> None:
        self.log, self.bar, self.stop, self.steps, self.validate = log, bar, stop, every, validate
        self.told = 0  # validations written so far
        self.last = 0

    def every(self, training: Training) -> int:
        """Number of steps between two lines."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Write; True where the user asked for the end."""
        batch = training.stage.order.batch
        self.log.write("train", training.step, loss=training.loss, points=training.step * batch)
        self.bar.advance((training.step - self.last) * batch, training.loss)
        self.last = training.step
        if self.validate is not None:
            for each in self.validate.history[self.told :]:
                self.log.write("validation", **each)
                self.bar.validated(f"{self.validate.options.metric} {each['value']:.1f}")
            self.told = len(self.validate.history)
        return self.stop.asked


class Save:
    """Hook that writes a checkpoint when the last one is old enough, or when the end is asked for."""

    def __init__(
        self, checkpoints: Checkpoints, about: dict[str, Any], stop: Stop, parts: Parts, minutes: float
    ) -> None:
        self.checkpoints, self.about, self.stop, self.parts = checkpoints, about, stop, parts
        self.seconds, self.last = 60 * minutes, time.monotonic()

    def every(self, training: Training) -> int:
        """As often as the log."""
        return self.parts.every

    def __call__(self, training: Training) -> bool:
        """Save where it is time; the end of training needs none."""
        due = time.monotonic() - self.last >= self.seconds or self.stop.asked
        if due and training.step < training.steps:
            tensors, numbers = training.state()
            more, facts = self.parts.state()
            self.checkpoints.save(tensors | more, {**self.about, **numbers, **facts})
            self.last = time.monotonic()
        return False


class Parts:
    """What else a run must remember: hard negatives, validations so far and the best weights."""

    def __init__(self, labels: object, validate: Validate | None, every: int) -> None:
        self.shortlist = labels if isinstance(labels, Shortlist) else None
        self.validate, self.every = validate, every

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and numbers for a checkpoint."""
        tensors: dict[str, torch.Tensor] = {}
        if self.shortlist is not None and self.shortlist.hardest is not None:
            tensors["hardest"] = torch.from_numpy(self.shortlist.hardest)
        if self.validate is None:
            return tensors, {}
        tensors |= {f"best/{name}": each for name, each in (self.validate.best or {}).items()}
        return tensors, {"validations": self.validate.history}

    def load(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        if self.shortlist is not None and "hardest" in tensors:
            self.shortlist.refresh(tensors["hardest"].numpy())
        if self.validate is not None:
            self.validate.history = list(facts.get("validations", []))
            best = {n.removeprefix("best/"): t for n, t in tensors.items() if n.startswith("best/")}
            self.validate.best = best or None
