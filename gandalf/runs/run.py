"""A training run: from a data set and a recipe to a model, and to its folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores, evaluate
from gandalf.model import Model
from gandalf.model.calibration import Calibration
from gandalf.predict.calibration import fit_calibration
from gandalf.predict.predictor import Predictor
from gandalf.recipe import Recipe
from gandalf.runs.assemble import DTYPES, assemble, encoder_options
from gandalf.runs.hardware import resolved
from gandalf.runs.hooks import Between, Interrupted, Log, LogValidation, Memory, Stop
from gandalf.runs.limits import check_encoder, check_order, check_points, check_recipe
from gandalf.runs.material import Augmented, Cut, augmented, cut, epoch_steps, fit_tokens, loop_points, order
from gandalf.runs.shape import run_shape
from gandalf.runs.shortlists import Refresh
from gandalf.runs.validation import Held, Validate
from gandalf.settings import to_dict
from gandalf.text.tokens import Tokens
from gandalf.train.batches import Points
from gandalf.train.checkpoint import Checkpoints, fingerprint
from gandalf.train.head_update import RowOptions
from gandalf.train.labels import Every, Labels, Shortlist
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Hook, Stage, Training
from gandalf.train.memory import out_of_memory, require_memory
from gandalf.train.optimisers import EncoderOptions

CHECKPOINTS = "checkpoints"  # folder in the run's
LINES = 20  # of the log in an epoch
TOP = 100  # labels predicted for each test point, after its filter


@dataclass(frozen=True)
class Place:
    """Where a run keeps its log and checkpoints, and how often; without a folder it keeps nothing."""

    folder: Path | None = None
    resume: bool = False
    minutes: float = 5.0  # between checkpoints
    tensorboard: bool = False
    title: str = ""  # of the bar; by default the system's name

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The run's checkpoints."""
        return None if self.folder is None else Checkpoints(self.folder / CHECKPOINTS)

    @property
    def token_table(self) -> Path | None:
        """Where very many token ids are put while the run goes on."""
        return None if self.folder is None else self.folder / CHECKPOINTS / "tokens.npy"


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run gives: the model and the course of its training."""

    model: Model
    history: list[dict[str, Any]]  # of the validations
    seconds: float
    steps: int
    details: dict[str, Any] = field(default_factory=dict)  # of the label graph
    points: int = 0  # training points that were trained on
    label_points: int = 0

    @property
    def kept(self) -> dict[str, Any] | None:
        """The validation of the weights that were kept: the best where there is patience, else the last."""
        if not self.history:
            return None
        patience = self.model.config["validation"]["patience"]
        return max(self.history, key=lambda each: float(each["value"])) if patience else self.history[-1]


def train(splits: Splits, recipe: Recipe, place: Place | None = None) -> Trained:
    """Train by the recipe, whose targets are chosen by now; the test split is not looked at."""
    place = place or Place()
    check_recipe(recipe)
    check_points(splits.train)
    check_encoder(recipe.encoder)
    recipe = resolved(recipe, len(splits.train), splits.train.num_labels)
    parts = _cut(splits.train, recipe)
    tokens = fit_tokens(parts.rest, recipe.text, recipe.encoder)
    made = augmented(parts.rest, recipe.targets, recipe.seed)
    points = loop_points(made, tokens, recipe.targets.label_weight, place.token_table)
    shape = run_shape(recipe, tokens.size, splits.train.num_labels)
    require_memory(shape, recipe.device)
    with out_of_memory(shape, recipe.device):
        run = _Run(recipe, splits.name, parts, made, tokens, points)
        run.go(place)
        return run.trained(splits)


class _Run:
    """One run in the making."""

    def __init__(
        self, recipe: Recipe, name: str, parts: Cut, made: Augmented, tokens: Tokens, points: Points
    ) -> None:
        self.recipe, self.parts, self.made, self.tokens, self.points = recipe, parts, made, tokens, points
        self.epoch = epoch_steps(parts.rest, recipe.training.batch)
        # Kept from the start: a folder that an encoder began with may be gone by the end.
        self.encoder_options = encoder_options(recipe.encoder, recipe.text.max_length)
        self.encoder, self.head = assemble(recipe, tokens, points)
        self.labels = _labels(recipe, points.targets.shape[1])
        self.held = None if parts.held is None else Held.of(parts.rest, parts.held, tokens, name)
        self.validate = (
            None
            if self.held is None
            else Validate(self.held, recipe.validation, max(1, round(recipe.validation.every * self.epoch)))
        )
        self.training = Training(
            self.encoder, self.head, points, _stage(recipe, made, self.labels, self.epoch)
        )
        self.memory = Memory(self.labels, self.validate)
        self.seconds = 0.0

    def go(self, place: Place) -> None:
        """Train to the end, from a checkpoint where there is one to resume from."""
        resumed, stop, before = self._resume(place), Stop(), self.seconds
        training, batch = self.training, self.recipe.training.batch
        title = place.title or self.recipe.system
        started = time.perf_counter()

        def save() -> None:
            self.seconds = before + time.perf_counter() - started
            self._save(place)

        with (
            RunLog(place.folder, place.tensorboard, resumed=training.step if resumed else None) as log,
            TrainingBar(title, training.steps * batch, training.step * batch) as bar,
            stop.listening(),
        ):
            hooks = self._hooks(log, bar, resumed)
            if not self._over:
                training.run(hooks, Between(bar, stop, save, place.minutes))
        self.seconds = before + time.perf_counter() - started
        if stop.asked and not self._over:
            raise Interrupted(training.step, training.steps, place.folder is not None)
        if self.validate is not None:
            self.validate.restore(training)

    @property
    def _over(self) -> bool:
        """Whether all steps are done, or no more are wanted."""
        stopped = self.validate is not None and self.validate.over
        return stopped or self.training.step == self.training.steps

    def _hooks(self, log: RunLog, bar: TrainingBar, resumed: bool) -> list[Hook]:
        hooks: list[Hook] = []
        if self.validate is not None:
            hooks += [self.validate, LogValidation(log, bar, self.validate)]
        hooks.append(Log(log, bar, max(1, self.epoch // LINES)))
        if isinstance(self.labels, Shortlist):
            every, options = max(1, self.recipe.labels.refresh * self.epoch), self.recipe.labels
            refresh = Refresh(self.labels, options.hard, every, DTYPES[self.recipe.training.precision])
            if not resumed:
                refresh(self.training)
            hooks.append(refresh)
        return hooks

    @cached_property
    def about(self) -> dict[str, Any]:
        """What tells this run from another: its settings, and the data as the loop and validation see it."""
        config = to_dict(self.recipe)
        matrices = [self.points.targets] if self.held is None else [self.points.targets, self.held.targets]
        tables = [self.points.tokens] if self.held is None else [self.points.tokens, self.held.tokens]
        arrays = [each for matrix in matrices for each in (matrix.data, matrix.indices, matrix.indptr)]
        data = (np.ascontiguousarray(array).data for array in (*arrays, *tables))
        return {"fingerprint": fingerprint(config, *data), "config": config}

    def _save(self, place: Place) -> None:
        if place.checkpoints is None:
            return
        tensors, numbers = self.training.state()
        more, facts = self.memory.state()
        numbers = {**self.about, **numbers, **facts, "seconds": self.seconds}
        place.checkpoints.save(tensors | more, numbers)

    def _resume(self, place: Place) -> bool:
        if place.checkpoints is None or not place.resume:
            return False
        saved = place.checkpoints.latest(self.about["fingerprint"], self.about["config"])
        if saved is None:
            return False
        self.training.load(*saved)
        self.memory.load(*saved)
        self.seconds = float(saved[1]["seconds"])
        return True

    def trained(self, splits: Splits) -> Trained:
        """The model, calibrated on the held points."""
        config = to_dict(self.recipe)
        config["encoder"] = self.encoder_options
        config["recipe"] = to_dict(self.recipe)
        config["data"] = {"name": splits.name, "points": len(splits.train), "labels": splits.train.num_labels}
        _, label_texts = splits.train.need_texts("training")
        model = Model(
            self.tokens,
            self.encoder.eval(),
            self.head,
            label_texts,
            splits.train.label_ids,
            config,
            self._calibration(),
        )
        graph = self.made.graph
        details = {} if graph is None else {"targets_used": graph.estimate, **graph.details}
        history = [] if self.validate is None else self.validate.history
        label_points = int(self.made.is_label.sum())
        points = len(self.points) - label_points
        return Trained(model, history, self.seconds, self.training.step, details, points, label_points)

    def _calibration(self) -> Calibration | None:
        if self.held is None or self.parts.held is None:
            return None
        ids, scores = self.held.top(self.encoder, self.head)
        return fit_calibration(ids, scores, self.parts.held.targets, self.parts.held.exclude)


def test_scores(model: Model, splits: Splits) -> Scores | None:
    """How well the model does on the test split, if there is one; None otherwise."""
    test = splits.test
    if test is None:
        return None
    texts, _ = test.need_texts("testing")
    spare = 0 if test.exclude is None else int(np.diff(test.exclude.indptr).max(initial=0))
    # With as many labels to spare as the filter takes at most, `evaluate` applies it and tells the figures
    # without it too. Where it takes very many, lists would be too long, and it is applied first.
    first = test.exclude if spare > TOP else None
    k = min(TOP + (spare if first is None else 0), model.num_labels)
    return evaluate(Predictor(model).predict(texts, k, first), splits)


def test_figures(model: Model, splits: Splits) -> dict[str, Any] | None:
    """The same as plain numbers."""
    scores = test_scores(model, splits)
    return None if scores is None else scores.as_dict()


def _cut(points: Dataset, recipe: Recipe) -> Cut:
    try:
        return cut(points, recipe)
    except DataError as error:
        remedy = f"{error.problem.remedy}, or train without: --validation 0"
        raise DataError(error.problem.what, remedy=remedy) from error


def _labels(recipe: Recipe, num_labels: int) -> Labels:
    if recipe.labels.kind == "shortlist":
        return Shortlist(num_labels, recipe.labels.random, recipe.seed)
    return Every(num_labels, recipe.labels.block or num_labels)


def _stage(recipe: Recipe, made: Augmented, labels: Labels, epoch: int) -> Stage:
    encoder, head, training = recipe.encoder, recipe.head, recipe.training
    met = order(made, recipe, epoch)
    check_order(met, encoder)
    return Stage(
        met,
        labels,
        encoder=EncoderOptions(encoder.optimiser, encoder.rate, encoder.words_rate, encoder.weight_decay),
        head=RowOptions(head.optimiser, head.rate, head.weight_decay, head.momentum),
        schedule=training.schedule,
        warm_up=training.warm_up,
        clip=training.clip,
        dtype=DTYPES[training.precision],
        seed=recipe.seed,
    )
