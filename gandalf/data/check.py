"""Check a data set before training: the library side of `gandalf check`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import find_file
from gandalf.data.forecast import Forecast, Plan, forecast
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.lengths import MOST_WORDS, cut_sentence, length_for
from gandalf.data.load import bundled, load
from gandalf.data.matching import known_points, text_groups
from gandalf.data.sentences import counted
from gandalf.data.words import split_words
from gandalf.errors import DataError, Findings, Problem, Severity

_EXAMPLES = 3
_LABELS, _TRAIN, _TEST = "labels", "training", "test"
# For layouts with one line per label or point: the possible file names, and the line of number 0.
_LINES: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {
    ("raw", _LABELS): (("lbl.json",), 1),
    ("raw", _TRAIN): (("trn.json",), 1),
    ("raw", _TEST): (("tst.json",), 1),
    ("renee", _LABELS): (("Y.txt",), 1),
    ("renee", _TRAIN): (("trn_X.txt",), 1),
    ("renee", _TEST): (("tst_X.txt",), 1),
    ("sparse", _LABELS): (("Y.txt", "lbl_X.txt", "lbl.json"), 1),
    ("sparse", _TRAIN): (("trn_X_Y.txt", "train.txt"), 2),  # below the header
    ("sparse", _TEST): (("tst_X_Y.txt", "test.txt"), 2),
}


@dataclass(frozen=True)
class _Places:
    """Find the file and line of a label or point."""

    layout: str
    source: Path

    def of(self, split: str, number: int) -> dict[str, Any]:
        """Return `file` and `line` of a label or point, or nothing if the layout has no line for it."""
        names, first = _LINES.get((self.layout, split), ((), 1))
        file = find_file(self.source, names) if self.source.is_dir() else None
        return {} if file is None else {"file": file, "line": int(number) + first}


@dataclass(frozen=True)
class CheckReport:
    """The findings, worst first, their counts, and the forecast of time and memory."""

    findings: tuple[Problem, ...]  # errors, then warnings, then notes; a few of each kind and file
    counts: dict[str, int]  # kind -> number of findings, those not listed included
    splits: Splits | None  # None: the data could not be read
    forecast: Forecast | None

    @property
    def passed(self) -> bool:
        """Return True if there is neither an error nor a warning."""
        return all(problem.severity == "note" for problem in self.findings)

    def number(self, severity: Severity) -> int:
        """Return the number of findings of this severity, those not listed included."""
        kinds = {problem.kind for problem in self.findings if problem.severity == severity}
        return sum(self.counts[kind] for kind in kinds)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "passed": self.passed,
            "errors": self.number("error"),
            "warnings": self.number("warning"),
            "notes": self.number("note"),
            "counts": self.counts,
            "findings": [asdict(problem.plain()) for problem in self.findings],
            "forecast": None if self.forecast is None else self.forecast.as_dict(),
        }


def check(
    source: Any,  # noqa: ANN401  what `load` takes
    options: TableOptions | None = None,
    *,
    plan: Plan | None = None,
) -> CheckReport:
    """Read the whole data set in spite of errors, and collect the findings of readers and checks."""
    findings = Findings(strict=False)
    splits, costs = None, None
    try:
        splits = load(source, options=options, findings=findings)
        inspect(splits, findings, source)
        costs = forecast(splits, plan)
    except DataError as error:  # an error that no reader can skip
        if error.problem.kind == "unknown-source":  # a mistake in the command line, not in the data
            raise
        findings.problems.append(error.problem)
        findings.counts[error.problem.kind, error.problem.file] += 1
    counts: Counter[str] = Counter()
    for (kind, _), number in findings.counts.items():
        counts[kind] += number
    weight = {"error": 0, "warning": 1, "note": 2}
    ordered = sorted(findings.problems, key=lambda problem: weight[problem.severity])
    return CheckReport(tuple(ordered), dict(counts), splits, costs)


def inspect(splits: Splits, findings: Findings, source: Any = "") -> None:  # noqa: ANN401  what `load` takes
    """Run the checks that need the whole data set, and add their findings."""
    in_files = isinstance(source, str | PathLike)
    places = _Places(splits.layout, bundled().get(str(source), Path(source)) if in_files else Path())
    for run_check in CHECKS:
        run_check(splits, findings, places)


def _labels_without_points(splits: Splits, findings: Findings, places: _Places) -> None:
    empty = np.flatnonzero(splits.train.label_frequencies == 0)
    if len(empty):
        findings.warn(
            "label-without-points",
            f"{len(empty):,} of {counted(splits.train.num_labels, 'label has', 'labels have')}"
            f" no training point: {_examples(splits.train, empty)}",
            remedy="train with their texts (gandalf augment gives every label a point) or drop them",
            **places.of(_LABELS, empty[0]),
        )


def _unseen_test_labels(splits: Splits, findings: Findings, places: _Places) -> None:
    if splits.test is None:
        return
    unseen = np.flatnonzero((splits.test.label_frequencies > 0) & (splits.train.label_frequencies == 0))
    if len(unseen):
        positives = int(splits.test.label_frequencies[unseen].sum())
        findings.warn(
            "unseen-test-label",
            counted(
                len(unseen), "label of the test points never occurs", "labels of the test points never occur"
            )
            + f" in training ({positives:,} of {counted(splits.test.targets.nnz, 'test positive')}):"
            f" {_examples(splits.train, unseen)}",
            remedy="only a model that reads label texts can predict them; otherwise split the points again",
            **places.of(_LABELS, unseen[0]),
        )


def _overlap(splits: Splits, findings: Findings, places: _Places) -> None:
    """Warn of test points that are training points, by id, or by text and labels if a split has no ids."""
    train, test = splits.train, splits.test
    if test is None:
        return
    ids, test_ids = _meaningful_ids(train), _meaningful_ids(test)
    if ids is not None and test_ids is not None:
        known = set(ids)
        both = [row for row, name in enumerate(test_ids) if name in known]
        by, example = "id", test_ids[both[0]] if both else ""
    elif train.texts is not None and test.texts is not None and splits.origin is None:
        # Label points of an augmented set have the texts of test points on purpose.
        group, test_group = text_groups(train.texts, test.texts)
        points = set(_text_and_label_keys(group, train))
        both = [row for row, seen in enumerate(_text_and_label_keys(test_group, test)) if seen in points]
        by, example = "text and labels", test.texts[both[0]] if both else ""
    else:
        return
    if both:
        findings.warn(
            "train-test-overlap",
            f"{len(both):,} of "
            + counted(len(test), "test point is a training point", "test points are training points")
            + f" too, by {by}: {example!r} (test point {both[0]})",
            remedy="remove them from one of the splits, or the scores will be too high",
            **places.of(_TEST, both[0]),
        )


def _shared_texts(splits: Splits, findings: Findings, places: _Places) -> None:
    """Note test texts that are training texts. Different items may share a title, so this is no error."""
    train, test = splits.train, splits.test
    if test is None or train.texts is None or test.texts is None:
        return
    group, test_group = text_groups(train.texts, test.texts)
    shared = np.flatnonzero(np.isin(test_group, group))
    if len(shared):
        findings.note(
            "shared-text",
            f"{len(shared):,} of {counted(len(test), 'test point')} ({len(shared) / len(test):.1%}) with"
            f" the text of a training point: {test.texts[shared[0]]!r} (test point {shared[0]})",
            **places.of(_TEST, shared[0]),
        )


def _empty_rows(splits: Splits, findings: Findings, places: _Places) -> None:
    for name, points in splits.named(_TRAIN, _TEST):
        empty = np.flatnonzero(np.diff(points.targets.indptr) == 0)
        if len(empty):
            findings.note(
                "empty-row",
                f"{len(empty):,} of {counted(len(points), f'{name} point')} without a label,"
                f" point {empty[0]} first",
                **places.of(name, empty[0]),
            )


def _duplicate_points(splits: Splits, findings: Findings, places: _Places) -> None:
    texts = splits.train.texts
    if texts is None:
        return
    (group,) = text_groups(texts)
    first: dict[tuple[int, bytes], int] = {}
    again = []
    for row, signature in enumerate(_text_and_label_keys(group, splits.train)):
        if first.setdefault(signature, row) != row:
            again.append((first[signature], row))
    if again:
        one, other = again[0]
        findings.note(
            "duplicate-point",
            f"{counted(len(again), 'training point repeats', 'training points repeat')} another's text and"
            f" labels: points {one} and {other},"
            f" {texts[one]!r}",
            **places.of(_TRAIN, other),
        )


def _long_texts(splits: Splits, findings: Findings, places: _Places) -> None:
    texts = splits.train.texts
    if texts is None:
        return
    # Words stand in for tokens: a text has at least as many tokens as words.
    words = np.fromiter((len(split_words(text)) for text in texts), dtype=np.int64, count=len(texts))
    length = length_for(words, MOST_WORDS)
    longer = np.flatnonzero(words > length)
    if len(longer):
        findings.note(
            "long-text",
            f"{cut_sentence(len(longer), len(texts), length, 'words')}, training point {longer[0]} first",
            remedy="raise text.max_length if the words after the cut matter",
            **places.of(_TRAIN, longer[0]),
        )


def _no_test_filter(splits: Splits, findings: Findings, places: _Places) -> None:
    known = None if splits.test is None or splits.test.exclude is not None else known_points(splits.test)
    if known is not None and known.any():
        findings.note(
            "no-test-filter",
            f"{int(known.sum()):,} of {counted(len(known), 'test point has', 'test points have')} the text"
            " of a label, and no filter file excludes the label with the point's own text",
            remedy="add filter_labels_test.txt if that label is no valid answer",
        )


def _label_counts(splits: Splits, findings: Findings, places: _Places) -> None:
    if splits.test is not None and splits.test.num_labels != splits.train.num_labels:
        raise DataError(
            f"the training points have {counted(splits.train.num_labels, 'label')} and the test points"
            f" {splits.test.num_labels:,}",
            remedy="both splits must use the same list of labels",
            kind="label-count-mismatch",
        )


# In the order of the report. `_label_counts` comes first because the other checks rely on it.
CHECKS: tuple[Callable[[Splits, Findings, _Places], None], ...] = (
    _label_counts,
    _labels_without_points,
    _unseen_test_labels,
    _overlap,
    _shared_texts,
    _empty_rows,
    _duplicate_points,
    _long_texts,
    _no_test_filter,
)


def _examples(points: Dataset, labels: npt.NDArray[np.int64]) -> str:
    texts = points.label_texts
    shown = [
        f"label {label}" if texts is None else f"label {label} {texts[label]!r}"
        for label in labels[:_EXAMPLES].tolist()
    ]
    return ", ".join(shown) + (", ..." if len(labels) > _EXAMPLES else "")


def _meaningful_ids(points: Dataset) -> Sequence[str] | None:
    """Return the ids of the points, or None if they are only consecutive numbers."""
    ids = points.ids
    if not ids or not (ids[0].isascii() and ids[0].isdigit() and len(ids[0]) < 19):
        return ids
    first = int(ids[0])  # a split may be numbered from 0, from 1, or on from another split
    numbered = all(name == str(number) for number, name in enumerate(ids, start=first))
    return None if numbered else ids


def _text_and_label_keys(groups: npt.NDArray[np.int64], points: Dataset) -> list[tuple[int, bytes]]:
    """Return a key of each point's text and labels; points with equal keys are duplicates."""
    ends, labels = points.targets.indptr.tolist(), points.targets.indices.astype(np.int64)
    return [(group, labels[ends[row] : ends[row + 1]].tobytes()) for row, group in enumerate(groups.tolist())]
