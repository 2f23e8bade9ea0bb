"""Compute the figures that describe a data set: those of the paper's table, and more that reveal problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.matching import known_points, text_groups
from gandalf.data.words import split_words

BINS = 5
TAIL = 5  # a tail label has at most this many training points


@dataclass(frozen=True)
class FrequencyBin:
    """Labels of similar frequency; all bins of a data set hold about equally many positives."""

    labels: int
    positives: int
    highest: int  # frequency of the most frequent label in the bin
    lowest: int

    @property
    def mean_frequency(self) -> float:
        """Return the mean number of training points of a label in this bin."""
        return self.positives / self.labels if self.labels else 0.0


@dataclass(frozen=True)
class Stats:
    """Figures of a data set. A figure is None if the data it needs is missing. Shares lie in 0..1."""

    name: str
    layout: str
    points: int  # N, training points
    test_points: int
    labels: int  # L
    points_per_label: float  # APpL
    labels_per_point: float  # ALpP
    words_per_point: float | None  # AWpP: words between spaces, as in the paper
    split_words_per_point: float | None  # AWpP after identifiers are split into words
    words_per_label: float | None
    features: int | None  # D
    positives: int
    tail_share: float  # labels with at most TAIL training points
    unpointed_share: float  # labels without training points
    soft_share: float  # targets below 1
    unlabelled_share: float  # training points without labels
    known_test_share: float | None  # test points whose text is a label's text
    shared_label_text_share: float | None  # labels whose text another label has too
    excluded_pairs: int  # in the test split
    bins: tuple[FrequencyBin, ...]  # head first

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def stats(splits: Splits) -> Stats:
    """Compute the figures of a data set; takes seconds for 300K points."""
    train, test = splits.train, splits.test
    points, labels, positives = len(train), train.num_labels, int(train.targets.nnz)
    frequencies = train.label_frequencies
    exclude = None if test is None else test.exclude
    return Stats(
        name=splits.name,
        layout=splits.layout,
        points=points,
        test_points=0 if test is None else len(test),
        labels=labels,
        points_per_label=_ratio(positives, labels),
        labels_per_point=_ratio(positives, points),
        words_per_point=_mean_words(train.texts, str.split),
        split_words_per_point=_mean_words(train.texts, split_words),
        words_per_label=_mean_words(train.label_texts, str.split),
        features=None if train.features is None else int(train.features.shape[1]),
        positives=positives,
        tail_share=_ratio(int(np.sum(frequencies <= TAIL)), labels),
        unpointed_share=_ratio(int(np.sum(frequencies == 0)), labels),
        soft_share=_ratio(int(np.sum(train.targets.data < 1)), positives),
        unlabelled_share=_ratio(int(np.sum(np.diff(train.targets.indptr) == 0)), points),
        known_test_share=_known_share(test),
        shared_label_text_share=_shared_share(train.label_texts),
        excluded_pairs=0 if exclude is None else int(exclude.nnz),
        bins=frequency_bins(frequencies),
    )


def label_bins(frequencies: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the bin of each label, 0 for the most frequent labels; bins hold equal shares of the positives.

    Labels are sorted by falling frequency, ties by label number. A label belongs to the bin of its first
    positive. Labels without training points belong to the last bin.
    """  # shape: (L,)
    order = np.argsort(-frequencies, kind="stable")
    ends = np.cumsum(frequencies[order])
    before, total = ends - frequencies[order], int(frequencies.sum())
    of_label = np.empty(len(frequencies), dtype=np.int64)
    of_label[order] = before * BINS // max(total, 1)
    return np.where(frequencies == 0, BINS - 1, of_label)


def frequency_bins(frequencies: npt.NDArray[np.int64]) -> tuple[FrequencyBin, ...]:
    """Return the bins of `label_bins`, the most frequent labels first."""
    of_label = label_bins(frequencies)
    return tuple(_frequency_bin(frequencies[of_label == number]) for number in range(BINS))


def _frequency_bin(frequencies: npt.NDArray[np.int64]) -> FrequencyBin:
    if not len(frequencies):
        return FrequencyBin(0, 0, 0, 0)
    return FrequencyBin(
        len(frequencies), int(frequencies.sum()), int(frequencies.max()), int(frequencies.min())
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _mean_words(texts: Sequence[str] | None, split: Callable[[str], list[str]]) -> float | None:
    return None if texts is None else _ratio(sum(len(split(text)) for text in texts), len(texts))


def _known_share(test: Dataset | None) -> float | None:
    known = None if test is None else known_points(test)
    return None if known is None else _ratio(int(known.sum()), len(known))


def _shared_share(label_texts: Sequence[str] | None) -> float | None:
    if label_texts is None:
        return None
    (groups,) = text_groups(label_texts)
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return _ratio(int(np.sum(sizes[inverse] > 1)), len(groups))
