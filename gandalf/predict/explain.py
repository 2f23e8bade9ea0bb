"""Explain why a text gets a label: the words that carry its score, and the training points behind it."""

from __future__ import annotations

from collections.abc import Sequence
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
class Point:
    """A training point, its similarity to the explained text, and its target for the label."""

    point: int
    text: str
    similarity: float  # cosine of the vectors
    target: float  # 0 if the point does not have the label


@dataclass(frozen=True)
class Teacher:
    """A label whose text was a training point with the explained label among its targets."""

    label: int
    text: str
    target: float
    similarity: float  # cosine of its text and the explained text


@dataclass(frozen=True)
class Alike:
    """A label with a similar row, or with similar words in its text."""

    label: int
    text: str
    similarity: float


@dataclass(frozen=True)
class Remembered:
    """A remembered point that votes for or against the label."""

    text: str
    kind: str  # point, label or example
    id: str | None  # id of an example
    similarity: float  # cosine of the vectors
    share: float  # change of the probability before calibration


@dataclass(frozen=True)
class Near:
    """The neighbours of a label: by the label graph, or by rows if the training data is unknown."""

    label: int
    text: str
    by: Literal["graph", "rows"]
    neighbours: tuple[Alike, ...]  # similarity: the target in the graph, or the cosine of rows
    links: tuple[tuple[int, int, float], ...]  # targets among the neighbours: from label, to label, target


@dataclass(frozen=True)
class Explanation:
    """A full explanation; fields that need the training data are None without it."""

    text: str
    label: int
    label_text: str
    probability: float
    words: tuple[Word, ...]  # in the order of the text
    alike: tuple[Alike, ...]
    nearest: tuple[Point, ...] | None  # training points, the nearest first
    with_label: tuple[Point, ...] | None  # training points with the label, the nearest first
    teachers: tuple[Teacher, ...] | None  # ordered by target times similarity
    shares: tuple[Share, ...] = ()  # weight and probability by each part, the part that adds most first
    remembered: tuple[Remembered, ...] | None = None  # None: the model has no memory


@dataclass(frozen=True, eq=False)
class Background:
    """The training data of a model: its points, their vectors, and the label graph."""

    points: Dataset
    graph: csr_array  # L x L
    vectors: Vectors  # unit vectors of the points' texts; shape: (N, dim)


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
        self._check(label)
        text = clean(text)
        logits, places = self._left_out(text, label)
        chances = self.predictor.calibration(logits).tolist()
        words = tuple(
            Word(text[start:end], start, end, chances[at], float(logits[0] - logits[at]))
            for at, (start, end) in enumerate(places, start=1)
        )
        one = None if self.background is None else self.model.unit_vectors([text])
        return Explanation(
            text,
            label,
            self.model.label_texts[label],
            chances[0],
            words,
            self._alike(label, shown),
            *self._points(one, label, shown),
            self._teachers(one, label, shown),
            self.model.shares(text, label) if isinstance(self.model, Mix | ModelWithMemory) else (),
            self._remembered(text, label, shown),
        )

    def near(self, label: int, shown: int = 12) -> Near:
        """Return the label's neighbours in the label graph or, without training data, by rows."""
        self._check(label)
        text, names = self.model.label_texts[label], self.model.label_texts
        if self.background is None or label >= self.background.points.num_labels:
            return Near(label, text, "rows", self._alike(label, shown), ())
        graph = self.background.graph
        row = graph[[label]]
        found = [
            pair for pair in zip(row.indices.tolist(), row.data.tolist(), strict=True) if pair[0] != label
        ]
        found = sorted(found, key=lambda pair: (-pair[1], pair[0]))[:shown]
        others = [other for other, _ in found]
        among = graph[others][:, others].tocoo() if others else csr_array((0, 0)).tocoo()
        links = zip(among.row.tolist(), among.col.tolist(), among.data.tolist(), strict=True)
        return Near(
            label,
            text,
            "graph",
            tuple(Alike(other, names[other], target) for other, target in found),
            tuple((others[one], others[other], target) for one, other, target in links if one != other),
        )

    def _remembered(self, text: str, label: int, shown: int) -> tuple[Remembered, ...] | None:
        """Return the strongest votes of remembered points; the shares of all votes sum to the memory's."""
        if not isinstance(self.model, ModelWithMemory):
            return None
        return tuple(
            Remembered(
                vote.record.text,
                vote.record.kind,
                vote.record.id,
                vote.cosine,
                self.model.weight * vote.share * vote.value,
            )
            for vote in self.model.votes_on(text, label)[:shown]
        )

    def _check(self, label: int) -> None:
        if not 0 <= label < self.model.num_labels:
            raise DataError(f"there is no label {label:,}; the model has {self.model.num_labels:,}")

    def _left_out(self, text: str, label: int) -> tuple[npt.NDArray[np.float64], list[tuple[int, int]]]:
        """Return scores of the text and of the text without each word, and the positions of the words."""
        places = word_places(text)[:MOST_WORDS]
        texts = [text, *(f"{text[:start]} {text[end:]}" for start, end in places)]
        scores = self.predictor.score(texts, np.full((len(texts), 1), label))
        return scores[:, 0].astype(np.float64), places  # shape: (1 + words,)

    def _alike(self, label: int, shown: int) -> tuple[Alike, ...]:
        names = self.model.label_texts
        return tuple(Alike(other, names[other], value) for other, value in self.model.alike(label, shown))

    def _points(
        self, one: Vectors | None, label: int, shown: int
    ) -> tuple[tuple[Point, ...] | None, tuple[Point, ...] | None]:
        """Return the nearest training points, and the nearest of those that have the label."""
        if self.background is None or one is None:
            return None, None
        points, near = self.background.points, cosines(self.background.vectors, one)
        targets = np.zeros(len(points), dtype=np.float32)
        if label < points.num_labels:
            column = points.targets[:, [label]].tocoo()
            targets[column.row] = column.data
        carrying = np.flatnonzero(targets)
        of_label = [(int(carrying[at]), value) for at, value in largest(near[carrying], shown)]
        return self._named(largest(near, shown), targets), self._named(of_label, targets)

    def _named(self, found: Sequence[tuple[int, float]], targets: Floats) -> tuple[Point, ...]:
        texts = [] if self.background is None else self.background.points.texts or []
        return tuple(Point(at, texts[at], value, float(targets[at])) for at, value in found)

    def _teachers(self, one: Vectors | None, label: int, shown: int) -> tuple[Teacher, ...] | None:
        """Return labels whose texts have this label as a target, ordered by target times similarity."""
        if self.background is None or one is None:
            return None
        if label >= self.background.points.num_labels:
            return ()  # an added label was no target in training
        column = self.background.graph[:, [label]].tocoo()
        kept = column.row != label
        labels, targets = column.row[kept].tolist(), column.data[kept].tolist()
        if not labels:
            return ()
        texts = [self.model.label_texts[each] for each in labels]
        near = cosines(self.model.unit_vectors(texts), one).tolist()
        found = [Teacher(*each) for each in zip(labels, texts, targets, near, strict=True)]
        found.sort(key=lambda each: (-each.target * max(each.similarity, 0.0), -each.target, each.label))
        return tuple(found[:shown])


def cosines(vectors: Vectors, one: Vectors) -> Floats:
    """Return the cosine of each row with the only row of `one`; all rows have length 1."""  # shape: (N,)
    if isinstance(vectors, Tensor) and isinstance(one, Tensor):
        return np.asarray((vectors @ one[0]).cpu().numpy())
    return np.asarray((csr_array(vectors) @ csr_array(one).T).toarray()[:, 0])
