"""Why a text gets a label: the words that carry the score, and the training points behind it."""

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

MOST_WORDS = 64  # left out in turn; each is one more text to encode
SHOWN = 5  # points and labels of each kind

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Word:
    """A word of the text, where it stands, and what the label is worth without it."""

    word: str
    start: int
    end: int
    without: float  # the label's probability
    effect: float  # by how much its score, before the sigmoid, is higher with the word than without


@dataclass(frozen=True)
class Point:
    """A training point: how near its text is, and its target for the label."""

    point: int
    text: str
    similarity: float  # cosine of the vectors of the encoder, or of the words
    target: float  # 0 where it does not have the label


@dataclass(frozen=True)
class Teacher:
    """A label whose text was a training point with the explained label among its targets."""

    label: int
    text: str
    target: float
    similarity: float  # of its text to the explained text


@dataclass(frozen=True)
class Alike:
    """A label whose row points the same way, or whose text has the same words."""

    label: int
    text: str
    similarity: float


@dataclass(frozen=True)
class Remembered:
    """A remembered point that speaks for the label, or against it."""

    text: str
    kind: str  # point, label or example
    id: str | None  # of an example
    similarity: float  # cosine of the vectors
    share: float  # what it adds to the probability before calibration


@dataclass(frozen=True)
class Near:
    """Labels around one: in the graph, where the training data is known, else by their rows."""

    label: int
    text: str
    by: Literal["graph", "rows"]
    neighbours: tuple[Alike, ...]  # similarity: the target that the graph gives, or the cosine
    links: tuple[tuple[int, int, float], ...]  # targets among the neighbours, from label to label


@dataclass(frozen=True)
class Explanation:
    """Everything there is to say; what needs the training data is None where that was not given."""

    text: str
    label: int
    label_text: str
    probability: float
    words: tuple[Word, ...]  # in the order of the text
    alike: tuple[Alike, ...]
    nearest: tuple[Point, ...] | None  # training points, the nearest first
    with_label: tuple[Point, ...] | None  # the same of those that have the label
    teachers: tuple[Teacher, ...] | None  # by target times similarity
    shares: tuple[Share, ...] = ()  # what each part of a mix says of the label, the part that adds most first
    remembered: tuple[Remembered, ...] | None = None  # None: the model has no memory


@dataclass(frozen=True, eq=False)
class Background:
    """What a model was trained on: its points, their vectors, and the label graph."""

    points: Dataset
    graph: csr_array  # L x L
    vectors: Vectors  # of the points' texts, of length 1; shape: (N, dim)


def background(model: Part, points: Dataset, graph: csr_array) -> Background:
    """Encode the training points; a model may have more labels than they do, if those were added later."""
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
    """Explains what a predictor predicts, with the training data where there is a background."""

    def __init__(self, predictor: Predictor, background: Background | None = None) -> None:
        self.predictor, self.model, self.background = predictor, predictor.model, background

    def explain(self, text: str, label: int, shown: int = SHOWN) -> Explanation:
        """Return why the text gets the label, or would get it."""
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
        """The label's neighbours: what its text was taught, or labels with rows alike."""
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
        """Return the remembered points that speak loudest; all their shares sum to that of the memory."""
        if not isinstance(self.model, ModelWithMemory):
            return None
        return tuple(
            Remembered(
                voice.record.text,
                voice.record.kind,
                voice.record.id,
                voice.cosine,
                self.model.weight * voice.share * voice.value,
            )
            for voice in self.model.voices(text, label)[:shown]
        )

    def _check(self, label: int) -> None:
        if not 0 <= label < self.model.num_labels:
            raise DataError(f"there is no label {label:,}; the model has {self.model.num_labels:,}")

    def _left_out(self, text: str, label: int) -> tuple[npt.NDArray[np.float64], list[tuple[int, int]]]:
        """Return scores of the text and of the text without each of its words, and where the words stand."""
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
        """Return labels whose texts have this one as a target, those first that count most here."""
        if self.background is None or one is None:
            return None
        if label >= self.background.points.num_labels:
            return ()  # nothing was taught of a label that was added later
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
    """Return the cosine of each row with the only row of `one`; all have length 1."""  # shape: (N,)
    if isinstance(vectors, Tensor) and isinstance(one, Tensor):
        return np.asarray((vectors @ one[0]).cpu().numpy())
    return np.asarray((csr_array(vectors) @ csr_array(one).T).toarray()[:, 0])
