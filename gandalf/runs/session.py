"""The life of a run: from material to a model, stage by stage, with logs, checkpoints and Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.graph.estimates import KINDS
from gandalf.model import Model
from gandalf.nets.heads import Table
from gandalf.recipe import Baselines, Recipe
from gandalf.runs.build import assemble_encoder, encoder_options, some_texts
from gandalf.runs.checks import check_encoder, check_run
from gandalf.runs.deadline import Deadline
from gandalf.runs.folder import RunPlace
from gandalf.runs.graph import check_teacher
from gandalf.runs.plan import check_kernel, fit_blocks, rank_shape, resolved, run_shape
from gandalf.runs.prepare import (
    LabelTexts,
    Material,
    augmented,
    fit_tokens,
    loop_points,
    run_cut,
    with_own_labels,
    with_synonyms,
)
from gandalf.runs.stages import begin, kept, stages_of
from gandalf.runs.trees import train_trees
from gandalf.runs.validation import Held, HeldAnswers, Trained, Validate, answers_of
from gandalf.settings import to_dict
from gandalf.text.lengths import count_cut
from gandalf.train.checkpoint import fingerprint
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Hook, Training
from gandalf.train.machine_memory import peak_bytes
from gandalf.train.parallel.batch_norm import normalise_together
from gandalf.train.parallel.gather import gather_model
from gandalf.train.parallel.ranks import ONE, LostRankError, Ranks
from gandalf.train.rates import at_batch
from gandalf.train.run_memory import out_of_memory, require_memory
from gandalf.wide.mixing import PROPOSED, Floats, Ints

LINES = 20  # of the log in an epoch
HELD = ("held/ids", "held/scores")  # in a checkpoint of a last stretch


def train(splits: Splits, recipe: Recipe, place: RunPlace | None = None) -> Trained:
    """Train by the recipe, whose targets are chosen by now; the test split is not looked at."""
    place = place or RunPlace()
    check_run(recipe, splits.train, place.ranks.world)
    if recipe.trees.kind != "none":
        return train_trees(splits, recipe)
    check_encoder(recipe.encoder)
    if recipe.targets.targets in KINDS and KINDS[recipe.targets.targets].needs == "vectors":
        check_teacher(recipe.targets.teacher)  # here already, before every text is read
    asked, recipe = recipe, resolved(recipe, len(splits.train), splits.train.num_labels)
    check_kernel(recipe)
    parts = run_cut(splits.train, recipe)
    tokens = fit_tokens(parts.rest, recipe.text, recipe.encoder)
    made = augmented(parts.rest, recipe.targets, recipe.seed, recipe.device)
    made = with_synonyms(made, parts.rest, recipe)
    made = with_own_labels(made, parts.rest, recipe.targets, recipe.seed)
    points = loop_points(made, tokens, recipe.targets, place.token_table)
    length = recipe.text.max_length or tokens.max_length
    recipe = replace(recipe, text=replace(recipe.text, max_length=length))
    place.say_cut(count_cut(tokens, made.points.texts or [], points.tokens), len(points), tokens.max_length)
    shape = rank_shape(run_shape(recipe, tokens.size, splits.train.num_labels), place.ranks.world)
    recipe, shape, plan = fit_blocks(recipe, shape, place.ranks, asked.labels.block, place.block_before)
    require_memory(shape, recipe.device, ranks=place.ranks.local_world)
    with out_of_memory(shape, recipe.device):
        texts = LabelTexts.of(parts.rest, tokens, recipe)
        held = None if parts.held is None else Held.of(parts.rest, parts.held, tokens, splits.name)
        material = Material(recipe, parts.rest, made, tokens, points, texts, held, place.ranks, splits.train)
        run = _Run(material, asked.labels.block)
        run.go(place, plan)
        return run.trained(splits)


class _Run:
    """One run in the making."""

    def __init__(self, material: Material, asked_block: int | None) -> None:
        self.material, self.recipe, self.ranks = material, material.recipe, material.ranks
        self.asked_block = asked_block  # None: blocks follow from the memory there is
        # Kept from the start: a folder that an encoder began with may be gone by the end.
        self.encoder_options = encoder_options(self.recipe.encoder, self.recipe.text.max_length)
        texts = some_texts(material.points, material.made.is_label)
        self.encoder = assemble_encoder(self.recipe, material.tokens, texts)
        if self.recipe.encoder.frozen and self.recipe.siamese.kind == "none":
            self._remember(True)
        normalise_together(self.encoder, self.ranks)
        self.ranks.synchronise(list(self.encoder.state_dict().values()))
        self.stages = stages_of(self.recipe)
        self.saved: int | None = None  # step of the last checkpoint
        self.earlier: list[dict[str, Any]] = []  # validations of the stages that are over
        self.last_history: list[dict[str, Any]] = []  # of the classifier, once a last stretch has begun
        self.seconds = 0.0
        self.taken_over: dict[str, Any] | None = None
        self.answers: HeldAnswers | None = None  # of the classifier, before a last stretch
        self.until: float | None = None  # end of the updates by the clock
        self.shortened = False  # a stage ended early for it
        self.now = begin(self.stages[0], material, self.encoder, 0)  # the stage under way

    def _remember(self, texts: bool) -> None:
        """Let a transformer that never changes read each text once, or again each time it is asked."""
        (self.encoder.remember if texts else self.encoder.forget)()

    def go(self, place: RunPlace, plan: str) -> None:
        """Train to the end, from a checkpoint where there is one to resume from; tell the plan first."""
        try:
            self._go(place, plan)
        except LostRankError as error:
            kept = (
                "there is no checkpoint yet"
                if self.saved is None
                else f"the last checkpoint is of step {self.saved:,}"
            )
            what = f"{error} at step {self.now.training.all_steps:,}; {kept}"
            raise LostRankError(f"{what}: run the same command with --resume") from error

    def _go(self, place: RunPlace, plan: str) -> None:
        self._same_for_all()
        resumed, stop = self._resume(place), Stop()
        place.say(plan)
        self._started = time.perf_counter() - self.seconds

        def save() -> None:
            self.seconds = time.perf_counter() - self._started
            self._save(place)

        steps = self.now.training.all_steps if resumed else None
        listeners = () if place.ranks.rank else place.listeners
        with RunLog(place.log, place.trackers, steps, listeners) as log, stop.listening():
            saving = Saving(place.title or self.recipe.system, stop, save, place.minutes, self.ranks)
            self.until = place.until
            self._first(place, log, saving, fresh=not resumed)
            while self.now.over and self.now.name != self.stages[-1]:
                self._begin_next()
                stop.asked = self.ranks.any_rank(stop.asked)
                if stop.asked:
                    save()
                    break
                self._train(log, saving, fresh=True)
            if self.now.over:
                save()  # what is left to do takes a while, and a signal then must not cost the training
        self.seconds = time.perf_counter() - self._started
        training = self.now.training
        if stop.asked and not self.now.over:
            raise Interrupted(training.step, training.steps, place.folder is not None)
        self._settle()

    def _settle(self) -> None:
        """Put the best weights of a stage back, and ask the held points before they are learnt from."""
        if self.now.validate is not None:
            self.now.validate.restore(self.now.training)
        if self.now.name != "all-points":
            self.answers = self._answers(self.now.training.head.plain())

    def _first(self, place: RunPlace, log: RunLog, saving: Saving, fresh: bool) -> None:
        """The stage that the run begins with, unless another run has made the very same one."""
        if place.first_stages is None or self.now.name == self.stages[-1]:
            self._train(log, saving, fresh)
            return
        with kept(place.first_stages, self.material) as others:
            saved = others.latest() if fresh else None
            if saved is None:
                self._train(log, saving, fresh)
                if self.now.over:
                    seconds, steps = time.perf_counter() - self._started, self.now.training.step
                    facts = {
                        "seconds": seconds,
                        "steps": steps,
                        "peak_memory": peak_bytes("cuda") if self.recipe.device == "cuda" else None,
                    }
                    history = [] if self.now.validate is None else self.now.validate.history
                    others.save(self.encoder.state_dict(), {**facts, "history": history})
                return
        self._take_over(*saved)

    def _take_over(self, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
        self.encoder.load_state_dict(weights)
        self.now.training.step = int(facts["steps"])
        if self.now.validate is not None:
            self.now.validate.history[:] = facts.pop("history")
        self._started -= float(facts["seconds"])  # a run takes as long as if it had made the stage itself
        self.taken_over = facts

    def _train(self, log: RunLog, saving: Saving, fresh: bool) -> None:
        """The stage under way, to its end or until someone asks for it."""
        now, training = self.now, self.now.training
        batch = training.stage.order.batch
        with TrainingBar(saving.title, training.steps * batch, training.step * batch) as bar:
            if fresh:
                for each in now.refreshing:
                    each(training)
            if now.validate is not None and not training.step and not now.validate.history:
                now.validate(training)  # the start is one of the weights that may be kept
            if not now.over:
                training.run(self._hooks(log, bar), saving.between(bar))
        self.shortened |= training.shortened

    def _hooks(self, log: RunLog, bar: TrainingBar) -> list[Hook]:
        validate = self.now.validate
        checked: list[Hook] = [] if validate is None else [validate, LogValidation(log, bar, validate)]
        often = max(1, self.now.epoch // LINES)
        # First: if it ends the stage here, the others are still called.
        late = [] if self.until is None else [Deadline(self._stage_until(self.until), often)]
        return [*late, *checked, Log(log, bar, often), *self.now.refreshing]

    def _stage_until(self, until: float) -> float:
        """Return when the stage under way must end, so that a last stretch has its share of the time."""
        if self.now.name == self.stages[-1] or self.stages[-1] != "all-points":
            return until
        now = time.monotonic()
        return now + (until - now) / (1 + self.recipe.training.last_stretch)

    def _begin_next(self) -> None:
        """From a stage that is over to the one after it."""
        name, before = self.stages[self.stages.index(self.now.name) + 1], self.now.training.all_steps
        history = [] if self.now.validate is None else self.now.validate.history
        if name == "all-points":
            self._settle()
            self.last_history = history
        else:
            self.earlier += [{**each, "stage": self.now.name} for each in history]
        head = self.now.training.head if name == "all-points" else None
        del self.now  # with its optimisers, before others are made
        self.now = begin(name, self.material, self.encoder, before, head)

    def _same_for_all(self) -> None:
        """Refuse ranks that would each train on something else."""
        if self.ranks.world > 1 and len(set(self.ranks.values_of_all(self.about["fingerprint"]))) > 1:
            what = "the ranks have read different data, or have other settings"
            raise DataError(what, remedy="give all of them the same command, and machines that are alike")

    @cached_property
    def about(self) -> dict[str, Any]:
        """What tells this run from another: its settings, and the data as the loop and validation see it."""
        config, points, held = told_apart(self.recipe), self.material.points, self.material.held
        config["labels"]["block"] = self.asked_block  # others may be taken when it is resumed
        matrices = [points.targets] if held is None else [points.targets, held.targets]
        tables = [points.tokens] if held is None else [points.tokens, held.tokens]
        arrays = [each for matrix in matrices for each in (matrix.data, matrix.indices, matrix.indptr)]
        data = (np.ascontiguousarray(array).data for array in (*arrays, *tables))
        return {"fingerprint": fingerprint(config, *data), "config": config}

    def _save(self, place: RunPlace) -> None:
        if place.checkpoints is None:
            return
        tensors, numbers = self.now.training.state()
        more, facts = self.now.state.state()
        own = {"stage": self.now.name, "earlier": self.earlier, "seconds": self.seconds}
        own |= {"last_history": self.last_history}
        blocks = {"block": self.recipe.labels.block}
        if self.answers is not None:
            more |= {name: torch.from_numpy(getattr(self.answers, name[5:])) for name in HELD}
        place.checkpoints.save(tensors | more, {**self.about, **numbers, **facts, **own, **blocks})
        self.saved = self.now.training.all_steps

    def _resume(self, place: RunPlace) -> bool:
        if place.checkpoints is None or not place.resume:
            return False
        labels = self.material.points.targets.shape[1]
        saved = place.checkpoints.latest(self.about["fingerprint"], self.about["config"], labels)
        if saved is None:
            return False
        if saved[1]["stage"] != self.now.name:
            self.now = begin(saved[1]["stage"], self.material, self.encoder, int(saved[1]["before"]))
        self.now.training.load(*saved)
        self.now.state.load(*saved)
        self.earlier, self.seconds = list(saved[1]["earlier"]), float(saved[1]["seconds"])
        self.last_history = list(saved[1].get("last_history", []))
        if self.now.name == "all-points":
            self.answers = self._calibrated(*(saved[0][name].numpy() for name in HELD))
        self.saved = self.now.training.all_steps
        return True

    def trained(self, splits: Splits) -> Trained:
        """The model, calibrated on the held points; ranks but the first have one of their own labels."""
        config = to_dict(self.recipe)
        config["encoder"] = self.encoder_options
        config["recipe"] = to_dict(self.recipe)
        config["data"] = splits.about
        _, label_texts = splits.train.need_texts("training")
        now, made, num_labels = self.now, self.material.made, splits.train.num_labels
        del now.training.head_update, now.training.encoder_update  # their state is as large as the rows
        if self.recipe.memory.kind == "none":
            self._remember(False)  # else the memory will read the same texts
        table = now.training.head.plain()
        table.widen()
        own = self.material.own if self.ranks.rank else slice(0, num_labels)
        table = gather_model(self.ranks, self.encoder, table, num_labels, self.recipe.device)
        model = Model(
            self.material.tokens,
            self.encoder.eval(),
            table,
            label_texts[own],
            None if splits.train.label_ids is None else splits.train.label_ids[own],
            config,
            None if self.ranks.rank or self.answers is None else self.answers.calibration,
        )
        details = {} if made.graph is None else {"targets_used": made.graph.estimate, **made.graph.details}
        history = [*self.earlier, *self.last_history, *([] if now.validate is None else now.validate.history)]
        label_points = int(made.is_label.sum()) - made.last
        points = len(self.material.points) - label_points - made.last
        steps = now.training.all_steps
        if now.name == "all-points":
            points = len(splits.train)
        return Trained(
            model,
            history,
            self.seconds,
            steps,
            details,
            points,
            label_points,
            self.taken_over,
            self.answers,
            shortened=self.shortened,
        )

    def _answers(self, table: Table) -> HeldAnswers | None:
        held = self.material.held
        if held is None or held.splits.test is None:
            return None
        return self._calibrated(*held.top(self.encoder, table, PROPOSED, self.ranks))

    def _calibrated(self, ids: Ints, scores: Floats) -> HeldAnswers:
        held = self.material.held
        assert held is not None
        return answers_of(held.splits, ids, scores)


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
        self.bar.show_figure(f"{self.validate.options.metric} {found['value']:.1f}")
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


def told_apart(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a run, without those that older checkpoints lack and that make no difference."""
    found = to_dict(recipe)
    if recipe.baselines == Baselines():
        del found["baselines"]
    if not recipe.training.last_stretch:
        del found["training"]["last_stretch"]
    if not recipe.targets.own_weight:
        del found["targets"]["own_weight"]
    if recipe.siamese.kind == "none":
        del found["siamese"]["cluster_share"]
    if recipe.siamese.kind != "decoupled":
        del found["siamese"]["softmax_temperature"], found["siamese"]["label_points"]
    if not recipe.siamese.guidance:
        del found["siamese"]["guidance"]
    if _attends_as_before(recipe):
        del found["encoder"]["attention"]
    del found["memory"], found["search"], found["trees"]["terms"], found["trees"]["cost"]
    # Before, no rate followed the batch: a run whose rates do is another.
    parts = {"encoder": recipe.encoder.optimiser, "head": recipe.head.optimiser}
    times = {part: at_batch(1.0, optimiser, recipe.training.batch) for part, optimiser in parts.items()}
    return {**found, "rates": times} if set(times.values()) != {1.0} else found


def _attends_as_before(recipe: Recipe) -> bool:
    """Return True if no encoder is made by the setting `encoder.attention`, or one as it was before that."""
    encoder = recipe.encoder
    return encoder.kind != "inception" or encoder.attention == "self" or encoder.from_model is not None
