"""Explain why a text gets a label: the words that carry its score, and the training points behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.data.dataset import Dataset
from gandalf.data.formats.texts import clean
from gandalf.data.words import word_places
from gandalf.errors import DataError
from gandalf.model import ModelWithMemory, Part
from gandalf.model.added_labels import count_added
from gandalf.model.mix import Mix
from gandalf.model.part import Vectors, largest
from gandalf.predict.predictor import Predictor
from gandalf.wide.mixing import Share

MOST_WORDS = 64  # words that are left out in turn; each costs one more text to encode
SHOWN = 5  # points and labels of each kind

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Word:
    """A word of the text, its position, and the label's probability without the word."""

    word: str
    start: int
    end: int
    without: float  # probability of the label without the word
    effect: float  # the label's score before the sigmoid with the word, minus the score without it


@dataclass(frozen=True)
class TrainingPoint:
    """A training point, its similarity to the explained text, and its target for the label."""

    point: int
    text: str
    similarity: float  # cosine of the vectors
    target: float  # 0 if the point does not have the label


@dataclass(frozen=True)
class LabelPoint:
    """A label whose text was a training point with the explained label among its targets."""

    label: int
    text: str
    target: float
    similarity: float  # cosine of its text and the explained text


@dataclass(frozen=True)
class SimilarLabel:
    """A label with a similar row, or with similar words in its text."""

    label: int
    text: str
    similarity: float


@dataclass(frozen=True)
class RememberedPoint:
    """A point of the memory that votes for or against the label."""

    text: str
    kind: str  # point, label or example
    id: str | None  # id of an example
    similarity: float  # cosine of the vectors
    share: float  # change of the probability before calibration


@dataclass(frozen=True)
class LabelNeighbours:
    """The neighbours of a label: by the label graph, or by rows if the training data is unknown."""

    label: int
    text: str
    by: Literal["graph", "rows"]
    neighbours: tuple[SimilarLabel, ...]  # similarity: the target in the graph, or the cosine of rows
    links: tuple[tuple[int, int, float], ...]  # targets among the neighbours: from label, to label, target


@dataclass(frozen=True)
class Explanation:
    """A full explanation; fields that need the training data are None without it."""

    text: str
    label: int
    label_text: str
    probability: float
    words: tuple[Word, ...]  # in the order of the text
    alike: tuple[SimilarLabel, ...]
    nearest: tuple[TrainingPoint, ...] | None  # training points, the nearest first
    with_label: tuple[TrainingPoint, ...] | None  # training points with the label, the nearest first
    teachers: tuple[LabelPoint, ...] | None  # ordered by target times similarity
    shares: tuple[Share, ...] = ()  # weight and probability by each part, the part that adds most first
    remembered: tuple[RememberedPoint, ...] | None = None  # None: the model has no memory


@dataclass(frozen=True, eq=False)
class Background:
    """The training data of a model: its points, their vectors, and the label graph."""

    points: Dataset
    graph: csr_array  # L x L
    vectors: Vectors  # unit vectors of the points' texts; shape: (N, dim)

    def nearest_points(
        self, vector: Vectors, label: int, shown: int
    ) -> tuple[tuple[TrainingPoint, ...], tuple[TrainingPoint, ...]]:
        """Return the training points nearest to a vector, and the nearest points that have the label."""
        similarities = cosines(self.vectors, vector)
        targets = np.zeros(len(self.points), dtype=np.float32)
        if label < self.points.num_labels:
            column = self.points.targets[:, [label]].tocoo()
            targets[column.row] = column.data
        with_label = np.flatnonzero(targets)
        of_label = [(int(with_label[at]), value) for at, value in largest(similarities[with_label], shown)]
        texts = self.points.texts or []
        nearest, nearest_with_label = (
            tuple(TrainingPoint(at, texts[at], value, float(targets[at])) for at, value in chosen)
            for chosen in (largest(similarities, shown), of_label)
        )
        return nearest, nearest_with_label


def background(model: Part, points: Dataset, graph: csr_array) -> Background:
    """Encode the training points; raise a DataError if the model was trained on other labels.

    The model may have further labels that were added later.
    """
    texts, label_texts = points.need_texts("an explanation by training points")
    trained = model.num_labels - count_added(model.config)
    same = sum(map(str.__eq__, label_texts, model.label_texts))
    if points.num_labels != trained or 2 * same < trained:
        what = (
            f"the data has {points.num_labels:,} labels, the model was trained on {trained:,}, and {same:,}"
        )
        raise DataError(f"{what} have the same text", remedy="give the data that the model was trained on")
    return Background(points, graph, model.unit_vectors(texts))


class Explainer:
    """Explains a predictor's predictions; a background adds what the training data tells."""

    def __init__(self, predictor: Predictor, background: Background | None = None) -> None:
        self.predictor, self.model, self.background = predictor, predictor.model, background

    def explain(self, text: str, label: int, shown: int = SHOWN) -> Explanation:
        """Explain the probability of the label for the text."""
        self._refuse_unknown(label)
        text = clean(text)
        probability, words = self._word_effects(text, label)
        nearest = with_label = label_points = None
        if self.background is not None:
            vector = self.model.unit_vectors([text])
            nearest, with_label = self.background.nearest_points(vector, label, shown)
            label_points = self._label_points(self.background.graph, vector, label)[:shown]
        return Explanation(
            text,
            label,
            self.model.label_texts[label],
            probability,
            words,
            self._similar_labels(label, shown),
            nearest,
            with_label,
            label_points,
            self.model.shares(text, label) if isinstance(self.model, Mix | ModelWithMemory) else (),
            self._remembered(text, label, shown),
        )

    def near(self, label: int, shown: int = 12) -> LabelNeighbours:
        """Return the label's neighbours in the label graph or, without training data, by rows."""
        self._refuse_unknown(label)
        names = self.model.label_texts
        if self.background is None or label >= self.background.points.num_labels:
            return LabelNeighbours(label, names[label], "rows", self._similar_labels(label, shown), ())
        graph = self.background.graph
        row = graph[[label]]
        targets = zip(row.indices.tolist(), row.data.tolist(), strict=True)
        best = sorted(((-target, other) for other, target in targets if other != label))[:shown]
        others = [other for _, other in best]
        among = graph[others][:, others].tocoo() if others else csr_array((0, 0)).tocoo()
        links = zip(among.row.tolist(), among.col.tolist(), among.data.tolist(), strict=True)
        return LabelNeighbours(
            label,
            names[label],
            "graph",
            tuple(SimilarLabel(other, names[other], -negated) for negated, other in best),
            tuple((others[one], others[other], target) for one, other, target in links if one != other),
        )

    def _refuse_unknown(self, label: int) -> None:
        if not 0 <= label < self.model.num_labels:
            raise DataError(f"there is no label {label:,}; the model has {self.model.num_labels:,}")

    def _word_effects(self, text: str, label: int) -> tuple[float, tuple[Word, ...]]:
        """Return the label's probability, and each word with the probability without this word."""
        places = word_places(text)[:MOST_WORDS]
        texts = [text, *(f"{text[:start]} {text[end:]}" for start, end in places)]
        scores = self.predictor.score(texts, np.full((len(texts), 1), label))
        logits = scores[:, 0].astype(np.float64)  # shape: (1 + words,)
        probability, *without = self.predictor.calibration(logits).tolist()
        effects = (logits[0] - logits[1:]).tolist()
        words = (
            Word(text[start:end], start, end, *each)
            for (start, end), *each in zip(places, without, effects, strict=True)
        )
        return probability, tuple(words)

    def _similar_labels(self, label: int, shown: int) -> tuple[SimilarLabel, ...]:
        names, found = self.model.label_texts, self.model.similar_labels(label, shown)
        return tuple(SimilarLabel(other, names[other], value) for other, value in found)

    def _label_points(self, graph: csr_array, vector: Vectors, label: int) -> tuple[LabelPoint, ...]:
        """Return labels whose texts have this label as a target, ordered by target times similarity."""
        if label >= graph.shape[1]:
            return ()  # an added label was no target in training
        column = graph[:, [label]].tocoo()
        others = column.row != label
        labels, targets = column.row[others].tolist(), column.data[others].tolist()
        if not labels:
            return ()
        texts = [self.model.label_texts[each] for each in labels]
        similarities = cosines(self.model.unit_vectors(texts), vector).tolist()
        found = [LabelPoint(*each) for each in zip(labels, texts, targets, similarities, strict=True)]
        found.sort(key=lambda each: (-each.target * max(each.similarity, 0.0), -each.target, each.label))
        return tuple(found)

    def _remembered(self, text: str, label: int, shown: int) -> tuple[RememberedPoint, ...] | None:
        """Return the strongest votes of remembered points; the shares of all votes sum to the memory's."""
        if not isinstance(self.model, ModelWithMemory):
            return None
        weight = self.model.weight
        return tuple(
            RememberedPoint(
                *(vote.record.text, vote.record.kind, vote.record.id),
                vote.cosine,
                weight * vote.share * vote.value,
            )
            for vote in self.model.votes_on(text, label)[:shown]
        )


def cosines(vectors: Vectors, one: Vectors) -> Floats:
    """Return the cosine of each row with the only row of `one`; all rows have length 1."""  # shape: (N,)
    if isinstance(vectors, Tensor) and isinstance(one, Tensor):
        return np.asarray((vectors @ one[0]).cpu().numpy())
    return np.asarray((csr_array(vectors) @ csr_array(one).T).toarray()[:, 0])
