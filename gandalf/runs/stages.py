"""The stages of a run: the encoder by pairs first, where the recipe says so, then the classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from gandalf.data.dataset import Dataset
from gandalf.nets.encoders import TextEncoder, set_dropout
from gandalf.nets.heads import Composed, Encoded
from gandalf.recipe import Recipe
from gandalf.runs.assemble import assemble_head
from gandalf.runs.baselines import glas_of, mix_of
from gandalf.runs.hardware import DTYPES
from gandalf.runs.hooks import Memory
from gandalf.runs.label_texts import LabelTexts
from gandalf.runs.limits import check_order
from gandalf.runs.material import Augmented, epoch_steps, order
from gandalf.runs.rank_limits import check_shares
from gandalf.runs.shortlists import Refresh, RefreshRows
from gandalf.runs.siamese import siamese
from gandalf.runs.validation import Held, Validate
from gandalf.text.tokens import Tokens
from gandalf.train.batches import Points
from gandalf.train.head_update import RowOptions
from gandalf.train.labels import Every, Labels, Shortlist
from gandalf.train.loop import Hook, Stage, Training
from gandalf.train.optimisers import EncoderOptions
from gandalf.train.ranks import ONE, Ranks
from gandalf.train.shards import per_label

StageName = Literal["siamese", "classifier"]


@dataclass(frozen=True, eq=False)
class Material:
    """What all stages of a run work on."""

    recipe: Recipe
    rest: Dataset  # training points without those held out
    made: Augmented  # with label points
    tokens: Tokens
    points: Points
    texts: LabelTexts | None
    held: Held | None
    ranks: Ranks = ONE

    @property
    def epoch(self) -> int:
        """Updates of an epoch of the classifier."""
        return epoch_steps(self.rest, self.recipe.training.batch)

    @property
    def own(self) -> slice:
        """The labels whose rows are this rank's."""
        return self.ranks.share(self.points.targets.shape[1])


@dataclass(frozen=True, eq=False)
class Running:
    """A stage under way."""

    name: StageName
    training: Training
    validate: Validate | None
    memory: Memory
    epoch: int  # updates between two lines of progress, times some
    refreshing: list[Hook] = field(default_factory=list)  # what is made anew from time to time

    @property
    def over(self) -> bool:
        """Whether all steps are done, or no more are wanted."""
        stopped = self.validate is not None and self.validate.over
        return stopped or self.training.step == self.training.steps


def stages_of(recipe: Recipe) -> tuple[StageName, ...]:
    """The stages that the recipe asks for, in their order."""
    if recipe.siamese.kind == "none":
        return ("classifier",)
    return ("siamese",) if recipe.siamese.alone else ("siamese", "classifier")


def pair_dropout(recipe: Recipe) -> float:
    """What the encoder drops in a siamese stage."""
    own = recipe.siamese.pair_dropout
    return recipe.encoder.dropout if own is None else own


def begin(name: StageName, material: Material, encoder: TextEncoder, before: int) -> Running:
    """A stage at its first step, after so many steps of others."""
    running = BEGIN[name](material, encoder, before)
    head = running.training.head.state_dict(prefix="head/")
    material.ranks.alike([tensor for name, tensor in head.items() if not per_label(name)])
    return running


def _classifier(material: Material, encoder: TextEncoder, before: int) -> Running:
    recipe, points, epoch = material.recipe, material.points, material.epoch
    set_dropout(encoder, recipe.encoder.dropout)
    head = assemble_head(recipe, encoder, points, material.texts, material.own)
    if isinstance(head, Composed) and material.texts is not None:
        points = replace(points, label_words=material.texts.words())
    labels = _labels(recipe, points.targets.shape[1], material.ranks.world)
    training = Training(encoder, head, points, _stage(material, labels), before, material.ranks)
    validate = _validate(material, epoch, recipe.validation.patience)
    refreshing: list[Hook] = []
    if isinstance(labels, Shortlist):
        every, dtype = max(1, recipe.labels.refresh * epoch), DTYPES[recipe.training.precision]
        refreshing.append(Refresh(labels, recipe.labels.hard, every, dtype))
    if isinstance(head, Composed) and recipe.head.rows == "frozen":
        refreshing.insert(0, RefreshRows(head, epoch))
    return Running("classifier", training, validate, Memory(labels, validate), epoch, refreshing)


def _siamese(material: Material, encoder: TextEncoder, before: int) -> Running:
    recipe, options, texts = material.recipe, material.recipe.siamese, material.texts
    assert texts is not None
    set_dropout(encoder, pair_dropout(recipe))
    tokens = torch.from_numpy(texts.tokens[material.own]).to(recipe.device)
    head = Encoded(encoder, tokens, encoder.dim)
    made = siamese(options, material.points.targets, ~material.made.is_label, recipe.seed)
    check_shares(made.order, material.ranks.world)
    stage = Stage(
        made.order,
        made.labels,
        pairs=made.loss,
        encoder=EncoderOptions(
            recipe.encoder.optimiser, options.pair_rate, options.pair_words_rate, recipe.encoder.weight_decay
        ),
        schedule=options.pair_schedule,
        warm_up=options.pair_warm_up,
        clip=recipe.training.clip,
        dtype=DTYPES[recipe.training.precision],
        seed=recipe.seed,
        micro_batch=recipe.training.micro_batch,
        seen=made.seen,
    )
    points = replace(material.points, label_tokens=texts.tokens)
    training = Training(encoder, head, points, stage, before, material.ranks)
    validate = _validate(material, made.epoch, patience=0)
    memory = Memory(made.order, validate, made.seen)
    return Running("siamese", training, validate, memory, made.epoch, made.refreshing)


Begin = Callable[[Material, TextEncoder, int], Running]
BEGIN: dict[StageName, Begin] = {"siamese": _siamese, "classifier": _classifier}


def _validate(material: Material, epoch: int, patience: int) -> Validate | None:
    if material.held is None:
        return None
    options = replace(material.recipe.validation, patience=patience)
    return Validate(material.held, options, max(1, round(options.every * epoch)))


def _labels(recipe: Recipe, num_labels: int, world: int) -> Labels:
    if recipe.labels.kind == "shortlist":
        return Shortlist(num_labels, recipe.labels.random, recipe.seed)
    return Every(num_labels, recipe.labels.block or num_labels, world)


def _stage(material: Material, labels: Labels) -> Stage:
    recipe = material.recipe
    encoder, head, training = recipe.encoder, recipe.head, recipe.training
    met = order(material.made, recipe, material.epoch)
    check_order(met, encoder)
    check_shares(met, material.ranks.world)
    return Stage(
        met,
        labels,
        encoder=EncoderOptions(encoder.optimiser, encoder.rate, encoder.words_rate, encoder.weight_decay),
        head=RowOptions(head.optimiser, head.rate, head.weight_decay, head.momentum),
        kernel=head.kernel,
        schedule=training.schedule,
        warm_up=training.warm_up,
        clip=training.clip,
        dtype=DTYPES[training.precision],
        seed=recipe.seed,
        micro_batch=training.micro_batch,
        frozen=encoder.frozen,
        mix=mix_of(recipe),
        glas=glas_of(material.rest, recipe),
    )
