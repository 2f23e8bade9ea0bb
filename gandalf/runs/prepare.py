"""Data of a run: held-out points cut off, label points made, texts as token ids."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, eye_array
from torch.nn import functional as F

from gandalf.augment.label_points import Keep, augment_with_mask
from gandalf.augment.synonyms import distinct_words, replace_words
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import holdout
from gandalf.data.lengths import MOST_PIECES, MOST_WORDS
from gandalf.errors import DataError
from gandalf.graph.estimates.walk import smoothing_graph
from gandalf.graph.kind import LabelGraph
from gandalf.model import Model, Part, load_network
from gandalf.nets.encoders import encode_tokens, encoder_kind
from gandalf.nets.head_kind import head_kind
from gandalf.nets.transformer import pretrained_encoder
from gandalf.predict.explain import Background, background
from gandalf.recipe import Encoder, Recipe, Targets, Text
from gandalf.runs.graph import any_label_graph, graph_options
from gandalf.runs.validation import Held
from gandalf.settings import from_dict
from gandalf.text.lengths import with_fitted_length
from gandalf.text.pretrained import model_folder, need_transformers, pretrained_tokens
from gandalf.text.subwords import Subwords, SubwordsOptions
from gandalf.text.table import token_table
from gandalf.text.tokens import Tokens
from gandalf.text.words import Words, WordsOptions
from gandalf.train.batches import LabelWords, Points
from gandalf.train.orders import Order, Phase, PointOrder, WithLabelPoints
from gandalf.train.parallel.ranks import ONE, Ranks

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
MANY_TEXTS = 1_000_000  # whose token ids are better left on disk: 128 bytes each


@dataclass(frozen=True, eq=False)
class Cut:
    """Training points without those held for validation; nothing of the held ones reaches the rest."""

    rest: Dataset
    held: Dataset | None


def cut(points: Dataset, recipe: Recipe) -> Cut:
    """Hold out the validation share."""
    if not recipe.validation.share:
        return Cut(points, None)
    parts = holdout(points, recipe.validation.share, recipe.seed, at_most=recipe.validation.at_most)
    return Cut(parts.rest, parts.held)


def run_cut(points: Dataset, recipe: Recipe) -> Cut:
    """The same for a run that could do without: where it cannot be done, how to do without is said."""
    try:
        return cut(points, recipe)
    except DataError as error:
        remedy = f"{error.problem.remedy}, or train without: gandalf train ... --validation 0"
        raise DataError(error.problem.what, remedy=remedy) from error


@dataclass(frozen=True, eq=False)
class Augmented:
    """Training points with label points, which of them those are, and the graph behind their targets."""

    points: Dataset
    is_label: Mask  # shape: (N,)
    graph: LabelGraph | None
    last: int = 0  # of the label points: so many at the end are met after the others have left

    @property
    def phases(self) -> tuple[Ints, Ints]:
        """Places of the points of the first and of the last phase of training."""
        places = np.arange(len(self.is_label))
        first = len(places) - self.last
        return places[:first], np.append(np.flatnonzero(~self.is_label[:first]), places[first:])


def plain(points: Dataset) -> Augmented:
    """Return the points without label points."""
    return Augmented(points, np.zeros(len(points), dtype=bool), None)


def augmented(rest: Dataset, targets: Targets, seed: int, device: str = "cpu") -> Augmented:
    """Add label points as the settings say."""
    if targets.targets == "auto":
        raise DataError("targets must be chosen before label points are made")
    if targets.targets == "none":
        if targets.keep != "both":
            raise DataError(f"without label points there is nothing to keep {targets.keep!r} of")
        return plain(rest)
    graph = any_label_graph(rest, graph_options(targets, seed), device)
    keep = Keep(targets.keep, targets.share, targets.order, seed)
    points, is_label = augment_with_mask(rest, graph.matrix, keep)
    return Augmented(points, is_label, graph)


def with_own_labels(made: Augmented, rest: Dataset, targets: Targets, seed: int) -> Augmented:
    """Append the label points of the last phase, which have their own label as their only target."""
    if not targets.own_weight or targets.label_epochs == 1 or targets.targets == "none":
        return made
    keep = Keep(targets.keep, targets.share, targets.order, seed)
    points, is_label = augment_with_mask(rest, csr_array(eye_array(rest.num_labels, format="csr")), keep)
    last = points[np.flatnonzero(is_label)]
    is_label = np.append(made.is_label, np.ones(len(last), dtype=bool))
    return replace(made, points=made.points + last, is_label=is_label, last=len(last))


@lru_cache(maxsize=1)
def trained_before(folder: str) -> Model:
    """The model whose vocabulary and encoder a run starts from."""
    return load_network(folder)


def fit_tokens(points: Dataset, text: Text, encoder: Encoder) -> Tokens:
    """A vocabulary of the training texts and the label texts, or the one of the encoder's model."""
    if encoder.from_model is not None:
        return trained_before(encoder.from_model).tokens
    texts, _ = points.need_texts("training")
    tokens = _fit([*texts, *points.all_label_texts], text, encoder)
    return tokens if text.max_length else with_fitted_length(tokens, texts)


def _fit(texts: list[str], text: Text, encoder: Encoder) -> Tokens:
    """Return the vocabulary; a length by the data is the longest there may be, for now."""
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


def loop_points(augmented: Augmented, tokens: Tokens, targets: Targets, table: Path | None = None) -> Points:
    """Return the points as the loop wants them; the file `table` maps the token ids of very many points."""
    points = augmented.points
    mapped = table if len(points) >= MANY_TEXTS else None
    if mapped is not None:
        mapped.parent.mkdir(parents=True, exist_ok=True)
    weights = np.where(augmented.is_label, targets.label_weight, 1.0).astype(np.float32)
    weights[len(weights) - augmented.last :] = targets.own_weight
    table_of_ids = token_table(tokens, points.texts or [], path=mapped)
    return Points(table_of_ids, points.targets, None if (weights == 1.0).all() else weights)


def _rows_of_labels(augmented: Augmented) -> Ints:
    """Row of the label point of each label's name, or -1 for a label with an empty one."""  # shape: (L,)
    names = augmented.points.label_texts or ()
    has_point = np.array([bool(name) and not name.isspace() for name in names])
    return np.where(has_point, int(np.argmax(augmented.is_label)) + np.cumsum(has_point) - 1, -1)


def epoch_steps(rest: Dataset, batch: int) -> int:
    """Updates of an epoch: over as many points as training points and label texts, whatever the targets.

    So runs with and without label points take equal steps; at equal passes over their own points, the one
    without would look worse for no other reason than fewer updates.
    """
    return math.ceil((len(rest) + rest.num_label_texts) / batch)


def order(augmented: Augmented, recipe: Recipe, epoch: int) -> PointOrder:
    """Return which points each step meets: those of the first phase, then those of the last."""
    share = recipe.targets.label_epochs
    if not 0 <= share <= 1:
        raise DataError(f"label_epochs is {share}, but it is a share of the updates and lies in [0, 1]")
    steps = recipe.training.steps
    if steps is None:
        steps = max(1, round(recipe.training.epochs * epoch))
    first, last = augmented.phases
    if recipe.baselines.mix == "label-mixup":  # label points come with the points that carry their label
        order = Order([Phase(last, steps)], recipe.training.batch, recipe.seed)
        return WithLabelPoints(order, augmented.points.targets, _rows_of_labels(augmented))
    # One point alone is no batch: layers that normalise over a batch need two.
    with_labels = round(share * steps) if len(last) > 1 and augmented.is_label.any() else steps
    phases = [Phase(first, with_labels), Phase(last, steps - with_labels)]
    return Order([phase for phase in phases if phase.steps] or phases[:1], recipe.training.batch, recipe.seed)


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts of all labels."""

    tokens: npt.NDArray[np.int32]  # L x T
    bags: dict[str, csr_array]  # L x V: a label's own words, and those of its neighbours as well
    graph: csr_array | None  # L x L, what they are averaged over

    @staticmethod
    def of(rest: Dataset, tokens: Tokens, recipe: Recipe) -> LabelTexts | None:
        """What the recipe's stages need of these training points; None where they need nothing."""
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
        """The words that rows of labels are made of."""
        first, *rest = self.bags.values()
        return LabelWords(csr_array(sum(rest, start=first)))


def word_bags(table: npt.NDArray[np.int32], idf: npt.NDArray[np.float32]) -> csr_array:
    """Each text's words weighted as a bag-of-words encoder weighs them: by idf, length 1."""  # shape: (L, V)
    weight = np.where(table != 0, idf[table], 0).astype(np.float64)
    weight /= np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-12)
    row, place = np.nonzero(weight)
    entries = (weight[row, place].astype(np.float32), (row, table[row, place]))
    return csr_array(entries, shape=(len(table), len(idf)))


NEAR, LEAST = 5, 0.5  # words that may stand for another: so many at most, and no cosine below that
LENGTH = 16  # tokens of a word
BLOCK = 1024  # words compared with all others at once


def with_synonyms(made: Augmented, rest: Dataset, recipe: Recipe) -> Augmented:
    """The points, and behind them versions of the training points with words replaced."""
    options = recipe.baselines
    if not options.synonyms:
        return made
    texts, _ = rest.need_texts("synonym replacement")
    near = near_words(tuple(distinct_words(texts)), recipe.encoder.model, recipe.device)
    generator, points = np.random.default_rng([recipe.seed, 1]), made.points
    for _ in range(options.synonyms):
        points = points + replace_words(rest, near, options.synonym_share, generator)
    more = np.zeros(len(points) - len(made.points), dtype=bool)
    return replace(made, points=points, is_label=np.concatenate([made.is_label, more]))


@lru_cache(maxsize=1)
def near_words(words: tuple[str, ...], model: str | None, device: str = "cpu") -> dict[str, list[str]]:
    """For each word the nearest others by a pre-trained encoder's vectors; none where none is near."""
    need_transformers()
    folder = model_folder(model)
    tokens = pretrained_tokens(folder, LENGTH)
    encoder = pretrained_encoder(folder, tokens)
    vectors = F.normalize(
        encode_tokens(encoder.to(device), token_table(tokens, words)), dim=1
    )  # shape: (W, dim)
    found: dict[str, list[str]] = {}
    for start in range(0, len(words), BLOCK):
        cosine = vectors[start : start + BLOCK] @ vectors.T  # shape: (block, W)
        rows = torch.arange(len(cosine), device=cosine.device)
        cosine[rows, start + rows] = -1.0  # a word is no synonym of itself
        best = torch.topk(cosine, min(NEAR, len(words)), dim=1)
        for row, (values, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            kept = zip(values, places, strict=True)
            found[words[start + row]] = [words[place] for value, place in kept if value >= LEAST]
    return found


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


def background_of(model: Part, splits: Splits) -> Background:
    """Return the points that the model was trained on and the graph of its recipe, made from all points.

    A run holds some points out, so its own graph may differ a little. A model without label points, or
    of unknown making, is explained by the graph of the default recipe.
    """
    if splits.origin is not None:
        raise DataError(f"{splits.name!r} is an augmented set", remedy="give the original set")
    targets, seed = _recipe(model)
    graph = any_label_graph(splits.train, graph_options(targets, seed))
    return background(model, splits.train, graph.matrix)


def _recipe(model: Part) -> tuple[Targets, int]:
    try:
        recipe = from_dict(Recipe, model.config["recipe"])
    except (KeyError, TypeError, DataError):
        return Targets(), 0
    known = recipe.targets if recipe.targets.targets not in ("none", "auto") else Targets()
    return known, recipe.seed
