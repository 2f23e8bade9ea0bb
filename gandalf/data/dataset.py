"""Define `Dataset`, the data type of the whole package, and `Splits`, a data set as it lies on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from gandalf.data.origin import Origin
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Problem

RowIndex = npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_] | slice | Sequence[int]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points with their targets, the labels with their texts, and the pairs that are never predicted.

    A training point is a text and a sparse row of target probabilities; a hard target is the value 1.0.
    `texts` and `label_texts` are None if the source holds bag-of-words features only.
    """

    targets: csr_array  # N x L float32, values in (0, 1], rows sorted, each pair once
    texts: Sequence[str] | None = None  # N
    label_texts: Sequence[str] | None = None  # L
    exclude: csr_array | None = None  # N x L bool: pairs never to be predicted (the filter files)
    ids: Sequence[str] | None = None  # N, identifiers of the points, if the source has them
    label_ids: Sequence[str] | None = None  # L
    features: csr_array | None = None  # N x D float32
    label_features: csr_array | None = None  # L x D float32
    # Further texts of labels as pairs (label, text), in label order. Each makes a label point of its label.
    other_label_texts: Sequence[tuple[int, str]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", _as_targets(self.targets))
        object.__setattr__(self, "other_label_texts", self._ordered_other_texts())
        points, labels = self.targets.shape
        for name, rows in (
            ("texts", points),
            ("ids", points),
            ("label_texts", labels),
            ("label_ids", labels),
        ):
            value = getattr(self, name)
            if value is not None and len(value) != rows:
                raise DataError(f"{name} has {len(value)} entries, but the targets need {rows}")
        for name, rows in (("features", points), ("label_features", labels)):
            value = getattr(self, name)
            if value is not None and value.shape[0] != rows:
                raise DataError(f"{name} has {value.shape[0]} rows, but the targets need {rows}")
        if self.exclude is not None and self.exclude.shape != self.targets.shape:
            raise DataError(
                f"exclude has shape {self.exclude.shape}, but the targets have {self.targets.shape}"
            )

    def _ordered_other_texts(self) -> list[tuple[int, str]] | None:
        others = sorted(self.other_label_texts or (), key=lambda pair: pair[0])
        if others and not (others[0][0] >= 0 and others[-1][0] < self.num_labels):
            label = others[-1][0] if others[0][0] >= 0 else others[0][0]
            raise DataError(f"other_label_texts names label {label}, but there are {self.num_labels} labels")
        if others and self.label_texts is None:
            raise DataError("other_label_texts needs label_texts, which hold the first text of each label")
        return others or None

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return int(self.targets.shape[1])

    @property
    def all_label_texts(self) -> list[str]:
        """Return the texts of all labels, followed by their other texts."""
        return [*(self.label_texts or ()), *(text for _, text in self.other_label_texts or ())]

    @property
    def num_label_texts(self) -> int:
        """Return the number of label texts, the other label texts included."""
        return self.num_labels + len(self.other_label_texts or ())

    @cached_property
    def label_frequencies(self) -> npt.NDArray[np.int64]:
        """Return the number of points with each label, soft targets counted as 1."""  # shape: (L,)
        return np.bincount(self.targets.indices, minlength=self.num_labels).astype(np.int64)

    def __getitem__(self, rows: RowIndex) -> Dataset:
        """Return the points at `rows`, in that order; keep all labels."""
        index = np.arange(len(self))[rows]
        return replace(
            self,
            targets=self.targets[index],
            texts=None if self.texts is None else [self.texts[i] for i in index],
            ids=None if self.ids is None else [self.ids[i] for i in index],
            exclude=None if self.exclude is None else self.exclude[index],
            features=None if self.features is None else self.features[index],
        )

    def __add__(self, other: Dataset) -> Dataset:
        """Return these points followed by the points of `other`, which must have the same labels."""
        if self.num_labels != other.num_labels:
            raise DataError(
                f"cannot append points with {other.num_labels} labels to points with {self.num_labels}"
            )
        return replace(
            self,
            targets=csr_array(vstack([self.targets, other.targets], format="csr")),
            texts=_joined(self.texts, other.texts),
            ids=_joined(self.ids, other.ids),
            exclude=_stacked_pairs(self, other),
            features=_stacked_features(self.features, other.features),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dataset):
            return NotImplemented
        lists = ("texts", "label_texts", "ids", "label_ids", "other_label_texts")
        matrices = ("targets", "exclude", "features", "label_features")
        return all(_same_list(getattr(self, n), getattr(other, n)) for n in lists) and all(
            _same_matrix(getattr(self, n), getattr(other, n)) for n in matrices
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "text" if self.texts is not None else "feature row"
        sizes = (counted(self.num_labels, "label"), counted(self.targets.nnz, "target"))
        return f"<Dataset {counted(len(self), kind)}, {', '.join(sizes)}>"

    def need_probabilities(self) -> None:
        """Raise a DataError if a target lies outside (0, 1]. Readers check this, callers may not."""
        low, high = self.targets.data.min(initial=1.0), self.targets.data.max(initial=1.0)
        if not (low > 0 and high <= 1):
            what = f"targets lie between {low:g} and {high:g}, not in (0, 1]"
            raise DataError(what, remedy="divide counts or grades by the largest")

    def need_texts(self, purpose: str) -> tuple[Sequence[str], Sequence[str]]:
        """Return texts and label texts; raise a DataError that names `purpose` if one is missing."""
        if self.texts is None or self.label_texts is None:
            missing = "texts" if self.texts is None else "label texts"
            what = f"{purpose} needs {missing}, and this data set has none"
            raise DataError(what, remedy="use its raw layout (trn/tst/lbl.json.gz), or add a label-text file")
        return self.texts, self.label_texts


@dataclass(frozen=True)
class Splits:
    """A data set as it lies on disk: training points, test points if there are any, and their origin."""

    train: Dataset
    test: Dataset | None = None
    name: str = ""
    layout: str = ""
    findings: tuple[Problem, ...] = ()
    origin: Origin | None = None  # the set that `train` was augmented from; None: `train` is not augmented
    text_column: str | None = None  # of the table that `train` was read from

    def __repr__(self) -> str:
        parts = [f"{name}={points!r}" for name, points in self.named()]
        noted = f", {counted(len(self.findings), 'finding')}" if self.findings else ""
        return f"<Splits {self.name!r}: {', '.join(parts)}{noted}>"

    def named(self, train: str = "train", test: str = "test") -> list[tuple[str, Dataset]]:
        """Return the training points and, if there are any, the test points, each with its name."""
        return [(train, self.train), *([] if self.test is None else [(test, self.test)])]

    @property
    def about(self) -> dict[str, str | int]:
        """Return the name and size of the training points, as a model's `config.json` stores them."""
        return {"name": self.name, "points": len(self.train), "labels": self.train.num_labels}

    @property
    def original_points(self) -> int:
        """Return the number of training points before augmentation."""
        return len(self.train) if self.origin is None else self.origin.points

    @property
    def original_frequencies(self) -> npt.NDArray[np.int64]:
        """Return the number of training points of each label before augmentation; metrics use these."""
        return self.train.label_frequencies if self.origin is None else self.origin.label_frequencies


def _as_targets(given: csr_array) -> csr_array:
    """Return the targets as float32 with sorted rows, each pair once and no stored zeros."""
    targets = csr_array(given)
    if not targets.has_canonical_format or targets.dtype != np.float32:
        targets = targets.astype(np.float32)  # a copy: the caller's matrix stays as it is
        entries = targets.nnz
        targets.sum_duplicates()
        if targets.nnz != entries:
            raise DataError("the targets hold a pair of point and label twice", remedy="merge them first")
    if targets.nnz and targets.data.min() == 0:
        targets = targets.copy()
        targets.eliminate_zeros()
    return targets


def binary_pairs(rows: npt.ArrayLike, labels: npt.ArrayLike, shape: tuple[int, int]) -> csr_array:
    """Return a boolean matrix that holds each of the given (row, label) pairs once."""
    rows, labels = np.asarray(rows, dtype=np.int64), np.asarray(labels, dtype=np.int64)
    pairs = csr_array((np.ones(len(rows), dtype=bool), (rows, labels)), shape=shape)
    pairs.sum_duplicates()
    pairs.data[:] = True
    return pairs


def _joined(first: Sequence[str] | None, second: Sequence[str] | None) -> list[str] | None:
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise DataError("cannot append points with texts (or ids) to points without")
    return [*first, *second]


def _stacked_pairs(first: Dataset, second: Dataset) -> csr_array | None:
    if first.exclude is None and second.exclude is None:
        return None
    parts = [
        csr_array(d.targets.shape, dtype=bool) if d.exclude is None else d.exclude for d in (first, second)
    ]
    return csr_array(vstack(parts, format="csr"))


def _stacked_features(first: csr_array | None, second: csr_array | None) -> csr_array | None:
    if first is None and second is None:
        return None
    if first is None or second is None or first.shape[1] != second.shape[1]:
        raise DataError("cannot append points whose features have different columns")
    return csr_array(vstack([first, second], format="csr"))


def _same_list(first: Sequence[Any] | None, second: Sequence[Any] | None) -> bool:
    return first is second or (first is not None and second is not None and list(first) == list(second))


def _same_matrix(first: csr_array | None, second: csr_array | None) -> bool:
    if first is None or second is None:
        return first is second
    return (
        first.shape == second.shape
        and abs(first.astype(np.float64) - second.astype(np.float64)).count_nonzero() == 0
    )
