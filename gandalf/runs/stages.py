"""Stages of a run: pairs if the recipe says so, the classifier, the held-out points; and their hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
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
    LabelTexts,
    Material,
    augmented,
    loop_points,
    order,
    plain,
    with_own_labels,
)
from gandalf.runs.validation import Validate
from gandalf.settings import to_dict
from gandalf.train.batches import Points
from gandalf.train.checkpoint import Checkpoints, fingerprint
from gandalf.train.encoder_update import EncoderOptions
from gandalf.train.glas import Glas
from gandalf.train.guidance import Guidance
from gandalf.train.labels import Every, LabelSelection, Shortlist
from gandalf.train.loop import Hook, Training
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
TEXTS_AT_ONCE = 4_096  # that a transformer reads where every label's text is met: each is read twice
STRETCH_RATE = 0.2  # of the classifier's rates: held-out points join a model that is nearly done


class StageState:
    """What else a stage must remember: hard negatives, clusters, validations so far and the best weights."""

    def __init__(self, mined: object, validate: Validate | None, cache: VectorCache | None = None) -> None:
        self.shortlist = mined if isinstance(mined, Shortlist) else None
        self.clustered = mined if isinstance(mined, ClusteredOrder) else None
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


@dataclass(frozen=True, eq=False)
class Running:
    """A stage under way."""

    name: StageName
    training: Training
    validate: Validate | None
    state: StageState
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
    encoder.set_dropout(recipe.encoder.dropout)
    head = assemble_head(recipe, encoder, material.points, material.texts, material.own, material.ranks)
    labels = _labels(recipe, head_labels(material), material.ranks.world)
    points = _with_words(material.points, head, material.texts)
    training = Training(encoder, head, points, _stage(material, labels), before, material.ranks)
    validate = _validate(material, material.epoch, recipe.validation.patience)
    return _running("classifier", material, training, labels, validate)


def _all_points(material: Material, encoder: TextEncoder, before: int, head: Head | None) -> Running:
    """Learn from all training points at low rates, the held-out ones among them, as in the last phase.

    A classifier that met label points to its end goes on meeting them, or it would unlearn rare labels.
    """
    recipe, every = material.recipe, material.every
    assert every is not None
    if head is None:
        head = assemble_head(recipe, encoder, material.points, material.texts, material.own, material.ranks)
    to_the_end = recipe.targets.label_epochs == 1
    made = augmented(every, recipe.targets, recipe.seed, recipe.device) if to_the_end else plain(every)
    made = with_own_labels(made, every, recipe.targets, recipe.seed)
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
            order=Order(
                [Phase(made.phases[0 if to_the_end else 1], steps)], recipe.training.batch, recipe.seed + 1
            ),
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
    name: StageName, material: Material, training: Training, labels: LabelSelection, validate: Validate | None
) -> Running:
    """Return a stage that trains rows, with what must be made anew from time to time."""
    recipe, epoch, head = material.recipe, material.epoch, training.head
    refreshing: list[Hook] = []
    if isinstance(labels, Shortlist):
        every, dtype = max(1, recipe.labels.refresh * epoch), DTYPES[recipe.training.precision]
        refreshing.append(Refresh(labels, recipe.labels.hard, every, dtype))
    if isinstance(head, Composed) and recipe.head.rows == "frozen":
        refreshing.insert(0, RefreshRows(head, epoch))
    return Running(name, training, validate, StageState(labels, validate), epoch, refreshing)


def _siamese(material: Material, encoder: TextEncoder, before: int, head: Head | None) -> Running:
    recipe, texts = material.recipe, material.texts
    assert texts is not None
    encoder.set_dropout(pair_dropout(recipe))
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
    state = StageState(made.order, validate, made.seen)
    return Running("siamese", training, validate, state, made.epoch, refreshing)


def _pairs(material: Material, texts: LabelTexts) -> PairStage:
    """Return the parts of the siamese stage that the recipe names."""
    points, options = material.points, material.recipe.siamese
    alike = (
        pairs_with_same_text(points.tokens, texts.tokens)
        if pair_kind(options.kind).meets_every_label
        else None
    )
    return pair_stage(options, points.targets, ~material.made.is_label, material.recipe.seed, alike)


def _pair_stage(recipe: Recipe, made: PairStage) -> Stage:
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
    every = pair_kind(recipe.siamese.kind).meets_every_label and encoder_kind(recipe.encoder.kind).pretrained
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


def _labels(recipe: Recipe, num_labels: int, world: int) -> LabelSelection:
    if recipe.labels.kind == "shortlist":
        return Shortlist(num_labels, recipe.labels.random, recipe.seed)
    return Every(num_labels, recipe.labels.block or num_labels, world)


def _stage(material: Material, labels: LabelSelection) -> Stage:
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


PAIRS: dict[MixName, Callable[[int, np.random.Generator], MixPairs]] = {
    "mixup": each_other,
    "label-mixup": first_with_second_half,
}


def mix_of(recipe: Recipe) -> MixUp | None:
    """How the vectors of a batch are mixed."""
    options = recipe.baselines
    return None if options.mix == "none" else MixUp(PAIRS[options.mix], options.mix_alpha, recipe.seed)


def glas_of(rest: Dataset, recipe: Recipe) -> Glas | None:
    """The regulariser with the similarities of the training points' labels."""
    if not recipe.baselines.glas:
        return None
    targets = label_graph(rest, GraphOptions(targets="glas", delta=0.0)).matrix
    # GLaS targets are sigmoids of S, so that S is their logit.
    data = logit(targets.data.astype(np.float64)).astype(np.float32)
    similarity = csr_array((data, targets.indices, targets.indptr), shape=targets.shape)
    return Glas(similarity, recipe.baselines.glas)


@contextmanager
def kept(folder: Path, material: Material) -> Iterator[Checkpoints]:
    """Where the encoder of this run's first stage lies, or is to lie; who else wants it waits meanwhile."""
    key = _key(material)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{key}.lock"):
        yield Checkpoints(folder / key)


def _key(material: Material) -> str:
    """What the stage depends on: settings of its own, the points that take part in it, label texts."""
    recipe, points, texts = material.recipe, material.points, material.texts
    assert texts is not None
    own = np.flatnonzero(~material.made.is_label | recipe.siamese.label_points)
    targets = points.targets[own]
    encoder = replace(recipe.encoder, rate=0.0, words_rate=0.0, frozen=False, dropout=pair_dropout(recipe))
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
    arrays = (targets.data, targets.indices, targets.indptr, points.tokens[own], texts.tokens)
    return fingerprint(settings, *(np.ascontiguousarray(each).data for each in arrays))[:24]


# Of the index: lists by the root of L, those searched, k-means rounds, rows that k-means wants for each list.
LISTS_PER_ROOT, PROBES, ROUNDS, PER_LIST = 4, 8, 5, 39
BestLabels = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]  # ids and scores, N x number
ASKED = 1 << 16  # points looked up at once


class Refresh:
    """Hook that gives a shortlist new hard negatives every few steps."""

    def __init__(self, shortlist: Shortlist, hard: int, every: int, dtype: torch.dtype) -> None:
        self.shortlist, self.hard, self.steps, self.dtype = shortlist, hard, every, dtype

    def every(self, training: Training) -> int:
        """Number of steps between two look-ups."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Look up; never ends the training."""
        if self.hard and training.step < training.steps:
            tokens, ranks = training.points.tokens, training.ranks
            vectors = ranks.gather(
                encode_tokens(training.encoder, tokens[ranks.share(len(tokens))]), len(tokens)
            )
            head, own = training.head.plain(), ranks.share(self.shortlist.num_labels)
            hard = min(self.hard, self.shortlist.num_labels)
            ids, scores = _likeliest(vectors, head, hard, self.dtype)
            some = (slice(start, start + ASKED) for start in range(0, len(ids), ASKED))
            found = [merge_best_labels(ranks, ids[rows], scores[rows], own)[0] for rows in some]
            self.shortlist.refresh(np.concatenate(found).astype(np.int32))
        return False


class RefreshRows:
    """Hook that makes the frozen rows of label texts anew every few steps."""

    def __init__(self, head: Composed, every: int) -> None:
        self.head, self.steps = head, every

    def every(self, training: Training) -> int:
        """Number of steps between two refreshes."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make them; never ends the training."""
        self.head.refresh()
        return False


def likeliest(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> npt.NDArray[np.int32]:
    """The labels with the highest scores: by an index on a CPU, by exact products on a GPU."""
    return _likeliest(vectors, head, min(number, head.num_labels), dtype)[0].astype(np.int32)


def _likeliest(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> BestLabels:
    """The same with their scores; -1 and no score where there are fewer labels."""
    if vectors.device.type == "cpu" and (found := _by_index(vectors, head, number)) is not None:
        return found
    return top_k(vectors, head, number, precision=dtype)


def _by_index(vectors: Tensor, head: Table, number: int) -> BestLabels | None:
    """Approximately, by faiss; None where that is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    # The bias is one more number of the row, and 1 one more of the vector.
    rows = np.hstack([head.rows.data.numpy(), head.bias.data.numpy()[:, None]])
    lists = max(1, min(int(LISTS_PER_ROOT * len(rows) ** 0.5), len(rows) // PER_LIST))
    flat = faiss.IndexFlatIP(rows.shape[1])
    index = faiss.IndexIVFFlat(flat, rows.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = ROUNDS
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    found = [index.search(_with_one(part.numpy()), number) for part in torch.split(vectors, ASKED)]
    ids = np.concatenate([each for _, each in found])  # shape: (N, number)
    return ids, np.where(ids >= 0, np.concatenate([each for each, _ in found]), -np.inf)


def _with_one(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])


GRAPH = "shrunk"  # targets of the graph that guides, whatever those of the label points are


def guidance(rest: Dataset, weight: float) -> Guidance | None:
    """Return the guidance by the graph of these training points; None without a weight."""
    return Guidance(label_graph(rest, GraphOptions(GRAPH)).matrix, weight) if weight else None


class RefreshMeans:
    """Hook that makes the means of neighbours anew from time to time."""

    def __init__(self, guide: Guidance, tokens: npt.NDArray[np.int32], every: int) -> None:
        self.guide, self.tokens, self.steps = guide, tokens, every

    def every(self, training: Training) -> int:
        """Return the number of steps between two refreshes."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make them; never end the training."""
        if training.step < training.steps:
            self.guide.refresh(encode_tokens(training.encoder, self.tokens))
        return False
