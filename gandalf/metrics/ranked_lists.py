"""Read predictions from JSON lines: one test point on each line, with labels and optional scores."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.data.files import read_lines
from gandalf.data.matching import text_key
from gandalf.errors import DataError, Findings

LABEL_KEYS = ("labels", "ids", "target_ind")
SCORE_KEYS = ("scores", "target_rel")
REMEDY = 'write lines such as {"labels": [7, 3], "scores": [0.9, 0.2]}'

Lists = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]


def read_ranked_lists(path: Path, test: Dataset) -> Lists:
    """Return row pointers, label numbers and scores; without scores, the order of the labels is the
    ranking."""
    names = LabelFinder(test)
    ends, labels, scores = [0], [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for number, line in read_lines(path, Findings()):
        try:
            record = _record(line)
            _check_uid(record, test, number - 1)
            found = _labels(record, names)
            _check_texts(record, found, test)
            values = _scores(record, len(found))
        except DataError as error:
            problem = error.problem
            raise DataError(problem.what, remedy=problem.remedy, file=path, line=number) from error
        ends.append(ends[-1] + len(found))
        labels.append(np.asarray(found, dtype=np.int64))
        scores.append(values)
    return np.asarray(ends, dtype=np.int64), np.concatenate(labels), np.concatenate(scores)


class LabelFinder:
    """Find a label by its number, its id, or its text if no other label has this text."""

    def __init__(self, points: Dataset) -> None:
        self._points = points

    def numbers(self, labels: list[Any]) -> list[int]:
        """Return the number of each label of a list."""
        if set(map(type, labels)) == {int} and min(labels) >= 0 and max(labels) < self._points.num_labels:
            return labels  # the usual case, checked for the whole list because lists are many
        return [self.number(label) for label in labels]

    def number(self, label: object) -> int:
        """Return the number of the label that an entry of a list of predictions names."""
        if isinstance(label, str):
            return self._number_of_name(label)
        if not isinstance(label, int) or isinstance(label, bool):
            raise DataError(f"{_shown(label)} is no label", remedy="give label numbers, ids or texts")
        if not 0 <= label < self._points.num_labels:
            count = self._points.num_labels
            what = f"label number {_shown(label)} is out of range: the data set has {count:,} labels"
            raise DataError(what, remedy="count labels from 0, in the order of the label file")
        return label

    def _number_of_name(self, name: str) -> int:
        number = self._by_id.get(name)
        if number is not None:
            return number
        same_text = self._by_text.get(text_key(name), [])
        if len(same_text) == 1:
            return same_text[0]
        if same_text:
            what = f"{len(same_text)} labels have the text {name!r}"
            raise DataError(what, remedy="give the id or number of the label instead")
        raise DataError(
            f"no label has the id or the text {name!r}", remedy="give label ids or texts as in the label file"
        )

    @cached_property
    def _by_id(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._points.label_ids or ())}

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, text in enumerate(self._points.label_texts or ()):
            found.setdefault(text_key(text), []).append(number)
        return found


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON ({error.msg} at column {error.colno})", remedy=REMEDY) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or very deep nesting
        raise DataError("is JSON with a number or a nesting that cannot be read", remedy=REMEDY) from error
    if not isinstance(record, dict):
        raise DataError("is not a JSON object", remedy=REMEDY)
    label_key = _first_key(record, LABEL_KEYS)
    if not label_key or not isinstance(record[label_key], list):
        raise DataError(f"has no list of labels under {', '.join(LABEL_KEYS)}", remedy=REMEDY)
    return record


def _first_key(record: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((key for key in keys if key in record), "")


def _check_uid(record: dict[str, Any], test: Dataset, row: int) -> None:
    """Refuse a line whose uid is not that of the test point; it would be scored against a wrong point."""
    if "uid" not in record or test.ids is None or row >= len(test):
        return
    uid = record["uid"] if isinstance(record["uid"], str) else _shown(record["uid"])
    if uid == test.ids[row]:
        return
    what = f"the line has uid {uid!r}, but the test point of this line has {test.ids[row]!r}"
    raise DataError(what, remedy="write the lines in the order of the test split")


def _check_texts(record: dict[str, Any], found: list[int], test: Dataset) -> None:
    """Refuse labels whose texts differ from the data set: their numbers have another order."""
    texts = record.get("label_texts")
    if test.label_texts is None or not isinstance(texts, list) or len(texts) != len(found):
        return
    for number, text in zip(found, texts, strict=True):
        known = test.label_texts[number]
        if isinstance(text, str) and text != known:
            what = f"label {number} is {_shown(text)} here and {_shown(known)} in the data set"
            remedy = "give the data set whose labels the model was trained with, in the same order"
            raise DataError(what, remedy=remedy)


def _labels(record: dict[str, Any], names: LabelFinder) -> list[int]:
    found = names.numbers(record[_first_key(record, LABEL_KEYS)])
    if len(set(found)) < len(found):
        twice = next(label for at, label in enumerate(found) if label in found[:at])
        raise DataError(f"label {twice} is predicted twice", remedy="give each label once for each point")
    return found


def _scores(record: dict[str, Any], count: int) -> npt.NDArray[np.float64]:
    key = _first_key(record, SCORE_KEYS)
    if not key:
        return -np.arange(count, dtype=np.float64)
    values = record[key]
    if not isinstance(values, list) or len(values) != count:
        raise DataError(f"{key} does not hold one score for each of the {count} labels", remedy=REMEDY)
    if set(map(type, values)) <= {int, float}:
        scores = _as_floats(values)
        if not np.isnan(scores).any():
            return scores
    bad = next(value for value in values if type(value) is not int and not _is_number(value))
    raise DataError(f"the score {_shown(bad)} is not a number", remedy="leave the pair out, or score it -inf")


def _is_number(value: object) -> bool:
    return type(value) is float and not math.isnan(value)


def _shown(value: object) -> str:
    """Return a value as JSON for a message, cut if it is long or deeply nested."""
    if isinstance(value, list | dict):
        return "[...]" if isinstance(value, list) else "{...}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _as_floats(values: list[float]) -> npt.NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except OverflowError as error:
        raise DataError("a score is too large to be a floating-point number", remedy=REMEDY) from error
