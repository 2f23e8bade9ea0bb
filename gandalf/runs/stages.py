"""Build the stages of a run from its recipe: pairs if there are any, the classifier, all points.

At the end stands what a stage renews from time to time: hard negatives, frozen rows, means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from scipy.special import logit
from torch import Tensor

from gandalf.data.dataset import Dataset
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.model.exact import top_k
from gandalf.nets.encoder import TextEncoder
from gandalf.nets.encoders import encode_tokens, encoder_kind
from gandalf.nets.heads import Composed, Encoded, Head, Table
from gandalf.recipe import MixName, Recipe
from gandalf.runs.build import assemble_head
from gandalf.runs.checks import check_order, check_shares
from gandalf.runs.prepare import (
    Ints,
    Material,
    point_order,
    points_for_loop,
    with_label_points,
    with_own_label_points,
    without_label_points,
)
from gandalf.runs.validation import Validate
from gandalf.train.batches import Points
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.glas import Glas
from gandalf.train.guidance import Guidance
from gandalf.train.labels import Every, LabelSelection, Shortlist
from gandalf.train.loop import Hook, Periodic, Training
from gandalf.train.mixup import MixPairs, MixUp, each_other, first_with_second_half
from gandalf.train.orders import ClusteredOrder, Order, Phase
from gandalf.train.pairs.kind import PairStage, VectorCache, pair_kind, pair_stage, pairs_with_same_text
from gandalf.train.parallel.gather import merge_best_labels
from gandalf.train.parallel.shards import per_label
from gandalf.train.precision import DTYPES
from gandalf.train.rates import PAIRS_RATED_FOR, at_batch
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.stage import Stage

StageName = Literal["siamese", "classifier", "all-points"]
TEXTS_AT_ONCE = 4_096  # read by a transformer, where an update meets every label text
ALL_POINTS_RATE = 0.2  # of the classifier's rates: held-out points join a model that is nearly done
GUIDING_TARGETS = "shrunk"  # of the graph that guides pairs, whatever the targets of label points are
MIXES: dict[MixName, Callable[[int, np.random.Generator], MixPairs]] = {
    "mixup": each_other,
    "label-mixup": first_with_second_half,
}


class StageState:
    """What a checkpoint keeps of a stage besides its weights: hard negatives, clusters, validations."""

    def __init__(self, drawn_by: object, validate: Validate | None, cache: VectorCache | None = None) -> None:
        self.shortlist = drawn_by if isinstance(drawn_by, Shortlist) else None
        self.clustered = drawn_by if isinstance(drawn_by, ClusteredOrder) else None
        self.validate, self.cache = validate, cache

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return tensors and numbers for a checkpoint."""
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
        """Restore what `state` returned."""
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


@dataclass(frozen=True, eq=False)
class ActiveStage:
    """A stage in training, with its validation and what it refreshes."""

    name: StageName
    training: Training
    validate: Validate | None
    state: StageState
    epoch: int  # updates in an epoch of this stage
    refreshing: list[Hook] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Return True after the last step, or if patience has run out."""
        stopped = self.validate is not None and self.validate.over
        return stopped or self.training.step == self.training.steps

    @property
    def history(self) -> list[dict[str, Any]]:
        """The validations so far."""
        return [] if self.validate is None else self.validate.history


def stages_of(recipe: Recipe) -> tuple[StageName, ...]:
    """Return the stages of a recipe in their order."""
    if recipe.siamese.alone:
        return ("siamese",)
    first: tuple[StageName, ...] = () if recipe.siamese.kind == "none" else ("siamese",)
    learns_held_out_points = recipe.training.last_stretch and recipe.validation.share
    last: tuple[StageName, ...] = ("all-points",) if learns_held_out_points else ()
    return (*first, "classifier", *last)


def begin_stage(
    name: StageName, material: Material, encoder: TextEncoder, steps_before: int, head: Head | None = None
) -> ActiveStage:
    """Return a stage at its first step; `head` is the classifier's, which the stage all-points trains on.

    A resumed stage all-points gets no head: it makes one, and the checkpoint fills it.
    """
    if name == "siamese":
        stage = _begin_siamese(material, encoder, steps_before)
    elif name == "classifier":
        stage = _begin_classifier(material, encoder, steps_before)
    else:
        head = _new_head(material, encoder) if head is None else head
        stage = _begin_all_points(material, encoder, steps_before, head)
    state = stage.training.head.state_dict(prefix="head/")
    material.ranks.synchronise([tensor for name, tensor in state.items() if not per_label(name)])
    return stage


# ---- stages that train rows


def _begin_classifier(material: Material, encoder: TextEncoder, steps_before: int) -> ActiveStage:
    recipe = material.recipe
    encoder.set_dropout(recipe.encoder.dropout)
    head, labels = _new_head(material, encoder), _label_selection(material)
    points = _with_label_words(material.points, head, material)
    training = Training(encoder, head, points, _row_stage(material, labels), steps_before, material.ranks)
    validate = _validation(material, material.epoch, recipe.validation.patience)
    return _active_row_stage("classifier", material, training, labels, validate)


def _begin_all_points(material: Material, encoder: TextEncoder, steps_before: int, head: Head) -> ActiveStage:
    """Begin to learn from all training points at low rates, as in the classifier's last phase.

    A classifier that met label points to its end goes on meeting them, or it would unlearn rare labels.
    """
    recipe, labels = material.recipe, _label_selection(material)
    classifier = _row_stage(material, labels)
    steps = max(1, round(recipe.training.last_stretch * classifier.order.steps))
    points, rows = _all_points(material)
    stage = replace(
        classifier,
        order=Order([Phase(rows, steps)], recipe.training.batch, recipe.seed + 1),
        encoder=classifier.encoder.slowed(ALL_POINTS_RATE),
        head=classifier.head.slowed(ALL_POINTS_RATE),
        schedule="linear",
        warm_up=0.0,
    )
    points = _with_label_words(points, head, material)
    training = Training(encoder, head, points, stage, steps_before, material.ranks)
    return _active_row_stage("all-points", material, training, labels, None)


def _all_points(material: Material) -> tuple[Points, Ints]:
    """Return all training points with their label points, and the rows that the stage all-points meets."""
    recipe, every = material.recipe, material.all_points
    meets_label_points = recipe.targets.label_epochs == 1
    if meets_label_points:
        augmented = with_label_points(every, recipe.targets, recipe.seed, recipe.device)
    else:
        augmented = without_label_points(every)
    augmented = with_own_label_points(augmented, every, recipe.targets, recipe.seed)
    points = points_for_loop(augmented, material.tokens, recipe.targets)
    return points, augmented.phases[0 if meets_label_points else 1]


def _new_head(material: Material, encoder: TextEncoder) -> Head:
    points, own = material.points, material.own_labels
    return assemble_head(material.recipe, encoder, points, material.texts, own, material.ranks)


def _label_selection(material: Material) -> LabelSelection:
    options, num_labels = material.recipe.labels, material.num_labels
    if options.kind == "shortlist":
        return Shortlist(num_labels, options.random, material.recipe.seed)
    return Every(num_labels, options.block or num_labels, material.ranks.world)


def _with_label_words(points: Points, head: Head, material: Material) -> Points:
    """Return the points with the words of label texts if the head makes rows of them."""
    if isinstance(head, Composed) and material.texts is not None:
        return replace(points, label_words=material.texts.words())
    return points


def _row_stage(material: Material, labels: LabelSelection) -> Stage:
    """Return order, labels, rates and further options of a stage that trains rows."""
    recipe = material.recipe
    encoder, head, training = recipe.encoder, recipe.head, recipe.training
    order = point_order(material.augmented, recipe, material.epoch)
    check_order(order, encoder)
    check_shares(order, material.ranks.world)
    return Stage(
        order,
        labels,
        encoder=EncoderOptions(
            encoder.optimiser,
            at_batch(encoder.rate, encoder.optimiser, training.batch),
            encoder.words_rate,  # always of Adam
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
        mix=_mixup(recipe),
        glas=glas_regulariser(material.rest, recipe.baselines.glas),
    )


def _mixup(recipe: Recipe) -> MixUp | None:
    options = recipe.baselines
    return None if options.mix == "none" else MixUp(MIXES[options.mix], options.mix_alpha, recipe.seed)


def glas_regulariser(rest: Dataset, weight: float) -> Glas | None:
    """Return the regulariser with the similarities of the training points' labels; None without a weight."""
    if not weight:
        return None
    targets = label_graph(rest, GraphOptions(targets="glas", delta=0.0)).matrix
    # GLaS targets are sigmoids of S, so S is their logit.
    data = logit(targets.data.astype(np.float64)).astype(np.float32)
    return Glas(csr_array((data, targets.indices, targets.indptr), shape=targets.shape), weight)


def _active_row_stage(
    name: StageName, material: Material, training: Training, labels: LabelSelection, validate: Validate | None
) -> ActiveStage:
    recipe, epoch, head = material.recipe, material.epoch, training.head
    refreshing: list[Hook] = []
    if isinstance(head, Composed) and recipe.head.rows == "frozen":
        refreshing.append(Periodic(epoch, lambda _: head.refresh()))
    if isinstance(labels, Shortlist):
        steps, dtype = max(1, recipe.labels.refresh * epoch), DTYPES[recipe.training.precision]
        refreshing.append(Periodic(steps, partial(refresh_shortlist, labels, recipe.labels.hard, dtype)))
    return ActiveStage(name, training, validate, StageState(labels, validate), epoch, refreshing)


# ---- the stage that trains the encoder on pairs


def _begin_siamese(material: Material, encoder: TextEncoder, steps_before: int) -> ActiveStage:
    recipe, texts = material.recipe, material.texts
    assert texts is not None
    encoder.set_dropout(recipe.pair_dropout)
    tokens = torch.from_numpy(texts.tokens[material.own_labels]).to(recipe.device)
    pairs = _pairs(material)
    check_shares(pairs.order, material.ranks.world)
    stage, refreshing = _pair_stage(recipe, pairs), list(pairs.refreshing)
    if recipe.siamese.guidance:
        graph = label_graph(material.rest, GraphOptions(GUIDING_TARGETS)).matrix
        guidance = Guidance(graph, recipe.siamese.guidance)
        guidance.refresh(encode_tokens(encoder, texts.tokens))
        stage = replace(stage, guidance=guidance)
        refreshing.append(Periodic(pairs.epoch, partial(refresh_means, guidance, texts.tokens)))
    points = replace(material.points, label_tokens=texts.tokens)
    if pairs.targets is not None:
        points = replace(points, targets=pairs.targets)
    head = Encoded(encoder, tokens, encoder.dim)
    training = Training(encoder, head, points, stage, steps_before, material.ranks)
    validate = _validation(
        material, pairs.epoch, patience=0, keep=False
    )  # the next stage changes the encoder
    state = StageState(pairs.order, validate, pairs.seen)
    return ActiveStage("siamese", training, validate, state, pairs.epoch, refreshing)


def _pairs(material: Material) -> PairStage:
    """Return order, labels and loss of the pairs that the recipe names."""
    points, options, texts = material.points, material.recipe.siamese, material.texts
    assert texts is not None
    every = pair_kind(options.kind).meets_every_label
    same_text = pairs_with_same_text(points.tokens, texts.tokens) if every else None
    is_point = ~material.augmented.is_label
    return pair_stage(options, points.targets, is_point, material.recipe.seed, same_text)


def _pair_stage(recipe: Recipe, pairs: PairStage) -> Stage:
    options, encoder, training = recipe.siamese, recipe.encoder, recipe.training
    return Stage(
        pairs.order,
        pairs.labels,
        pairs=pairs.loss,
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
        seen=pairs.seen,
    )


def _pair_micro_batch(recipe: Recipe) -> int:
    """Return how many texts are read at once: all label texts together would not fit into memory."""
    every = pair_kind(recipe.siamese.kind).meets_every_label and encoder_kind(recipe.encoder.kind).pretrained
    return recipe.training.micro_batch or (TEXTS_AT_ONCE if every else 0)


def _validation(material: Material, epoch: int, patience: int, keep: bool = True) -> Validate | None:
    if material.held is None:
        return None
    options = replace(material.recipe.validation, patience=patience)
    return Validate(material.held, options, max(1, round(options.every * epoch)), keep)


POINTS_AT_ONCE = 1 << 16  # in a search for their likeliest labels
# Of the index: lists by the root of L, lists searched, rounds of k-means, rows that k-means wants for a list.
LISTS_PER_ROOT, PROBES, ROUNDS, PER_LIST = 4, 8, 5, 39
BestLabels = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]  # ids and scores, N x number


def refresh_shortlist(shortlist: Shortlist, hard: int, dtype: torch.dtype, training: Training) -> None:
    """Give a shortlist the likeliest labels of each point as new hard negatives."""
    if not hard or training.step == training.steps:
        return
    tokens, ranks = training.points.tokens, training.ranks
    vectors = ranks.gather(encode_tokens(training.encoder, tokens[ranks.share(len(tokens))]), len(tokens))
    head, own = training.head.plain(), ranks.share(shortlist.num_labels)
    ids, scores = likeliest_labels(vectors, head, min(hard, shortlist.num_labels), dtype)
    parts = (slice(start, start + POINTS_AT_ONCE) for start in range(0, len(ids), POINTS_AT_ONCE))
    found = [merge_best_labels(ranks, ids[rows], scores[rows], own)[0] for rows in parts]
    shortlist.refresh(np.concatenate(found).astype(np.int32))


def refresh_means(guidance: Guidance, tokens: npt.NDArray[np.int32], training: Training) -> None:
    """Give the guidance the mean vectors of each label's neighbours; `tokens` are those of label texts."""
    if training.step < training.steps:
        guidance.refresh(encode_tokens(training.encoder, tokens))


def likeliest_labels(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> BestLabels:
    """Return the labels with the highest scores: by an index on a CPU, by exact products on a GPU.

    Where there are fewer labels, ids are -1 and scores -inf.
    """
    if vectors.device.type == "cpu" and (found := _search_index(vectors, head, number)) is not None:
        return found
    return top_k(vectors, head, number, precision=dtype)


def _search_index(vectors: Tensor, head: Table, number: int) -> BestLabels | None:
    """Search approximately by faiss; return None without it."""
    try:
        import faiss
    except ImportError:
        return None
    # The bias is one more number of the row, and 1 one more number of the vector.
    rows = np.hstack([head.rows.data.numpy(), head.bias.data.numpy()[:, None]])
    lists = max(1, min(int(LISTS_PER_ROOT * len(rows) ** 0.5), len(rows) // PER_LIST))
    flat = faiss.IndexFlatIP(rows.shape[1])
    index = faiss.IndexIVFFlat(flat, rows.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = ROUNDS
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    found = [index.search(_with_one(part.numpy()), number) for part in torch.split(vectors, POINTS_AT_ONCE)]
    ids = np.concatenate([each for _, each in found])  # shape: (N, number)
    return ids, np.where(ids >= 0, np.concatenate([each for each, _ in found]), -np.inf)


def _with_one(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])
