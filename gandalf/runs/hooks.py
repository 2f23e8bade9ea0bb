"""What happens between the steps of a run: logs, checkpoints, and an end when someone asks for it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gandalf.errors import DataError
from gandalf.runs.siamese import Cache
from gandalf.runs.validation import Validate
from gandalf.train.labels import Shortlist
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Training
from gandalf.train.orders import Clustered
from gandalf.train.parallel.ranks import ONE, Ranks


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user between two steps; what it had learnt is in a checkpoint."""

    def __init__(self, step: int, steps: int, saved: bool) -> None:
        super().__init__(f"stopped after step {step:,} of {steps:,}")
        self.saved = saved


class Stop:
    """Ctrl-C asks for the end; the loop answers between two steps. A second one ends at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Ctrl-C and the signal of `kill` for the body, where that can be: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._ask) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Log:
    """Hook that writes down the loss, and ends a training that has gone astray."""

    def __init__(self, log: RunLog, bar: TrainingBar, every: int) -> None:
        self.log, self.bar, self.steps = log, bar, every

    def every(self, training: Training) -> int:
        """Number of steps between two lines."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Write; never ends the training but by an error."""
        points = training.step * training.stage.order.batch
        self.log.write("train", training.all_steps, loss=training.loss, points=points)
        self.bar.advance(0, training.loss)
        if not math.isfinite(training.loss):
            raise DataError(
                f"the loss at step {training.step:,} is no number any more",
                remedy="learn more slowly: lower head.rate, encoder.rate or encoder.words_rate with --set",
            )
        return False


class LogValidation:
    """Hook that writes down what the validation, which comes before it at the same steps, has found."""

    def __init__(self, log: RunLog, bar: TrainingBar, validate: Validate) -> None:
        self.log, self.bar, self.validate = log, bar, validate

    def every(self, training: Training) -> int:
        """As often as there are validations."""
        return self.validate.every(training)

    def __call__(self, training: Training) -> bool:
        """Write; never ends the training."""
        found = self.validate.history[-1]
        self.log.write("validation", **found)
        self.bar.validated(f"{self.validate.options.metric} {found['value']:.1f}")
        return False


class Between:
    """What is looked at after every step: the bar, the clock that asks for checkpoints, and Ctrl-C."""

    def __init__(
        self, bar: TrainingBar, stop: Stop, save: Callable[[], None], minutes: float, ranks: Ranks
    ) -> None:
        self.bar, self.stop, self.save, self.ranks = bar, stop, save, ranks
        self.seconds, self.last = 60 * minutes, time.monotonic()

    def __call__(self, training: Training) -> bool:
        """Save where it is time; True where the user asked for the end, which is saved first."""
        self.bar.advance(training.stage.order.batch)
        if training.step == training.steps:
            return False  # nothing is left to do, so nothing to go on with
        self.stop.asked = self.ranks.any_rank(self.stop.asked)  # ranks hear of it at different steps
        if self.stop.asked or self.ranks.any_rank(time.monotonic() - self.last >= self.seconds):
            self.save()
            self.last = time.monotonic()
        return self.stop.asked


@dataclass(frozen=True)
class Saving:
    """How a run is watched and kept: its name on the bar, who may stop it, and when it is saved."""

    title: str
    stop: Stop
    save: Callable[[], None]
    minutes: float
    ranks: Ranks = ONE

    def between(self, bar: TrainingBar) -> Between:
        """What is looked at after every step of a stage with this bar."""
        return Between(bar, self.stop, self.save, self.minutes, self.ranks)


class Memory:
    """What else a stage must remember: hard negatives, clusters, validations so far and the best weights."""

    def __init__(self, mined: object, validate: Validate | None, cache: Cache | None = None) -> None:
        self.shortlist = mined if isinstance(mined, Shortlist) else None
        self.clustered = mined if isinstance(mined, Clustered) else None
        self.validate, self.cache = validate, cache

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Tensors and numbers for a checkpoint."""
        tensors: dict[str, torch.Tensor] = {}
        if self.shortlist is not None and self.shortlist.hardest is not None:
            tensors["hardest"] = torch.from_numpy(self.shortlist.hardest)
        for start, assignment in () if self.clustered is None else self.clustered.assignments:
            tensors[f"clusters/{start}"] = torch.from_numpy(assignment)
        if self.cache is not None and self.cache.vectors is not None:
            tensors["cache"] = self.cache.vectors
        if self.validate is None:
            return tensors, {}
        tensors |= {f"best/{name}": each for name, each in (self.validate.best or {}).items()}
        return tensors, {"validations": self.validate.history, "deciding": self.validate.points}

    def load(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        if self.shortlist is not None and "hardest" in tensors:
            self.shortlist.refresh(tensors["hardest"].numpy())
        if self.clustered is not None:
            starts = sorted(int(n.removeprefix("clusters/")) for n in tensors if n.startswith("clusters/"))
            for start in starts:
                self.clustered.refresh(tensors[f"clusters/{start}"].numpy(), start)
        if self.cache is not None and "cache" in tensors:
            self.cache.vectors = tensors["cache"].clone()
        if self.validate is not None:
            self.validate.history = list(facts.get("validations", []))
            self.validate.points = int(facts.get("deciding", 0))
            best = {n.removeprefix("best/"): t for n, t in tensors.items() if n.startswith("best/")}
            self.validate.best = best or None
