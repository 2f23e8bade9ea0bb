"""Prepare the data of a run: hold out points, add label points, turn texts into token ids."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, eye_array
from torch.nn import functional as F

from gandalf.augment.label_points import Keep, augment_with_mask
from gandalf.augment.synonyms import distinct_words, replace_words
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.lengths import MOST_PIECES, MOST_WORDS
from gandalf.errors import DataError
from gandalf.graph.estimates.walk import smoothing_graph
from gandalf.graph.kind import LabelGraph
from gandalf.model import Model, load_network
from gandalf.nets.encoders import encode_tokens, encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.nets.transformer import pretrained_encoder
from gandalf.recipe import Encoder, Recipe, Targets, Text
from gandalf.runs.folder import RunPlace
from gandalf.runs.graph import any_label_graph, graph_options
from gandalf.runs.validation import HeldOutPoints
from gandalf.text.pretrained import model_folder, need_transformers, pretrained_tokens
from gandalf.text.subwords import Subwords, SubwordsOptions
from gandalf.text.table import count_cut, token_table, with_fitted_length
from gandalf.text.tokens import Tokens
from gandalf.text.words import Words, WordsOptions
from gandalf.train.batches import LabelWords, Points
from gandalf.train.orders import Order, Phase, PointOrder, WithLabelPoints
from gandalf.train.parallel.ranks import ONE, Ranks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MANY_TEXTS = 1_000_000  # whose token ids are better left on disk: 128 bytes each


def split_holdout(points: Dataset, recipe: Recipe) -> tuple[Dataset, Dataset | None]:
    """Split training points into the rest and the validation share, which is None if the share is 0."""
    options = recipe.validation
    if not options.share:
        return points, None
    try:
        parts = hold_out_points(points, options.share, recipe.seed, at_most=options.at_most)
    except DataError as error:
        remedy = f"{error.problem.remedy}, or train without: gandalf train ... --validation 0"
        raise DataError(error.problem.what, remedy=remedy) from error
    return parts.rest, parts.held


@dataclass(frozen=True, eq=False)
class Augmented:
    """Training points with label points, which of these are label points, and the graph of their targets."""

    points: Dataset
    is_label: Mask  # shape: (N,)
    graph: LabelGraph | None
    num_last: int = 0  # label points at the end that only the last phase meets

    @property
    def phases(self) -> tuple[Ints, Ints]:
        """Rows of the points of the first and of the last phase of training."""
        rows = np.arange(len(self.is_label))
        first = len(rows) - self.num_last
        return rows[:first], np.append(np.flatnonzero(~self.is_label[:first]), rows[first:])

    @property
    def details(self) -> dict[str, Any]:
        """Kind and options of the targets, for `metrics.json`."""
        return {} if self.graph is None else {"targets_used": self.graph.estimate, **self.graph.details}


def without_label_points(points: Dataset) -> Augmented:
    """Return the points alone."""
    return Augmented(points, np.zeros(len(points), dtype=bool), None)


def with_label_points(rest: Dataset, targets: Targets, seed: int, device: str = "cpu") -> Augmented:
    """Return the points with the label points that the settings ask for."""
    if targets.targets == "auto":
        raise DataError("targets must be chosen before label points are made")
    if targets.targets == "none":
        if targets.keep != "both":
            raise DataError(f"without label points there is nothing to keep {targets.keep!r} of")
        return without_label_points(rest)
    graph = any_label_graph(rest, graph_options(targets, seed), device)
    keep = Keep(targets.keep, targets.share, targets.order, seed)
    points, is_label = augment_with_mask(rest, graph.matrix, keep)
    return Augmented(points, is_label, graph)


def with_own_label_points(augmented: Augmented, rest: Dataset, targets: Targets, seed: int) -> Augmented:
    """Append the label points of the last phase, which have their own label as their only target."""
    if not targets.own_weight or targets.label_epochs == 1 or targets.targets == "none":
        return augmented
    keep = Keep(targets.keep, targets.share, targets.order, seed)
    points, is_label = augment_with_mask(rest, csr_array(eye_array(rest.num_labels, format="csr")), keep)
    last = points[np.flatnonzero(is_label)]
    is_label = np.append(augmented.is_label, np.ones(len(last), dtype=bool))
    return replace(augmented, points=augmented.points + last, is_label=is_label, num_last=len(last))


@lru_cache(maxsize=1)
def starting_model(folder: str) -> Model:
    """Load the model whose vocabulary and encoder a run starts from."""
    return load_network(folder)


def fit_tokens(points: Dataset, text: Text, encoder: Encoder) -> Tokens:
    """Fit a vocabulary to training texts and label texts, or return that of the encoder's model."""
    if encoder.from_model is not None:
        return starting_model(encoder.from_model).tokens
    texts, _ = points.need_texts("training")
    tokens = _fit_vocabulary([*texts, *points.all_label_texts], text, encoder)
    return tokens if text.max_length else with_fitted_length(tokens, texts)


def _fit_vocabulary(texts: list[str], text: Text, encoder: Encoder) -> Tokens:
    """Return a vocabulary that reads texts up to their set length, or up to the longest by default."""
    if text.kind == "pretrained":
        tokens = pretrained_tokens(encoder.model, text.max_length or _most_pieces(encoder))
        return tokens.counted(texts) if encoder_kind(encoder.kind).weighs_tokens else tokens
    if text.kind == "subwords":
        size = min(text.max_tokens, 32_000)
        return Subwords.fit(texts, SubwordsOptions(max_length=text.max_length or MOST_PIECES, size=size))
    length = text.max_length or MOST_WORDS
    return Words.fit(texts, WordsOptions(length, text.min_count, text.max_tokens))


def _most_pieces(encoder: Encoder) -> int:
    """Return how many pieces of a text an encoder may be given by default."""
    longest = encoder_kind(encoder.kind).longest(encoder)
    return MOST_PIECES if longest is None else min(MOST_PIECES, longest)


def points_for_loop(
    augmented: Augmented, tokens: Tokens, targets: Targets, file: Path | None = None
) -> Points:
    """Return token ids, targets and weights of the points; token ids of very many points go to the file."""
    points = augmented.points
    file = file if len(points) >= MANY_TEXTS else None
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    weights = np.where(augmented.is_label, targets.label_weight, 1.0).astype(np.float32)
    weights[len(weights) - augmented.num_last :] = targets.own_weight
    token_ids = token_table(tokens, points.texts or [], path=file)
    return Points(token_ids, points.targets, None if (weights == 1.0).all() else weights)


def _label_point_rows(augmented: Augmented) -> Ints:
    """Return the row of each label's point; -1 for a label with an empty text."""  # shape: (L,)
    texts = augmented.points.label_texts or ()
    has_point = np.array([bool(text) and not text.isspace() for text in texts])
    return np.where(has_point, int(np.argmax(augmented.is_label)) + np.cumsum(has_point) - 1, -1)


def epoch_steps(rest: Dataset, batch: int) -> int:
    """Return the updates of an epoch: over N points and all label texts, whatever the targets.

    So runs with and without label points take equal steps. At equal passes over its own points, a run without
    label points would look worse only because it takes fewer steps.
    """
    return math.ceil((len(rest) + rest.num_label_texts) / batch)


def point_order(augmented: Augmented, recipe: Recipe, epoch: int) -> PointOrder:
    """Return which points each step meets: the points of the first phase, then those of the last."""
    share = recipe.targets.label_epochs
    if not 0 <= share <= 1:
        raise DataError(f"label_epochs is {share}, but it is a share of the updates and lies in [0, 1]")
    steps = recipe.training.steps
    if steps is None:
        steps = max(1, round(recipe.training.epochs * epoch))
    first, last = augmented.phases
    if recipe.baselines.mix == "label-mixup":  # label points come with the points that carry their label
        order = Order([Phase(last, steps)], recipe.training.batch, recipe.seed)
        return WithLabelPoints(order, augmented.points.targets, _label_point_rows(augmented))
    # One point alone is no batch: layers that normalise over a batch need two.
    with_labels = round(share * steps) if len(last) > 1 and augmented.is_label.any() else steps
    phases = [Phase(first, with_labels), Phase(last, steps - with_labels)]
    return Order([phase for phase in phases if phase.steps] or phases[:1], recipe.training.batch, recipe.seed)


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts of all labels, as tokens and as bags of words."""

    tokens: npt.NDArray[np.int32]  # L x T
    bags: dict[str, csr_array]  # L x V; "own": words of the label, "averaged": and of its neighbours
    graph: csr_array | None  # L x L; the neighbours that the words are averaged over

    @staticmethod
    def of(rest: Dataset, tokens: Tokens, recipe: Recipe) -> LabelTexts | None:
        """Return the label texts as the recipe's stages need them; None if no stage reads them."""
        parts = head_kind(recipe.head.kind).texts
        starts_by_graph = recipe.head.start == "graph-text"
        if not parts and recipe.siamese.kind == "none" and recipe.head.start not in ("text", "graph-text"):
            return None
        _, texts = rest.need_texts("reading label texts")
        table = token_table(tokens, texts)
        wants_graph = starts_by_graph or "averaged" in parts
        graph = smoothing_graph(rest.targets, seed=recipe.seed) if wants_graph else None
        bags = {"own": word_bags(table, tokens.idf())} if parts else {}
        if graph is not None and "averaged" in parts:
            bags["averaged"] = csr_array(graph @ bags["own"])
        return LabelTexts(table, bags, graph)

    def words(self) -> LabelWords:
        """Return the words that rows of labels are made of."""
        first, *rest = self.bags.values()
        return LabelWords(csr_array(sum(rest, start=first)))


def word_bags(table: npt.NDArray[np.int32], idf: npt.NDArray[np.float32]) -> csr_array:
    """Weight the words of each text by idf, as a bag-of-words encoder does, to length 1."""  # shape: (L, V)
    weight = np.where(table != 0, idf[table], 0).astype(np.float64)
    weight /= np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-12)
    row, place = np.nonzero(weight)
    entries = (weight[row, place].astype(np.float32), (row, table[row, place]))
    return csr_array(entries, shape=(len(table), len(idf)))


MOST_SYNONYMS, LEAST_COSINE = 5, 0.5  # of a word
WORD_LENGTH = 16  # tokens of a word
WORDS_AT_ONCE = 1024  # words compared with all others at once


def with_synonyms(augmented: Augmented, rest: Dataset, recipe: Recipe) -> Augmented:
    """Append versions of the training points in which synonyms replace some words."""
    options = recipe.baselines
    if not options.synonyms:
        return augmented
    texts, _ = rest.need_texts("synonym replacement")
    near = near_words(tuple(distinct_words(texts)), recipe.encoder.model, recipe.device)
    generator, points = np.random.default_rng([recipe.seed, 1]), augmented.points
    for _ in range(options.synonyms):
        points = points + replace_words(rest, near, options.synonym_share, generator)
    more = np.zeros(len(points) - len(augmented.points), dtype=bool)
    return replace(augmented, points=points, is_label=np.concatenate([augmented.is_label, more]))


@lru_cache(maxsize=1)
def near_words(words: tuple[str, ...], model: str | None, device: str = "cpu") -> dict[str, list[str]]:
    """Return for each word the nearest other words by a pre-trained encoder's vectors."""
    need_transformers()
    folder = model_folder(model)
    tokens = pretrained_tokens(folder, WORD_LENGTH)
    encoder = pretrained_encoder(folder, tokens)
    vectors = F.normalize(
        encode_tokens(encoder.to(device), token_table(tokens, words)), dim=1
    )  # shape: (W, dim)
    found: dict[str, list[str]] = {}
    for start in range(0, len(words), WORDS_AT_ONCE):
        cosine = vectors[start : start + WORDS_AT_ONCE] @ vectors.T  # shape: (block, W)
        rows = torch.arange(len(cosine), device=cosine.device)
        cosine[rows, start + rows] = -1.0  # a word is no synonym of itself
        best = torch.topk(cosine, min(MOST_SYNONYMS, len(words)), dim=1)
        for row, (values, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            kept = zip(values, places, strict=True)
            found[words[start + row]] = [words[place] for value, place in kept if value >= LEAST_COSINE]
    return found


@dataclass(frozen=True, eq=False)
class Material:
    """What all stages of a run work on."""

    recipe: Recipe
    rest: Dataset  # training points without the held-out ones
    augmented: Augmented  # the rest with label points
    tokens: Tokens
    points: Points
    all_points: Dataset  # training points with the held-out ones, for the stage all-points
    held: HeldOutPoints | None = None
    texts: LabelTexts | None = None
    ranks: Ranks = ONE

    @property
    def epoch(self) -> int:
        """Updates in an epoch of the classifier."""
        return epoch_steps(self.rest, self.recipe.training.batch)

    @property
    def num_labels(self) -> int:
        """Number of labels of all ranks."""
        return int(self.points.targets.shape[1])

    @property
    def own_labels(self) -> slice:
        """The labels whose rows this rank holds."""
        return self.ranks.share(self.num_labels)

    def with_label_texts(self) -> Material:
        """Return the material with the label texts that its stages read."""
        return replace(self, texts=LabelTexts.of(self.rest, self.tokens, self.recipe))


def prepare_material(splits: Splits, recipe: Recipe, place: RunPlace) -> Material:
    """Hold out points, add label points and fit tokens; label texts are still missing."""
    rest, held = split_holdout(splits.train, recipe)
    tokens = fit_tokens(rest, recipe.text, recipe.encoder)
    augmented = with_label_points(rest, recipe.targets, recipe.seed, recipe.device)
    augmented = with_synonyms(augmented, rest, recipe)
    augmented = with_own_label_points(augmented, rest, recipe.targets, recipe.seed)
    points = points_for_loop(augmented, tokens, recipe.targets, place.token_table)
    longer = count_cut(tokens, augmented.points.texts or [], points.tokens)
    place.tell_cut(longer, len(points), tokens.max_length)
    length = recipe.text.max_length or tokens.max_length
    recipe = replace(recipe, text=replace(recipe.text, max_length=length))
    held_points = None if held is None else HeldOutPoints.of(rest, held, tokens, splits.name)
    return Material(recipe, rest, augmented, tokens, points, splits.train, held_points, ranks=place.ranks)
