"""Why a text gets a label: the words that carry the score, and the training points behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.data.dataset import Dataset
from gandalf.data.formats.texts import clean
from gandalf.data.words import word_places
from gandalf.errors import DataError
from gandalf.model import Model
from gandalf.model.chosen_labels import added
from gandalf.model.exact import pair_scores
from gandalf.predict.predictor import Predictor

MOST_WORDS = 64  # left out in turn; each is one more text to encode
SHOWN = 5  # points and labels of each kind


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
    similarity: float  # cosine of the encoder's vectors
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
    """A label whose row points the same way."""

    label: int
    text: str
    similarity: float


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


@dataclass(frozen=True, eq=False)
class Background:
    """What a model was trained on: its points, their vectors, and the label graph."""

    points: Dataset
    graph: csr_array  # L x L
    vectors: Tensor  # of the points' texts, of length 1; shape: (N, dim)


def background(model: Model, points: Dataset, graph: csr_array) -> Background:
    """Encode the training points; a model may have more labels than they do, if those were added later."""
    texts, label_texts = points.need_texts("an explanation by training points")
    trained = model.num_labels - added(model.config)
    same = sum(map(str.__eq__, label_texts, model.label_texts))
    if points.num_labels != trained or 2 * same < trained:
        what = (
            f"the data has {points.num_labels:,} labels, the model was trained on {trained:,}, and {same:,}"
        )
        raise DataError(f"{what} have the same text", remedy="give the data that the model was trained on")
    return Background(points, graph, F.normalize(model.vectors(texts), dim=1))


class Explainer:
    """Explains what a predictor predicts, with the training data where there is a background."""

    def __init__(self, predictor: Predictor, background: Background | None = None) -> None:
        self.predictor, self.model, self.background = predictor, predictor.network, background

    @torch.no_grad()
    def explain(self, text: str, label: int, shown: int = SHOWN) -> Explanation:
        """Why the text gets the label, or would get it."""
        self._check(label)
        text = clean(text)
        vectors, places = self._left_out(text)
        logits = self._scores(vectors, label)  # the whole text's first
        chances = self.predictor.calibration(logits).tolist()
        words = tuple(
            Word(text[start:end], start, end, chances[at], float(logits[0] - logits[at]))
            for at, (start, end) in enumerate(places, start=1)
        )
        return Explanation(
            text,
            label,
            self.model.label_texts[label],
            chances[0],
            words,
            self._alike(label, shown),
            *self._points(vectors[0], label, shown),
            self._teachers(vectors[0], label, shown),
        )

    @torch.no_grad()
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

    def _check(self, label: int) -> None:
        if not 0 <= label < self.model.num_labels:
            raise DataError(f"there is no label {label:,}; the model has {self.model.num_labels:,}")

    def _left_out(self, text: str) -> tuple[Tensor, list[tuple[int, int]]]:
        """Vectors of the text and of the text without each of its words, and where those stand."""
        places = word_places(text)[:MOST_WORDS]
        texts = [text, *(f"{text[:start]} {text[end:]}" for start, end in places)]
        return self.model.vectors(texts), places  # shape: (1 + words, dim)

    def _scores(self, vectors: Tensor, label: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        ids = torch.full((len(vectors), 1), label, device=vectors.device)
        return pair_scores(vectors, self.predictor.head, ids)[:, 0].cpu().numpy().astype(np.float64)

    def _alike(self, label: int, shown: int) -> tuple[Alike, ...]:
        head = self.predictor.head
        row = F.normalize(head.at(torch.tensor([label], device=self.model.device))[0].float(), dim=1)[0]
        step = 1 << 14
        parts = [
            F.normalize(head.block(at, min(at + step, head.num_labels))[0].float(), dim=1) @ row
            for at in range(0, head.num_labels, step)
        ]
        cosines = torch.cat(parts)
        cosines[label] = -torch.inf
        return tuple(
            Alike(other, self.model.label_texts[other], value)
            for other, value in _best(cosines, min(shown, len(cosines) - 1))
        )

    def _points(
        self, vector: Tensor, label: int, shown: int
    ) -> tuple[tuple[Point, ...] | None, tuple[Point, ...] | None]:
        """The nearest training points, and the nearest of those that have the label."""
        if self.background is None:
            return None, None
        points, cosines = self.background.points, self.background.vectors @ F.normalize(vector, dim=0)
        targets = np.zeros(len(points), dtype=np.float32)
        if label < points.num_labels:
            column = points.targets[:, [label]].tocoo()
            targets[column.row] = column.data
        carrying = np.flatnonzero(targets)
        near = _best(cosines, min(shown, len(points)))
        of_label = _best(cosines[torch.from_numpy(carrying).to(cosines.device)], min(shown, len(carrying)))
        return self._named(near, targets), self._named(
            [(int(carrying[at]), v) for at, v in of_label], targets
        )

    def _named(
        self, found: Sequence[tuple[int, float]], targets: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    ) -> tuple[Point, ...]:
        texts = [] if self.background is None else self.background.points.texts or []
        return tuple(Point(at, texts[at], value, float(targets[at])) for at, value in found)

    def _teachers(self, vector: Tensor, label: int, shown: int) -> tuple[Teacher, ...] | None:
        """Labels whose texts the graph gives this one as a target, those first that count most here."""
        if self.background is None:
            return None
        if label >= self.background.points.num_labels:
            return ()  # nothing was taught of a label that was added later
        column = self.background.graph[:, [label]].tocoo()
        kept = column.row != label
        labels, targets = column.row[kept].tolist(), column.data[kept].tolist()
        if not labels:
            return ()
        texts = [self.model.label_texts[each] for each in labels]
        cosines = (F.normalize(self.model.vectors(texts), dim=1) @ F.normalize(vector, dim=0)).tolist()
        found = [Teacher(*each) for each in zip(labels, texts, targets, cosines, strict=True)]
        found.sort(key=lambda one: (-one.target * max(one.similarity, 0.0), -one.target, one.label))
        return tuple(found[:shown])


def _best(values: Tensor, number: int) -> list[tuple[int, float]]:
    """Places and values of the largest, largest first, ties to the first."""
    found = torch.sort(values, descending=True, stable=True)
    return list(zip(found.indices[:number].tolist(), found.values[:number].tolist(), strict=True))
