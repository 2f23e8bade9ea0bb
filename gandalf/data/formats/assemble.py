"""Finish reading a data set of any layout: scale targets, read filter files, and make the `Splits`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.formats.filters import with_filters
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Findings


def assemble(train: Dataset, test: Dataset | None, source: Path, layout: str, findings: Findings) -> Splits:
    """Return the `Splits` of the points that a layout has read."""
    need_points(len(train), train.num_labels, source, findings)
    train, test = _scale_graded_targets(train, test, source, findings)
    if test is not None and not len(test):
        remedy = "add them, or remove the file"
        findings.warn("empty-test", "the file of test points has no points", remedy=remedy, file=source)
    if source.is_dir():
        train, test = with_filters(train, test, source, findings)
    return Splits(train, test, layout=layout)


def need_features(points: Dataset, layout: str) -> tuple[csr_array, csr_array | None]:
    """Return the features of points and labels; raise a DataError if the points have none."""
    if points.features is None:
        what = f"the {layout} layout needs features, but this data set has only texts"
        raise DataError(what, remedy="make features first (gandalf.data.tf_idf), or write the raw layout")
    return points.features, points.label_features


def check_feature_columns(
    of_train: csr_array | None, others: Iterable[tuple[csr_array | None, Path | None]], findings: Findings
) -> None:
    """Report features with another number of columns than the training features; each comes with its file."""
    for features, file in others:
        if of_train is None or features is None or features.shape[1] == of_train.shape[1]:
            continue
        findings.error(
            "feature-mismatch",
            f"has {counted(features.shape[1], 'column')}, but the training features have"
            f" {of_train.shape[1]:,}",
            remedy="write the features of training points, test points and labels with one vocabulary",
            file=file,
            line=None if file is None or file.suffix == ".npz" else 1,
        )


def _scale_graded_targets(
    train: Dataset, test: Dataset | None, source: Path, findings: Findings
) -> tuple[Dataset, Dataset | None]:
    """Scale graded targets (clicks, relevance 0 to 3) to (0, 1], by the same constant for both splits."""
    splits = [train] if test is None else [train, test]
    largest = max(float(points.targets.data.max(initial=0.0)) for points in splits)
    if largest <= 1:
        return train, test
    note_scale(largest, source, findings)
    train, *others = (replace(each, targets=divide_targets(each.targets, largest)) for each in splits)
    return train, others[0] if others else None


def note_scale(largest: float, source: Path, findings: Findings) -> None:
    """Note that targets were divided by the largest."""
    what = f"targets go up to {largest:g}, so all of them were divided by {largest:g}"
    remedy = "nothing to do if they are counts or grades"
    findings.note("graded-targets-scaled", what, remedy=remedy, file=source)


def need_points(points: int, labels: int, source: Path, findings: Findings) -> None:
    """Report a set without training points or without labels."""
    for number, noun in ((points, "training points"), (labels, "labels")):
        if number == 0:
            findings.error("empty-file", f"there are no {noun}", remedy="add some", file=source)


def divide_targets(targets: csr_array, by: float) -> csr_array:
    """Return the targets divided by a number."""
    targets = targets.copy()
    # A quotient too small for float32 must not become 0, which would remove the target.
    targets.data = np.maximum(targets.data / np.float32(by), np.finfo(np.float32).tiny)
    return targets
