"""Read and write filter files: lines "row label" of pairs that are never predicted."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path

import numpy as np

from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.data.files import find_file, read_lines, write_lines
from gandalf.data.sentences import counted, there_are
from gandalf.errors import Findings

TRAIN_NAMES = ("filter_labels_train.txt", "trn_filter_labels.txt", "filter_labels_trn.txt")
TEST_NAMES = (
    "filter_labels_test.txt",
    "tst_filter_labels.txt",
    "filter_labels_tst.txt",
    "filter_labels_text.txt",  # a misspelling that has spread
)
_DIGITS = 30  # digits of a number that are read; Python refuses thousands, and 30 are far out of range


def with_filters(
    train: Dataset, test: Dataset | None, folder: Path, findings: Findings
) -> tuple[Dataset, Dataset | None]:
    """Return the points with `exclude` from the filter files of the folder, if there are any."""
    train = _filtered(train, find_file(folder, TRAIN_NAMES), findings)
    if test is not None:
        path = find_file(folder, TEST_NAMES)
        test = _filtered(test, path, findings)
        _report_hidden_truth(test, path, findings)
    return train, test


def write_filters(splits: Splits, folder: Path) -> None:
    """Write a filter file for each split whose `exclude` is not None, even if it holds no pairs."""
    for name, points in splits.named(TRAIN_NAMES[0], TEST_NAMES[0]):
        if points.exclude is not None:
            pairs = points.exclude.tocoo()
            lines = (f"{row} {label}\n" for row, label in zip(pairs.row, pairs.col, strict=True))
            write_lines(folder / name, lines)


def _filtered(points: Dataset, path: Path | None, findings: Findings) -> Dataset:
    if path is None:
        return points
    rows, labels = array("q"), array("q")
    for line, text in read_lines(path, findings):
        pair = _pair(text, points, path, line, findings)
        if pair is not None:
            rows.append(pair[0])
            labels.append(pair[1])
    return replace(points, exclude=binary_pairs(np.asarray(rows), np.asarray(labels), points.targets.shape))


def _pair(text: str, points: Dataset, path: Path, line: int, findings: Findings) -> tuple[int, int] | None:
    words = text.split()
    if not words:
        return None
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        what = f"'{text[:60]}' is not a pair of row and label"
        remedy = "write two whole numbers, counted from 0"
        findings.error("bad-line", what, remedy=remedy, file=path, line=line)
        return None
    row, label = (int(word.lstrip("0")[:_DIGITS] or "0") for word in words)
    for noun, number, size in (("row", row, len(points)), ("label", label, points.num_labels)):
        if number >= size:
            what = f"{noun} {number} is out of range: {there_are(size, noun)}, counted from 0"
            remedy = "the filter file must belong to this split"
            findings.error("index-out-of-range", what, remedy=remedy, file=path, line=line)
            return None
    return row, label


def _report_hidden_truth(test: Dataset, path: Path | None, findings: Findings) -> None:
    if test.exclude is None:
        return
    hidden = test.exclude.multiply(test.targets).tocoo()
    if hidden.nnz:
        findings.warn(
            "filter-hides-truth",
            f"{counted(hidden.nnz, 'pair is', 'pairs are')} in the test truth too, such as "
            f"'{hidden.row[0]} {hidden.col[0]}', and can never be hits",
            remedy="take them out of the filter or out of the truth",
            file=path,
        )
