"""Runs of a second each, ways to break them off, and what two that are alike have in common."""

from __future__ import annotations

import functools

import torch

import gandalf
from gandalf.data.dataset import Splits
from gandalf.recipe import Recipe
from gandalf.runs.validation import Trained
from gandalf.settings import override
from gandalf.systems import recipe
from gandalf.train.loop import Training

SMALL = ("training.batch=32", "text.max_length=8", "device=cpu")


def small(*settings: str, system: str = "astec") -> Recipe:
    dim = 64 if system.startswith("inceptionxml") else 16
    given = (f"encoder.dim={dim}", "targets.targets=ratio", "training.steps=40", *settings)
    return override(recipe(system), [*SMALL, *given])


@functools.cache
def small_splits() -> Splits:
    return gandalf.synthetic(300, 120, seed=1).splits


class KilledError(BaseException):
    """Stands for kill -9: nothing may catch it."""


def at_step(monkeypatch, number, action):
    """Do something before the step of that number is taken."""
    train_batch = Training._train_batch

    def counted(self, batch, with_loss):
        if self.all_steps == number:
            action()
        train_batch(self, batch, with_loss)

    monkeypatch.setattr(Training, "_train_batch", counted)


def killed():
    raise KilledError


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    parts = {"encoder": trained.model.encoder, "head": trained.model.head}
    return {f"{part}.{name}": each for part, net in parts.items() for name, each in net.state_dict().items()}


def same(one: Trained, other: Trained) -> None:
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert (one.history, one.steps, one.details) == (other.history, other.steps, other.details)
    assert one.model.calibration == other.model.calibration
