"""Look at the graph: find a label by a query, and return its neighbours with their counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_key
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.graph.cooccurrence import counts_together, frequencies
from gandalf.graph.joint_sums import Floats


@dataclass(frozen=True)
class Neighbour:
    """One target of the point with a label's text."""

    label: int
    text: str
    together: float  # points with both labels
    frequency: float  # points with the neighbour
    target: float


@dataclass(frozen=True)
class Neighbourhood:
    """A label, and the targets of the point with its text."""

    label: int
    text: str
    frequency: float
    neighbours: tuple[Neighbour, ...]  # largest target first, the label itself left out


class Labelled(Protocol):
    """Points whose labels can be looked up."""

    @property
    def label_texts(self) -> Sequence[str] | None:
        """Return the text of each label."""

    @property
    def label_ids(self) -> Sequence[str] | None:
        """Return the id of each label."""

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""

    @property
    def label_frequencies(self) -> npt.NDArray[np.int64]:
        """Return the number of points with each label."""


def find_labels(points: Labelled, query: str) -> list[int]:
    """Return the labels that match the query, frequent labels first; raise a DataError if none does.

    The query is compared in turn with the ids, the whole texts, the first words of texts, words anywhere in
    texts, any part of texts, and the numbers of labels. The first comparison that matches a label decides.
    """
    texts = [text_key(text) for text in points.label_texts or ()]
    words = [f" {' '.join(split_words(text))} " for text in points.label_texts or ()]
    ids = [name.casefold() for name in points.label_ids or ()]
    wanted, phrase = text_key(query), f" {' '.join(split_words(query))} "
    tries: tuple[Iterator[int], ...] = (
        _indices_where(ids, lambda name: name == query.casefold()),
        _indices_where(texts, lambda text: text == wanted),
        _indices_where(words, lambda text: text.startswith(phrase)),
        _indices_where(words, lambda text: phrase in text),
        _indices_where(texts, lambda text: wanted in text),
        iter([int(query)] if query.isdecimal() and int(query) < points.num_labels else []),
    )
    for found in (list(these) for these in tries if wanted):
        if found:
            return sorted(found, key=lambda label: (-int(points.label_frequencies[label]), label))
    raise DataError(f"no label has the id, text or number {query!r}", remedy="try one word of its text")


def neighbourhood(points: Dataset, graph: csr_array, label: int) -> Neighbourhood:
    """Return the label's row of the graph with the counts of its entries."""
    return neighbourhood_of_counts(
        points, graph, label, counts_together(points.targets, [label]), frequencies(points.targets)
    )


def neighbourhood_of_counts(
    points: Labelled, graph: csr_array, label: int, together: csr_array, frequency: Floats
) -> Neighbourhood:
    """Like `neighbourhood`, but with given counts: the label's joint sums with all labels, and all
    frequencies."""
    row = graph[[label]]
    joint = dict(zip(together.indices.tolist(), together.data.tolist(), strict=True))
    neighbours = [
        Neighbour(other, _text_of(points, other), joint.get(other, 0.0), float(frequency[other]), target)
        for other, target in zip(row.indices.tolist(), row.data.tolist(), strict=True)
        if other != label
    ]
    neighbours.sort(key=lambda one: (-one.target, one.label))
    return Neighbourhood(label, _text_of(points, label), float(frequency[label]), tuple(neighbours))


def typical_labels(points: Labelled, graph: csr_array, number: int = 3) -> list[int]:
    """Choose labels to show, from frequent to rare, among the labels with several neighbours."""
    known = np.flatnonzero(np.diff(graph.indptr) > 3)
    if not len(known):
        known = np.arange(points.num_labels)
    order = known[np.argsort(-points.label_frequencies[known], kind="stable")]
    places = np.linspace(0, len(order) - 1, min(number, len(order))).astype(np.int64)
    return [int(label) for label in order[places]]


def _indices_where(values: list[str], fits: Callable[[str], bool]) -> Iterator[int]:
    return (at for at, value in enumerate(values) if fits(value))


def _text_of(points: Labelled, label: int) -> str:
    return f"label {label}" if points.label_texts is None else points.label_texts[label]
