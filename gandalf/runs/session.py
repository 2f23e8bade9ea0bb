"""Train one model: from a data set and a recipe, stage by stage, with logs, checkpoints and Ctrl-C.

At the end stands how a run is recognised by its checkpoint, and a first stage that several runs share.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.graph.estimates import KINDS
from gandalf.model import Model
from gandalf.recipe import Baselines, Recipe
from gandalf.runs.build import assemble_encoder, encoder_options, some_texts
from gandalf.runs.checks import check_encoder, check_run
from gandalf.runs.folder import RunPlace
from gandalf.runs.graph import check_teacher
from gandalf.runs.plan import check_kernel, fit_blocks, rank_shape, resolved, run_shape
from gandalf.runs.prepare import Material, prepare_material
from gandalf.runs.stages import begin_stage, stages_of
from gandalf.runs.trees import train_trees
from gandalf.runs.validation import HeldAnswers, Trained, calibrated_answers
from gandalf.runs.watch import AfterEachStep, Deadline, Interrupted, StopRequest, log_loss, log_validation
from gandalf.settings import to_dict
from gandalf.train.checkpoint import Checkpoints, fingerprint
from gandalf.train.logs import RunLog, TrainingBar
from gandalf.train.loop import Hook, Periodic
from gandalf.train.machine_memory import peak_bytes
from gandalf.train.parallel.batch_norm import normalise_together
from gandalf.train.parallel.gather import gather_model
from gandalf.train.parallel.ranks import LostRankError
from gandalf.train.rates import at_batch
from gandalf.train.run_memory import RunShape, out_of_memory, require_memory
from gandalf.wide.mixing import PROPOSED

LINES = 20  # of the log in an epoch
HELD = ("held/ids", "held/scores")  # tensors in a checkpoint of the stage all-points


def run_training(splits: Splits, recipe: Recipe, place: RunPlace | None = None) -> Trained:
    """Train by a recipe whose targets are chosen; never look at the test split."""
    place = place or RunPlace()
    check_run(recipe, splits.train, place.ranks.world)
    if recipe.trees.kind != "none":
        return train_trees(splits, recipe)
    check_encoder(recipe.encoder)
    if recipe.targets.targets in KINDS and KINDS[recipe.targets.targets].needs == "vectors":
        check_teacher(recipe.targets.teacher)  # before every text is read
    asked_block = recipe.labels.block
    recipe = resolved(recipe, len(splits.train), splits.train.num_labels)
    check_kernel(recipe)
    material = prepare_material(splits, recipe, place)
    material, shape, plan = _fit_to_memory(material, place, asked_block)
    with out_of_memory(shape, recipe.device):
        run = TrainingRun(material.with_label_texts(), place, asked_block)
        run.train(plan)
        return run.result(splits)


def _fit_to_memory(
    material: Material, place: RunPlace, asked_block: int | None
) -> tuple[Material, RunShape, str]:
    """Choose blocks of labels that fit into memory; return the plan in words, or refuse the run."""
    recipe, ranks = material.recipe, place.ranks
    shape = rank_shape(run_shape(recipe, material.tokens.size, material.num_labels), ranks.world)
    recipe, shape, plan = fit_blocks(recipe, shape, ranks, asked_block, place.block_before)
    require_memory(shape, recipe.device, ranks=ranks.local_world)
    return replace(material, recipe=recipe), shape, plan


class TrainingRun:
    """A training of one network: its stages one after another, and what a checkpoint keeps of them."""

    def __init__(self, material: Material, place: RunPlace, asked_block: int | None) -> None:
        self.material, self.recipe, self.ranks = material, material.recipe, material.ranks
        self.place, self.stop = place, StopRequest()
        self.asked_block = asked_block  # None: the memory decides
        # Read them now: the folder of the encoder's first model may be gone by the end.
        self.encoder_options = encoder_options(self.recipe.encoder, self.recipe.text.max_length)
        texts = some_texts(material.points, material.augmented.is_label)
        self.encoder = assemble_encoder(self.recipe, material.tokens, texts)
        if self.recipe.encoder.frozen and self.recipe.siamese.kind == "none":
            self.encoder.remember()  # a transformer that never changes reads each text once
        normalise_together(self.encoder, self.ranks)
        self.ranks.synchronise(list(self.encoder.state_dict().values()))
        self.stages = stages_of(self.recipe)
        self.saved_step: int | None = None  # of the last checkpoint
        self.earlier_history: list[dict[str, Any]] = []  # validations of the stages before the classifier
        self.classifier_history: list[dict[str, Any]] = []  # filled when the stage all-points begins
        self.seconds, self._started = 0.0, time.perf_counter()
        self.taken_over: dict[str, Any] | None = None  # facts of a first stage that another run trained
        self.answers: HeldAnswers | None = None  # of the classifier, before it learns from held-out points
        self.shortened = False  # True if a deadline ended a stage early
        self.stage = begin_stage(self.stages[0], material, self.encoder, 0)

    def train(self, plan: str) -> None:
        """Tell the plan and train to the end; begin at a checkpoint if there is one to resume."""
        try:
            self._train_stages(plan)
        except LostRankError as error:
            saved = (
                "there is no checkpoint yet"
                if self.saved_step is None
                else f"the last checkpoint is of step {self.saved_step:,}"
            )
            what = f"{error} at step {self.stage.training.all_steps:,}; {saved}"
            raise LostRankError(f"{what}: run the same command with --resume") from error

    def _train_stages(self, plan: str) -> None:
        self._refuse_unequal_ranks()
        resumed = self._load_checkpoint()
        self.place.tell_plan(plan)
        self._started = time.perf_counter() - self.seconds
        first_step = self.stage.training.all_steps if resumed else None
        listeners = () if self.ranks.rank else self.place.listeners
        with (
            RunLog(self.place.log, self.place.trackers, first_step, listeners) as log,
            self.stop.listening(),
        ):
            self._train_or_take_over(log, fresh=not resumed)
            while self.stage.over and self.stage.name != self.stages[-1]:
                self._begin_next_stage()
                if self.stop.on_any_rank(self.ranks):
                    self._save_checkpoint()
                    break
                self._train_stage(log, fresh=True)
            if self.stage.over:
                self._save_checkpoint()  # a signal during the rest must not cost the training
        self.seconds = time.perf_counter() - self._started
        if self.stop.asked and not self.stage.over:
            training = self.stage.training
            raise Interrupted(training.step, training.steps, self.place.folder is not None)
        self._finish_stage()

    def _train_or_take_over(self, log: RunLog, fresh: bool) -> None:
        """Train the stage that the run begins with, unless another run has stored the very same stage."""
        store = self.place.first_stages
        if store is None or self.stage.name == self.stages[-1]:
            self._train_stage(log, fresh)
            return
        with shared_first_stage(store, self.material) as stored_stage:
            saved = stored_stage.latest() if fresh else None
            if saved is None:
                self._train_stage(log, fresh)
                if self.stage.over:
                    stored_stage.save(self.encoder.state_dict(), self._first_stage_facts())
                return
        self._take_over(*saved)

    def _first_stage_facts(self) -> dict[str, Any]:
        return {
            "seconds": time.perf_counter() - self._started,
            "steps": self.stage.training.step,
            "peak_memory": peak_bytes("cuda") if self.recipe.device == "cuda" else None,
            "history": self.stage.history,
        }

    def _take_over(self, weights: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Put the encoder of a stored first stage in place, as if this run had trained it."""
        self.encoder.load_state_dict(weights)
        self.stage.training.step = int(facts["steps"])
        self.stage.history[:] = facts.pop("history")
        self._started -= float(facts["seconds"])
        self.taken_over = facts

    def _train_stage(self, log: RunLog, fresh: bool) -> None:
        """Train the present stage until its end or a stop; `fresh`: the stage does not resume."""
        stage, training, place = self.stage, self.stage.training, self.place
        batch, title = training.stage.order.batch, place.title or self.recipe.system
        with TrainingBar(title, training.steps * batch, training.step * batch) as bar:
            if fresh:
                for refresh in stage.refreshing:
                    refresh(training)
            if stage.validate is not None and not training.step and not stage.history:
                stage.validate(training)  # the weights at the start may be the best
            if not stage.over:
                after_step = AfterEachStep(bar, self.stop, self._save_checkpoint, place.minutes, self.ranks)
                training.run(self._hooks(log, bar), after_step)
        self.shortened |= training.shortened

    def _hooks(self, log: RunLog, bar: TrainingBar) -> list[Hook]:
        """Return what happens between steps; the deadline comes first, so that all others see its end."""
        validate = self.stage.validate
        often = max(1, self.stage.epoch // LINES)
        hooks: list[Hook] = []
        if self.place.until is not None:
            hooks.append(Deadline(self._stage_deadline(self.place.until), often))
        if validate is not None:
            hooks += [validate, Periodic(validate.steps, partial(log_validation, log, bar, validate))]
        return [*hooks, Periodic(often, partial(log_loss, log, bar)), *self.stage.refreshing]

    def _stage_deadline(self, until: float) -> float:
        """Return when the present stage must end, so that the stage all-points has its share of the time."""
        if self.stage.name == self.stages[-1] or self.stages[-1] != "all-points":
            return until
        now = time.monotonic()
        return now + (until - now) / (1 + self.recipe.training.last_stretch)

    def _begin_next_stage(self) -> None:
        ended, steps_before = self.stage, self.stage.training.all_steps
        name = self.stages[self.stages.index(ended.name) + 1]
        if name == "all-points":
            self._finish_stage()
            self.classifier_history = ended.history
            head = ended.training.head
        else:
            self.earlier_history += [{**each, "stage": ended.name} for each in ended.history]
            head = None
        del self.stage, ended  # free the memory of its optimisers before the next ones are made
        self.stage = begin_stage(name, self.material, self.encoder, steps_before, head)

    def _finish_stage(self) -> None:
        """Restore the best weights of the present stage; answer held-out points not yet learnt from."""
        if self.stage.validate is not None:
            self.stage.validate.restore(self.stage.training)
        held = self.material.held
        if self.stage.name != "all-points" and held is not None:
            table = self.stage.training.head.plain()
            self.answers = calibrated_answers(
                held.splits, *held.best_labels(self.encoder, table, PROPOSED, self.ranks)
            )

    def _refuse_unequal_ranks(self) -> None:
        """Refuse ranks that read different data or have different settings."""
        if self.ranks.world > 1 and len(set(self.ranks.values_of_all(self.identity["fingerprint"]))) > 1:
            what = "the ranks have read different data, or have other settings"
            raise DataError(what, remedy="give all of them the same command, and machines that are alike")

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint keeps to recognise its run."""
        return run_identity(self.material, self.asked_block)

    def _save_checkpoint(self) -> None:
        self.seconds = time.perf_counter() - self._started
        if self.place.checkpoints is None:
            return
        tensors, facts = self.stage.training.state()
        of_stage, facts_of_stage = self.stage.state.state()
        tensors = tensors | of_stage
        if self.answers is not None:
            tensors |= {name: torch.from_numpy(getattr(self.answers, name[5:])) for name in HELD}
        own = {
            "stage": self.stage.name,
            "earlier": self.earlier_history,
            "last_history": self.classifier_history,
            "seconds": self.seconds,
            "block": self.recipe.labels.block,
        }
        self.place.checkpoints.save(tensors, {**self.identity, **facts, **facts_of_stage, **own})
        self.saved_step = self.stage.training.all_steps

    def _load_checkpoint(self) -> bool:
        """Continue from the newest checkpoint; return False if there is none, or nothing to resume."""
        if self.place.checkpoints is None or not self.place.resume:
            return False
        identity, num_labels = self.identity, self.material.num_labels
        saved = self.place.checkpoints.latest(identity["fingerprint"], identity["config"], num_labels)
        if saved is None:
            return False
        tensors, facts = saved
        if facts["stage"] != self.stage.name:
            self.stage = begin_stage(facts["stage"], self.material, self.encoder, int(facts["before"]))
        self.stage.training.load(tensors, facts)
        self.stage.state.load(tensors, facts)
        self.earlier_history, self.seconds = list(facts["earlier"]), float(facts["seconds"])
        self.classifier_history = list(facts.get("last_history", []))
        if self.stage.name == "all-points":
            assert self.material.held is not None
            ids, scores = (tensors[name].numpy() for name in HELD)
            self.answers = calibrated_answers(self.material.held.splits, ids, scores)
        self.saved_step = self.stage.training.all_steps
        return True

    def result(self, splits: Splits) -> Trained:
        """Return the trained model and the course of its training."""
        stage, augmented = self.stage, self.material.augmented
        label_points = int(augmented.is_label.sum()) - augmented.num_last
        points = len(self.material.points) - label_points - augmented.num_last
        return Trained(
            self._model(splits),
            history=[*self.earlier_history, *self.classifier_history, *stage.history],
            seconds=self.seconds,
            steps=stage.training.all_steps,
            details=augmented.details,
            points=len(splits.train) if stage.name == "all-points" else points,
            label_points=label_points,
            taken_over=self.taken_over,
            held=self.answers,
            shortened=self.shortened,
        )

    def _model(self, splits: Splits) -> Model:
        """Return the model on rank 0; every other rank returns the model of its own labels."""
        recipe, rank = to_dict(self.recipe), self.ranks.rank
        config = {**recipe, "encoder": self.encoder_options, "recipe": recipe, "data": splits.about}
        _, label_texts = splits.train.need_texts("training")
        training, num_labels = self.stage.training, splits.train.num_labels
        del training.head_update, training.encoder_update  # their state is as large as the rows
        if self.recipe.memory.kind == "none":
            self.encoder.forget()  # otherwise the memory will read the same texts
        table = training.head.plain()
        table.widen()
        own = self.material.own_labels if rank else slice(0, num_labels)
        table = gather_model(self.ranks, self.encoder, table, num_labels, self.recipe.device)
        return Model(
            self.material.tokens,
            self.encoder.eval(),
            table,
            label_texts[own],
            None if splits.train.label_ids is None else splits.train.label_ids[own],
            config,
            None if rank or self.answers is None else self.answers.calibration,
        )


def run_identity(material: Material, asked_block: int | None) -> dict[str, Any]:
    """Return the settings of a run, and a fingerprint of these settings and the data it trains on."""
    config, points, held = comparable_settings(material.recipe), material.points, material.held
    config["labels"]["block"] = asked_block  # a resumed run may choose another by its memory
    matrices = [points.targets] if held is None else [points.targets, held.targets]
    tables = [points.tokens] if held is None else [points.tokens, held.tokens]
    arrays = [each for matrix in matrices for each in (matrix.data, matrix.indices, matrix.indptr)]
    data = (np.ascontiguousarray(array).data for array in (*arrays, *tables))
    return {"fingerprint": fingerprint(config, *data), "config": config}


def comparable_settings(recipe: Recipe) -> dict[str, Any]:
    """Return the settings without those that older checkpoints lack and that change nothing here."""
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
    if _attention_is_the_former(recipe):
        del found["encoder"]["attention"]
    del found["memory"], found["search"], found["trees"]["terms"], found["trees"]["cost"]
    # Formerly no rate grew with the batch, so a run with such rates is another run.
    parts = {"encoder": recipe.encoder.optimiser, "head": recipe.head.optimiser}
    factors = {part: at_batch(1.0, optimiser, recipe.training.batch) for part, optimiser in parts.items()}
    return {**found, "rates": factors} if set(factors.values()) != {1.0} else found


def _attention_is_the_former(recipe: Recipe) -> bool:
    """Return True if the encoder is as it was before the setting `encoder.attention`."""
    encoder = recipe.encoder
    return encoder.kind != "inception" or encoder.attention == "self" or encoder.from_model is not None


@contextmanager
def shared_first_stage(folder: Path, material: Material) -> Iterator[Checkpoints]:
    """Open the place of this run's first stage in a folder for several runs; other runs wait meanwhile."""
    key = _first_stage_key(material)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield Checkpoints(folder / key)


def _first_stage_key(material: Material) -> str:
    """Return a hash of everything that a siamese stage depends on: settings, points and label texts."""
    recipe, points, texts = material.recipe, material.points, material.texts
    assert texts is not None
    rows = np.flatnonzero(~material.augmented.is_label | recipe.siamese.label_points)
    targets = points.targets[rows]
    encoder = replace(recipe.encoder, rate=0.0, words_rate=0.0, frozen=False, dropout=recipe.pair_dropout)
    settings = {
        "seed": recipe.seed,
        "device": recipe.device,
        "text": to_dict(recipe.text),
        "encoder": to_dict(encoder),
        "siamese": to_dict(replace(recipe.siamese, pair_dropout=None)),
        "precision": recipe.training.precision,
        "clip": recipe.training.clip,
        "validation": to_dict(recipe.validation),
    }
    arrays = (targets.data, targets.indices, targets.indptr, points.tokens[rows], texts.tokens)
    return fingerprint(settings, *(np.ascontiguousarray(each).data for each in arrays))[:24]
