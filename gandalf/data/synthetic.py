"""Generate data sets of any size whose true conditional probabilities are known.

The distribution is a mixture of topics. A point draws a topic, then each label of the topic independently
with its probability. So P(Y_i, Y_j) is a sum over the few topics that hold both labels. Label frequencies
follow a power law, as in the public sets: most labels have only a few points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, vstack

from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.data.sparse_rows import random_entries
from gandalf.errors import DataError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# (points, labels, labels per point, words per point) of the paper's four sets.
PAPER_SHAPES: dict[str, tuple[int, int, float, float]] = {
    "131K": (294_805, 131_073, 2.29, 6.92),
    "320K": (693_082, 312_330, 2.11, 3.01),
    "500K": (1_813_391, 501_070, 4.74, 3.10),
    "1.3M": (2_248_619, 1_305_265, 22.20, 8.74),
}

RAREST = 2.0  # expected points of the rarest label, so that nearly every label has one
HIGHEST = 0.9  # highest probability of a label in its topic; above it, two labels would hardly differ
TOPIC_WORDS = 8
BATCH = 4_000_000  # pairs drawn at once


@dataclass(frozen=True)
class Synthetic:
    """A data set and the distribution it was drawn from."""

    splits: Splits
    topics: csr_array  # T x L float64: probability of each label in each topic
    weights: Floats  # shape: (T,), probability of each topic

    def truth(self) -> csr_array:
        """Return P(Y_i | Y_j) in row j, column i: the limit of the ratio of counts for many points."""
        joint = csr_array(self.topics.T @ (diags_array(self.weights) @ self.topics))
        given = self.topics.T @ self.weights  # shape: (L,)
        truth = csr_array(diags_array(1 / given) @ joint)
        truth.setdiag(1.0)
        truth.sort_indices()
        return truth


def synthetic(
    points: int,
    labels: int,
    seed: int = 0,
    *,
    labels_per_point: float = 2.3,
    words_per_point: float = 5.0,
    postulate: float = 1.0,
    texts: bool = True,
    known: float = 0.5,
    breadth: float = 8.0,
) -> Synthetic:
    """Draw `points` training points and a tenth as many test points.

    A share `known` of the points are items: their text is a label text. With probability `postulate` it is
    the text of one of the point's labels, so that targets given the text of j follow P(. | Y_j); otherwise it
    is the text of an unrelated label. Texts never change targets, so `truth` does not depend on these two
    arguments. A topic holds 3 to `breadth` times as many labels as a point. With broader topics, more pairs
    of labels occur together only once.
    """
    _check_shape(points, labels, labels_per_point)
    rng = np.random.default_rng(seed)
    frequency = rng.permutation(_power_law(labels, points * labels_per_point / labels, points))
    topics, sizes = _draw_topics(frequency, points, max(breadth, 3.0), rng)
    test_points = max(points // 10, 1)
    targets, topic_of = _draw_points(topics, sizes, points + test_points, rng)
    both = Dataset(targets)
    if texts:
        writer = _TextWriter(topics, words_per_point, rng)
        both = Dataset(targets, writer.of_points(targets, topic_of, known, postulate), writer.label_texts)
    splits = Splits(both[:points], both[points:], name="synthetic", layout="synthetic")
    return Synthetic(splits, topics, sizes / sizes.sum())


def _check_shape(points: int, labels: int, labels_per_point: float) -> None:
    if points < 1 or labels < 1:
        raise DataError(f"a synthetic set of {points} points and {labels} labels cannot be drawn")
    if not 1 <= labels_per_point <= max(1.0, labels / 2):
        what = f"{labels_per_point} labels per point out of {labels} labels cannot be drawn"
        raise DataError(what, remedy="ask for at least 1 and at most half of the labels")


def _power_law(labels: int, mean: float, points: int) -> Floats:
    """Return the expected points of each label: quantiles of a power law with the given mean."""
    low, high = max(min(RAREST, mean / 2), mean / 20), max(0.01 * points, 4 * mean)
    u = (np.arange(labels) + 0.5) / labels  # shape: (L,)

    def quantiles(exponent: float) -> Floats:
        value: Floats = low * (1 - u * (1 - (low / high) ** exponent)) ** (-1 / exponent)
        return value

    flat, steep = 1e-3, 20.0
    for _ in range(40):
        middle = (flat + steep) / 2
        flat, steep = (middle, steep) if quantiles(middle).mean() > mean else (flat, middle)
    return quantiles(steep)


def _draw_topics(
    frequency: Floats, points: int, breadth: float, rng: np.random.Generator
) -> tuple[csr_array, Floats]:
    """Return the probabilities of labels in topics (T x L), and the points to draw from each topic."""
    label, mass = _draw_memberships(frequency, rng)
    per_point = frequency.sum() / points
    # Labels of a topic have roughly similar frequencies, so rare labels occur with frequent ones, as in real
    # sets.
    order = np.argsort(np.log(mass) + rng.normal(size=len(mass)))
    label, mass = label[order], mass[order]
    # Labels of a narrow topic nearly always occur together; pairs of a broad topic occur once.
    members = np.exp(rng.uniform(np.log(3), np.log(breadth), size=len(mass))) * per_point
    ends = np.cumsum(np.maximum(members, 2).astype(np.int64))
    topic = np.searchsorted(ends, np.arange(len(mass)), side="right")  # shape: (memberships,)
    sizes = _fit_sizes(topic, mass, points, rng)
    topics = csr_array((mass / sizes[topic], (topic, label)), shape=(len(sizes), len(frequency)))
    topics.sum_duplicates()
    topics.data = np.minimum(topics.data, HIGHEST)  # a label may be twice in the same topic
    return topics, sizes


def _draw_memberships(frequency: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Assign each label to topics, and divide the label's expected points among them."""
    # 1 to 3 topics; more for a frequent label, which would otherwise be on nearly all points of its topics.
    times = np.maximum(
        rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1], size=len(frequency)),
        np.ceil(frequency / (10 * frequency.mean())).astype(np.int64),
    )
    label = np.repeat(np.arange(len(frequency)), times)
    return label, (frequency / times)[label]


def _fit_sizes(topic: Ints, mass: Floats, points: int, rng: np.random.Generator) -> Floats:
    """Return the points to draw from each topic, so that `points` of them have a label."""  # shape: (T,)
    first = np.flatnonzero(np.diff(topic, prepend=-1))  # where each topic begins
    total, largest = np.add.reduceat(mass, first), np.maximum.reduceat(mass, first)
    spread = np.exp(rng.normal(0, 0.3, size=len(first)))  # some topics give more labels a point than others

    def sizes_at(labels_per_point: float) -> Floats:
        return np.maximum(total / (labels_per_point * spread), largest / HIGHEST)

    low, high = 1e-2, 1e4
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        sizes = sizes_at(middle)
        empty = np.exp(np.add.reduceat(np.log1p(-mass / sizes[topic]), first))
        low, high = (middle, high) if (sizes * (1 - empty)).sum() > points else (low, middle)
    return sizes_at(high)


def _draw_points(
    topics: csr_array, sizes: Floats, number: int, rng: np.random.Generator
) -> tuple[csr_array, Ints]:
    """Draw `number` points with at least one label, in random order; return their targets and topics.

    Dropping points without a label divides P(Y_i, Y_j) and P(Y_j) by the same number, so P(Y_i | Y_j) does
    not change.
    """
    empty = np.exp(np.add.reduceat(np.log1p(-topics.data), topics.indptr[:-1]))
    per_round = 1.01 * number / (sizes * (1 - empty)).sum()
    parts: list[tuple[csr_array, Ints]] = []
    while sum(len(of) for _, of in parts) < number:
        parts.extend(_draw_round(topics, per_round * sizes, rng))
    targets = csr_array(vstack([part for part, _ in parts], format="csr"))
    topic_of = np.concatenate([of for _, of in parts])
    chosen = rng.permutation(len(topic_of))[:number]
    return targets[chosen], topic_of[chosen]


def _draw_round(
    topics: csr_array, expected: Floats, rng: np.random.Generator
) -> Iterator[tuple[csr_array, Ints]]:
    sizes = np.floor(expected + rng.random(len(expected))).astype(np.int64)  # right on average
    work = np.cumsum(sizes * np.add.reduceat(topics.data, topics.indptr[:-1]))
    cuts = np.flatnonzero(np.diff(work // BATCH)) + 1
    bounds = [0, *cuts.tolist(), len(sizes)]
    for first, last in pairwise(bounds):
        targets, topic_of = _draw_batch(topics[first:last], sizes[first:last], rng)
        yield targets, topic_of + first


def _draw_batch(topics: csr_array, sizes: Ints, rng: np.random.Generator) -> tuple[csr_array, Ints]:
    """Draw `sizes` points from the topics, and drop the points without a label.

    A Poisson process with rate -log(1 - p) hits a point at least once with probability p, independently of
    other points. So the work grows with the labels drawn, not with all labels of the topics.
    """
    topic = np.repeat(np.arange(len(sizes)), np.diff(topics.indptr))  # shape: (memberships,)
    events = rng.poisson(-np.log1p(-topics.data) * sizes[topic])
    start = np.cumsum(sizes) - sizes
    place = rng.random(events.sum()) * np.repeat(sizes[topic], events)
    rows = np.repeat(start[topic], events) + place.astype(np.int64)
    pairs = binary_pairs(rows, np.repeat(topics.indices, events), (int(sizes.sum()), topics.shape[1]))
    pairs.indices, pairs.indptr = pairs.indices.astype(np.int32), pairs.indptr.astype(np.int32)
    carried = np.diff(pairs.indptr) > 0
    return pairs[carried].astype(np.float32), np.repeat(np.arange(len(sizes)), sizes)[carried]


class _TextWriter:
    """Write texts of points and labels, from words of topics and one word for each label."""

    def __init__(self, topics: csr_array, words_per_point: float, rng: np.random.Generator) -> None:
        self._rng, self._mean = rng, words_per_point
        number, labels = topics.shape
        self._first_own = TOPIC_WORDS * number  # the own word of label j is number first_own + j
        self._words = np.array([_word(n) for n in range(self._first_own + labels)], dtype=object)
        lengths = 1 + rng.poisson(max(words_per_point - 1, 0), size=labels)
        label = np.repeat(np.arange(labels), lengths)
        words = self._topic_words(random_entries(csr_array(topics.T), label, rng))
        ends = np.cumsum(lengths)
        words[ends - 1] = self._first_own + np.arange(labels)
        self.label_texts = self._joined(words, ends)

    def of_points(self, targets: csr_array, topic_of: Ints, known: float, postulate: float) -> list[str]:
        """Return the texts of points; the text of an item is a label text."""
        lengths = 1 + self._rng.poisson(max(self._mean - 1, 0), size=len(topic_of))
        point = np.repeat(np.arange(len(topic_of)), lengths)
        own = self._first_own + random_entries(targets, point, self._rng)
        of_topic = self._rng.random(len(point)) < 0.5
        # Label texts end in the label's own word. Texts of points do not, so no point is an item by accident.
        ends = np.cumsum(lengths)
        of_topic[ends - 1] = True
        words = np.where(of_topic, self._topic_words(topic_of[point]), own)
        texts = self._joined(words, ends)
        for item, label in zip(*self._items(targets, known, postulate), strict=True):
            texts[item] = self.label_texts[label]
        return texts

    def _items(self, targets: csr_array, known: float, postulate: float) -> tuple[Ints, Ints]:
        """Return the rows of points that are items, and the label whose text each of them has."""
        # A point becomes an item of each of its labels at the same rate, so the points with the text of j are
        # distributed like all points with label j. (Points with rate x labels > 1 fall short.)
        sizes = np.diff(targets.indptr)
        rate = known / sizes.mean()
        items = np.flatnonzero(self._rng.random(len(sizes)) < _adjusted_rate(rate, sizes, known) * sizes)
        label = random_entries(targets, items, self._rng)
        strange = np.flatnonzero(self._rng.random(len(items)) >= postulate)
        label[strange] = label[self._rng.permutation(strange)]
        return items, label

    def _topic_words(self, topic: Ints) -> Ints:
        return TOPIC_WORDS * topic + self._rng.integers(TOPIC_WORDS, size=len(topic))

    def _joined(self, words: Ints, ends: Ints) -> list[str]:
        parts = self._words[words].tolist()
        starts = np.concatenate([[0], ends[:-1]])
        return [" ".join(parts[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _adjusted_rate(rate: float, sizes: npt.NDArray[Any], known: float) -> float:
    """Return the rate at which a share `known` of the points become items, each at most once."""
    for _ in range(30):
        rate *= known / max(float(np.minimum(1, rate * sizes).mean()), 1e-12)
    return rate


def _word(number: int) -> str:
    """Return a pronounceable word that is different for each number."""
    syllables: list[str] = []
    while number or len(syllables) < 2:
        number, digit = divmod(number, 100)
        syllables.append("bcdfghjklmnprstvwxyz"[digit // 5] + "aeiou"[digit % 5])
    return "".join(reversed(syllables))
