"""The stages of a run: the encoder by pairs first, where the recipe says so, then the classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from gandalf.data.dataset import Dataset
from gandalf.nets.encoders import TextEncoder, encode_tokens, set_dropout
from gandalf.nets.heads import Composed, Encoded, Head
from gandalf.recipe import Recipe
from gandalf.runs.build import assemble_head
from gandalf.runs.checks import check_order, check_shares
from gandalf.runs.guided import RefreshMeans, guidance
from gandalf.runs.hooks import Memory
from gandalf.runs.prepare import (
    Augmented,
    LabelTexts,
    epoch_steps,
    glas_of,
    loop_points,
    mix_of,
    order,
    plain,
    with_own_labels,
)
from gandalf.runs.shortlists import Refresh, RefreshRows
from gandalf.runs.siamese import Siamese, pairs_alike, siamese
from gandalf.runs.validation import Held, Validate
from gandalf.text.tokens import Tokens
from gandalf.train.batches import Order, Phase, Points
from gandalf.train.head_update import RowOptions
from gandalf.train.labels import Every, Labels, Shortlist
from gandalf.train.loop import Hook, Stage, Training
from gandalf.train.optimisers import EncoderOptions
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.train.parallel.shards import per_label
from gandalf.train.precision import DTYPES
from gandalf.train.rates import PAIRS_RATED_FOR, at_batch

StageName = Literal["siamese", "classifier", "all-points"]
TEXTS_AT_ONCE = 4_096  # that a transformer reads where every label's text is met: each is read twice
STRETCH_RATE = 0.2  # of the classifier's rates: held-out points join a model that is nearly done


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
    every: Dataset | None = None  # all training points, for a last stretch

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
    if recipe.siamese.alone:
        return ("siamese",)
    first: tuple[StageName, ...] = () if recipe.siamese.kind == "none" else ("siamese",)
    last: tuple[StageName, ...] = ("all-points",) if has_stretch(recipe) else ()
    return (*first, "classifier", *last)


def has_stretch(recipe: Recipe) -> bool:
    """Return True if held-out points are learnt from at the end."""
    return bool(recipe.training.last_stretch and recipe.validation.share)


def pair_dropout(recipe: Recipe) -> float:
    """What the encoder drops in a siamese stage."""
    own = recipe.siamese.pair_dropout
    return recipe.encoder.dropout if own is None else own


def begin(
    name: StageName, material: Material, encoder: TextEncoder, before: int, head: Head | None = None
) -> Running:
    """Return a stage at its first step, after so many steps of others; `head` is that of the stage before.

    Only the last stretch goes on with a head. A resumed stretch has none and makes it anew: the checkpoint
    fills it.
    """
    running = BEGIN[name](material, encoder, before, head)
    state = running.training.head.state_dict(prefix="head/")
    material.ranks.synchronise([tensor for name, tensor in state.items() if not per_label(name)])
    return running


def _classifier(material: Material, encoder: TextEncoder, before: int, head: Head | None) -> Running:
    recipe = material.recipe
    set_dropout(encoder, recipe.encoder.dropout)
    head = assemble_head(recipe, encoder, material.points, material.texts, material.own, material.ranks)
    labels = _labels(recipe, head_labels(material), material.ranks.world)
    points = _with_words(material.points, head, material.texts)
    training = Training(encoder, head, points, _stage(material, labels), before, material.ranks)
    validate = _validate(material, material.epoch, recipe.validation.patience)
    return _running("classifier", material, training, labels, validate)


def _all_points(material: Material, encoder: TextEncoder, before: int, head: Head | None) -> Running:
    """Learn from all training points at low rates, the held-out ones among them, as in the last phase."""
    recipe, every = material.recipe, material.every
    assert every is not None
    if head is None:
        head = assemble_head(recipe, encoder, material.points, material.texts, material.own, material.ranks)
    made = with_own_labels(plain(every), every, recipe.targets, recipe.seed)
    points = loop_points(made, material.tokens, recipe.targets)
    labels = _labels(recipe, head_labels(material), material.ranks.world)
    stage = _stage(material, labels)
    steps = max(1, round(recipe.training.last_stretch * stage.order.steps))
    training = Training(
        encoder,
        head,
        _with_words(points, head, material.texts),
        replace(
            stage,
            order=Order([Phase(made.phases[1], steps)], recipe.training.batch, recipe.seed + 1),
            encoder=stage.encoder.slowed(STRETCH_RATE),
            head=stage.head.slowed(STRETCH_RATE),
            schedule="linear",
            warm_up=0.0,
        ),
        before,
        material.ranks,
    )
    return _running("all-points", material, training, labels, None)


def head_labels(material: Material) -> int:
    """Return the number of labels of all ranks."""
    return int(material.points.targets.shape[1])


def _with_words(points: Points, head: Head, texts: LabelTexts | None) -> Points:
    """Return the points with the words of label texts, where rows are made of those."""
    if isinstance(head, Composed) and texts is not None:
        return replace(points, label_words=texts.words())
    return points


def _running(
    name: StageName, material: Material, training: Training, labels: Labels, validate: Validate | None
) -> Running:
    """Return a stage that trains rows, with what must be made anew from time to time."""
    recipe, epoch, head = material.recipe, material.epoch, training.head
    refreshing: list[Hook] = []
    if isinstance(labels, Shortlist):
        every, dtype = max(1, recipe.labels.refresh * epoch), DTYPES[recipe.training.precision]
        refreshing.append(Refresh(labels, recipe.labels.hard, every, dtype))
    if isinstance(head, Composed) and recipe.head.rows == "frozen":
        refreshing.insert(0, RefreshRows(head, epoch))
    return Running(name, training, validate, Memory(labels, validate), epoch, refreshing)


def _siamese(material: Material, encoder: TextEncoder, before: int, head: Head | None) -> Running:
    recipe, texts = material.recipe, material.texts
    assert texts is not None
    set_dropout(encoder, pair_dropout(recipe))
    tokens = torch.from_numpy(texts.tokens[material.own]).to(recipe.device)
    head = Encoded(encoder, tokens, encoder.dim)
    made = _pairs(material, texts)
    check_shares(made.order, material.ranks.world)
    stage, refreshing = _pair_stage(recipe, made), list(made.refreshing)
    if (guide := guidance(material.rest, recipe.siamese.guidance)) is not None:
        guide.refresh(encode_tokens(encoder, texts.tokens))
        stage = replace(stage, guidance=guide)
        refreshing.append(RefreshMeans(guide, texts.tokens, made.epoch))
    points = replace(material.points, label_tokens=texts.tokens)
    if made.targets is not None:
        points = replace(points, targets=made.targets)
    training = Training(encoder, head, points, stage, before, material.ranks)
    validate = _validate(material, made.epoch, patience=0, keep=False)  # another stage changes the encoder
    memory = Memory(made.order, validate, made.seen)
    return Running("siamese", training, validate, memory, made.epoch, refreshing)


def _pairs(material: Material, texts: LabelTexts) -> Siamese:
    """Return the parts of the siamese stage that the recipe names."""
    points, options = material.points, material.recipe.siamese
    alike = pairs_alike(points.tokens, texts.tokens) if options.kind == "decoupled" else None
    return siamese(options, points.targets, ~material.made.is_label, material.recipe.seed, alike)


def _pair_stage(recipe: Recipe, made: Siamese) -> Stage:
    options, encoder, training = recipe.siamese, recipe.encoder, recipe.training
    return Stage(
        made.order,
        made.labels,
        pairs=made.loss,
        encoder=EncoderOptions(
            encoder.optimiser,
            at_batch(options.pair_rate, encoder.optimiser, options.pair_batch, PAIRS_RATED_FOR),
            options.pair_words_rate,
            encoder.weight_decay,
        ),
        schedule=options.pair_schedule,
        warm_up=options.pair_warm_up,
        clip=training.clip,
        dtype=DTYPES[training.precision],
        seed=recipe.seed,
        micro_batch=_pair_micro_batch(recipe),
        seen=made.seen,
    )


def _pair_micro_batch(recipe: Recipe) -> int:
    """Return how many texts are read at once: all label texts together would not fit."""
    every = recipe.siamese.kind == "decoupled" and recipe.encoder.kind == "transformer"
    return recipe.training.micro_batch or (TEXTS_AT_ONCE if every else 0)


Begin = Callable[[Material, TextEncoder, int, Head | None], Running]
BEGIN: dict[StageName, Begin] = {
    "siamese": _siamese,
    "classifier": _classifier,
    "all-points": _all_points,
}


def _validate(material: Material, epoch: int, patience: int, keep: bool = True) -> Validate | None:
    if material.held is None:
        return None
    options = replace(material.recipe.validation, patience=patience)
    return Validate(material.held, options, max(1, round(options.every * epoch)), keep)


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
        encoder=EncoderOptions(
            encoder.optimiser,
            at_batch(encoder.rate, encoder.optimiser, training.batch),
            encoder.words_rate,  # by Adam, whatever moves the layers
            encoder.weight_decay,
        ),
        head=RowOptions(
            head.optimiser,
            at_batch(head.rate, head.optimiser, training.batch),
            head.weight_decay,
            head.momentum,
        ),
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
