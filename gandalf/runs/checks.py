"""Refuse recipes and data before a run that could not be trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gandalf.data.dataset import Dataset
from gandalf.data.lengths import EMPTY_TEXT_REMEDY, count_empty
from gandalf.errors import DataError, argument
from gandalf.metrics.evaluate import KS
from gandalf.nets.encoders import encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.recipe import Encoder, Recipe, Search, Targets
from gandalf.settings import differing, to_dict
from gandalf.systems import AUTO, is_searched
from gandalf.systems import recipe as recipe_of
from gandalf.text.pretrained import need_transformers
from gandalf.train.orders import PointOrder

Limit = tuple[str, Callable[[Any], bool]]  # the limit in words, and its test of a value


def _at_least(least: int) -> Limit:
    return f"at least {least}", lambda value: least <= value


_POSITIVE: Limit = ("greater than 0 and finite", lambda value: 0 < value < math.inf)
_EPOCHS: Limit = ("greater than 0 and at most 1,000,000", lambda value: 0 < value <= 10**6)
_NOT_NEGATIVE: Limit = ("at least 0 and finite", lambda value: 0 <= value < math.inf)
_SHARE: Limit = ("in [0, 1]", lambda value: 0 <= value <= 1)
_RATE: Limit = ("in [0, 1000]", lambda value: 0 <= value <= 1000)  # above, float32 soon overflows
_BELOW_ONE: Limit = ("in [0, 1)", lambda value: 0 <= value < 1)

FAMILIES = ("P", "nDCG", "PSP", "PSnDCG", "R", "C", "macroP")
METRICS = (*(f"{family}@{k}" for family in FAMILIES for k in KS), "MRR")

_STEPS: Limit = ("from 1 to 1,000,000,000", lambda value: 1 <= value <= 10**9)
LIMITS: dict[str, Limit] = {
    "seed": ("from 0 to 2,147,483,647", lambda value: 0 <= value < 2**31),
    "text.max_length": _at_least(0),
    "text.min_count": _at_least(1),
    "text.max_tokens": _at_least(1),
    "encoder.dim": _at_least(1),
    "encoder.dropout": _BELOW_ONE,
    "encoder.last_dropout": _BELOW_ONE,
    "encoder.rate": _RATE,
    "encoder.words_rate": _RATE,
    "encoder.weight_decay": _RATE,
    "head.rate": _RATE,
    "head.momentum": _BELOW_ONE,
    "head.weight_decay": _RATE,
    "siamese.pair_epochs": _EPOCHS,
    "siamese.pair_batch": _at_least(2),
    "siamese.pair_rate": _RATE,
    "siamese.pair_words_rate": _RATE,
    "siamese.pair_dropout": _BELOW_ONE,
    "siamese.pair_warm_up": _SHARE,
    "siamese.power": ("in [0, 10]", lambda value: 0 <= value <= 10),
    "siamese.margin": ("in (0, 2]", lambda value: 0 < value <= 2),
    "siamese.negatives": _at_least(1),
    "siamese.temperature": _POSITIVE,
    "siamese.cluster_share": ("in (0, 1]", lambda value: 0 < value <= 1),
    "siamese.softmax_temperature": _POSITIVE,
    "siamese.guidance": _NOT_NEGATIVE,
    "trees.number": _at_least(1),
    "trees.words": _at_least(1),
    "trees.cost": _POSITIVE,
    "labels.block": _at_least(1),
    "labels.random": _at_least(0),
    "labels.hard": _at_least(0),
    "labels.refresh": _at_least(1),
    "training.epochs": _EPOCHS,
    "training.steps": _STEPS,
    "training.batch": _at_least(0),
    "training.micro_batch": _at_least(0),
    "training.warm_up": _SHARE,
    "training.clip": _NOT_NEGATIVE,
    "training.last_stretch": _SHARE,
    "targets.delta": _BELOW_ONE,
    "targets.scale": _SHARE,
    "targets.top_k": _at_least(1),
    "targets.label_weight": _NOT_NEGATIVE,
    "targets.label_epochs": _SHARE,
    "targets.own_weight": _NOT_NEGATIVE,
    "targets.share": _SHARE,
    "baselines.mix_alpha": _POSITIVE,
    "baselines.glas": _NOT_NEGATIVE,
    "baselines.synonyms": _at_least(0),
    "baselines.synonym_share": _SHARE,
    "memory.neighbours": _at_least(1),
    "search.minutes": _POSITIVE,
    "validation.share": _BELOW_ONE,
    "validation.at_most": _at_least(1),
    "validation.every": _POSITIVE,
    "validation.patience": _at_least(0),
    "validation.metric": (f"one of {', '.join(METRICS)}", lambda value: value in METRICS),
}


def check_run(recipe: Recipe, points: Dataset, world: int = 1) -> None:
    """Refuse a recipe, a training set or a number of ranks that cannot be trained."""
    check_recipe(recipe)
    check_points(points)
    check_ranks(recipe, points.num_labels, world)


def check_recipe(recipe: Recipe) -> None:
    """Refuse settings that cannot be trained, each by itself and together."""
    _check_limits(recipe)
    _check_siamese(recipe)
    _check_search(recipe)
    _check_frozen(recipe)
    _check_baselines(recipe)
    _check_trees(recipe)
    if encoder_kind(recipe.encoder.kind).pretrained:
        _check_pretrained(recipe)
    elif recipe.training.micro_batch:
        what = f"training.micro_batch is for transformers, and an encoder of the kind {recipe.encoder.kind}"
        raise DataError(
            f"{what} reads a batch at once", remedy=f"leave it out, or use a smaller {argument('batch')}"
        )


def _check_limits(recipe: Recipe) -> None:
    """Refuse values outside their limits."""
    remembers = recipe.memory.kind != "none"  # a model with a memory may learn nothing else
    for name, value in _by_dotted_name(to_dict(recipe)).items():
        if name not in LIMITS or value is None or (name == "training.steps" and value == 0 and remembers):
            continue
        phrase, holds = LIMITS[name]
        if not holds(value):
            raise DataError(f"the setting '{name}' is {value}, but it must be {phrase}")


def _check_siamese(recipe: Recipe) -> None:
    """Refuse settings of a siamese stage that is not there, or has not got them."""
    if recipe.siamese.alone and recipe.siamese.kind == "none":
        what = "without a siamese stage there would be no training at all"
        raise DataError(what, remedy="set siamese.kind, or leave siamese.alone out")
    if recipe.siamese.label_points and not _takes_label_points(recipe.siamese.kind):
        what = "label points can take part in a siamese stage of the kind decoupled alone"
        raise DataError(what, remedy="set siamese.kind=decoupled, or leave siamese.label_points out")
    if recipe.siamese.guidance and recipe.siamese.kind == "none":
        what = "the label graph guides a siamese stage, and there is none"
        raise DataError(what, remedy="set siamese.kind, or leave siamese.guidance out")


def _takes_label_points(kind: str) -> bool:
    if kind == "none":
        return False
    from gandalf.train.pairs.kind import pair_kind

    return pair_kind(kind).takes_label_points


def check_encoder(encoder: Encoder) -> None:
    """Refuse an encoder whose libraries or weights are not installed."""
    kind = encoder_kind(encoder.kind)
    if encoder.from_model is None:
        kind.require(encoder)
    elif kind.pretrained:
        need_transformers()


def check_points(points: Dataset) -> None:
    """Refuse a training set from which nothing can be learnt."""
    texts, _ = points.need_texts("training")
    if len(texts) and count_empty(texts) == len(texts):
        raise DataError(
            "every training text is empty, so there is nothing to learn from", remedy=EMPTY_TEXT_REMEDY
        )
    if not points.targets.nnz:
        raise DataError("no training point has a label, so there is nothing to learn")
    points.need_probabilities()


def check_order(order: PointOrder, encoder: Encoder) -> None:
    """Refuse batches that the encoder cannot learn from."""
    smallest = min(order.batch, *(len(phase.points) for phase in order.phases))
    if encoder_kind(encoder.kind).normalises and smallest < 2:
        raise DataError(
            f"an encoder of the kind {encoder.kind} compares the points of an update, and one is too few",
            remedy=f"use a larger {argument('batch')}, more points, or another system",
        )


def _check_search(recipe: Recipe) -> None:
    """Refuse settings of the search where one system is trained, and settings of one system in a search."""
    if recipe.system == AUTO:
        changed = differing(to_dict(recipe_of(AUTO)), to_dict(recipe))
        if foreign := [name for name in changed if not is_searched(name)]:
            what = f"the setting '{foreign[0]}' says how one system is trained, and a search tries several"
            remedy = f"leave it out, or name the system: {argument('system', 'astec')}"
            raise DataError(what, remedy=remedy)
        return
    if unused := differing(to_dict(Search()), to_dict(recipe.search)):
        what = f"search.{unused[0]} belongs to the search, and the system {recipe.system} is trained without"
        remedy = "leave out --minutes and search.parts, or --system and the settings of one system"
        raise DataError(f"{what} one", remedy=remedy)


def _check_frozen(recipe: Recipe) -> None:
    """Refuse to freeze an encoder that has learnt nothing, or rows without label texts."""
    encoder = recipe.encoder
    begins = (encoder.from_model, recipe.text.vectors)
    knows_nothing = not any(begins) and not encoder_kind(encoder.kind).pretrained
    if encoder.frozen and recipe.siamese.kind == "none" and knows_nothing:
        what = "a frozen encoder would stay as it was drawn, at random"
        raise DataError(what, remedy="set encoder.from_model or a siamese.kind, or leave encoder.frozen out")
    if recipe.head.rows == "frozen" and not head_kind(recipe.head.kind).texts:
        what = f"a head of the kind {recipe.head.kind} has no rows of label text that could be frozen"
        raise DataError(what, remedy="leave head.rows out, or set head.kind to gated or attention")


def _check_baselines(recipe: Recipe) -> None:
    """Refuse settings that MixUp and GLaS cannot be combined with."""
    baselines, targets, head = recipe.baselines, recipe.targets, recipe.head
    for name in ("label_weight", "own_weight"):
        if baselines.mix != "none" and getattr(targets, name) != getattr(Targets(), name):
            what = "mixed points have no weights of their own"
            raise DataError(what, remedy=f"leave targets.{name} out, or set baselines.mix=none")
    every = (targets.keep, targets.share) == ("both", 1.0) and targets.targets not in ("none", "auto")
    if baselines.mix == "label-mixup" and not every:
        what = "label-mixup mixes points with label points of every label"
        raise DataError(what, remedy="set targets.targets=self, and leave targets.keep and targets.share out")
    if baselines.glas and (head.kind != "table" or head.kernel == "triton"):
        what = "the GLaS regulariser is for free rows by plain kernels"
        raise DataError(what, remedy="set head.kind=table and head.kernel=torch, or baselines.glas=0")


def _check_trees(recipe: Recipe) -> None:
    """Refuse settings of a network if label trees are trained instead."""
    if recipe.trees.kind == "none":
        return
    found, default = to_dict(recipe), to_dict(Recipe())
    rooms = ("text", "encoder", "head", "siamese", "labels", "training")
    unused = [f"{room}.{name}" for room in rooms for name in differing(default[room], found[room])]
    weights = ("label_weight", "own_weight")
    unused += [
        f"targets.{name}" for name in differing(default["targets"], found["targets"]) if name in weights
    ]
    if unused:
        what = f"the setting '{unused[0]}' says nothing about label trees"
        raise DataError(what, remedy="leave it out, or choose another system")


def _check_pretrained(recipe: Recipe) -> None:
    """Refuse settings of words for a transformer, which has tokens and vectors of its own."""
    if recipe.text.kind != "pretrained":
        what = f"a transformer reads the tokens that it was trained with, not {recipe.text.kind} of the texts"
        raise DataError(what, remedy="set text.kind=pretrained")
    if recipe.head.kind != "table":
        what = f"a head of the kind {recipe.head.kind} shares the encoder's words, and a transformer has none"
        raise DataError(what, remedy="set head.kind=table, or another encoder.kind")
    if recipe.text.vectors is not None:
        what = "a transformer has vectors of its own, and text.vectors would go unused"
        raise DataError(what, remedy="leave text.vectors out, or name another model: encoder.model=...")


def _by_dotted_name(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        is_table = isinstance(value, Mapping)
        found |= _by_dotted_name(value, f"{prefix}{name}.") if is_table else {prefix + name: value}
    return found


def check_ranks(recipe: Recipe, num_labels: int, world: int) -> None:
    """Refuse what does not run over several ranks."""
    if world == 1:
        return
    if world > num_labels:
        what = f"{world} ranks cannot share {num_labels} labels: each needs one of its own"
        raise DataError(what, remedy=f"start {num_labels} ranks at most")
    alone = "leave torchrun out"
    later = "set memory.kind=none, and add a memory to the model afterwards: gandalf remember"
    for is_set, what, remedy in (
        (recipe.trees.kind != "none", f"the system {recipe.system}", alone),
        (
            recipe.targets.targets == "auto",
            "the choice of targets (--targets auto)",
            f"name the targets, or {alone}",
        ),
        (recipe.baselines.glas != 0, "the GLaS regulariser", f"set baselines.glas=0, or {alone}"),
        (recipe.memory.kind != "none", "the fit of a memory", later),
    ):
        if is_set:
            raise DataError(f"{what} does not run over several ranks yet", remedy=remedy)


def check_shares(order: PointOrder, world: int) -> None:
    """Refuse batches with fewer points than ranks."""
    smallest = min(order.batch, *(len(phase.points) for phase in order.phases))
    if smallest < world:
        what = f"{world} ranks cannot share a batch of {smallest}: each needs a point of its own"
        raise DataError(what, remedy="use a larger --batch, or fewer ranks")
