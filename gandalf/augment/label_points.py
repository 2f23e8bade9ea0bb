"""Make label points: label texts as extra training points, with rows of the label graph as soft targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.augment.sampling import SamplingOrder, sample_labels, sample_points
from gandalf.data.dataset import Dataset
from gandalf.errors import DataError

KeptPoints = Literal["both", "labels", "half", "uniform"]


@dataclass(frozen=True)
class Keep:
    """The choice of points of the augmented set.

    keep: both (G = D + Z, the points and the label points), labels (Z alone), half (points drawn from Z, at
    most half as many as D has) or uniform (U(G, N): as many points as D has, drawn from G).
    share, order: make label points of only this share of the labels, at random or rare labels first.
    """

    keep: KeptPoints = "both"
    share: float = 1.0
    order: SamplingOrder = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keep not in KEEPS:
            raise DataError(
                f"there is no choice {self.keep!r} to keep", remedy=f"choose from {', '.join(KEEPS)}"
            )


@dataclass(frozen=True, eq=False)
class PointTexts:
    """Texts of label points, and the label of each."""

    labels: npt.NDArray[np.int64]
    texts: Sequence[str] | None  # None for data without texts

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> PointTexts:
        return PointTexts(self.labels[rows], None if self.texts is None else [self.texts[i] for i in rows])


def point_texts(points: Dataset, labels: npt.NDArray[np.int64] | None = None) -> PointTexts:
    """Return the texts of the label points of these labels (default: all), in label order.

    First come the label texts, then the other label texts. An empty text makes no point.
    """
    chosen = np.arange(points.num_labels) if labels is None else labels
    if points.texts is None:
        return PointTexts(chosen, None)
    if points.label_texts is None:
        raise DataError(
            "label points need label texts, and this data set has none", remedy="add a label-text file"
        )
    wanted = set(chosen.tolist())
    others = ((label, text) for label, text in points.other_label_texts or () if label in wanted)
    pairs = [*((label, points.label_texts[label]) for label in chosen.tolist()), *others]
    pairs = [(label, text) for label, text in pairs if text and not text.isspace()]
    return PointTexts(np.array([label for label, _ in pairs], dtype=np.int64), [text for _, text in pairs])


def augment(points: Dataset, graph: csr_array, keep: Keep | None = None) -> Dataset:
    """Return the training points followed by the label points in label order."""
    return augment_with_mask(points, graph, keep)[0]


def augment_with_mask(
    points: Dataset, graph: csr_array, keep: Keep | None = None
) -> tuple[Dataset, npt.NDArray[np.bool_]]:
    """Like `augment`, and also return a mask of the label points."""
    keep = keep or Keep()
    without = points.label_features is None or points.other_label_texts is not None
    if points.texts is not None and points.features is not None and without:
        points = replace(points, features=None)  # features of all points can be made from the texts
    generator = np.random.default_rng(keep.seed)
    labels = sample_labels(points.label_frequencies, keep.share, keep.order, generator)
    of_labels = label_points(points, graph, labels)
    rows = KEEPS[keep.keep](len(points), len(of_labels), generator)
    both = points + of_labels
    kept = both if len(rows) == len(both) else both[rows]
    return kept, rows >= len(points)


def label_points(points: Dataset, graph: csr_array, labels: npt.NDArray[np.int64] | None = None) -> Dataset:
    """Return Z: a point for each text of the labels (default: all), with the label's row of the graph as
    targets.

    Label points have no excluded pairs, because a label text must find its own label.
    """
    number = points.num_labels
    if graph.shape != (number, number):
        raise DataError(f"the graph is {graph.shape[0]} x {graph.shape[1]}, but there are {number} labels")
    return points_of_texts(points, graph, point_texts(points, labels))


def points_of_texts(points: Dataset, graph: csr_array, chosen: PointTexts) -> Dataset:
    """Return the label points of these texts."""
    if points.features is not None and points.label_features is None:
        raise DataError(
            "label points need label features, and this data set has none", remedy="add Yf.txt or use texts"
        )
    empty = csr_array((len(chosen), points.num_labels), dtype=bool)
    return replace(
        points,
        targets=csr_array(graph[chosen.labels]).astype(np.float32),
        texts=chosen.texts,
        ids=None if points.ids is None else [f"label:{name}" for name in _names(points, chosen.labels)],
        exclude=None if points.exclude is None else empty,
        features=None
        if points.features is None or points.label_features is None
        else points.label_features[chosen.labels],
    )


def _names(points: Dataset, rows: npt.NDArray[np.int64]) -> list[str]:
    # With a prefix, because on item-to-item data the id of a label is often also the id of a training point.
    ids = points.label_ids
    return [str(row) if ids is None else ids[row] for row in rows.tolist()]


def _both(points: int, labels: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return np.arange(points + labels)


def _labels(points: int, labels: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return np.arange(points, points + labels)


def _half(points: int, labels: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return points + sample_points(labels, min(labels, points // 2), generator)


def _uniform(points: int, labels: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    return sample_points(points + labels, points, generator)


# Functions from the numbers of points and label points to the kept rows of D + Z.
KEEPS: dict[KeptPoints, Callable[[int, int, np.random.Generator], npt.NDArray[np.int64]]] = {
    "both": _both,
    "labels": _labels,
    "half": _half,
    "uniform": _uniform,
}
