"""Read predictions from a table with a row for each label of each text, as `gandalf predict -o` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from gandalf.data.dataset import Dataset
from gandalf.data.files import plain_name
from gandalf.data.formats.opened_table import Row
from gandalf.data.formats.table_files import open_table
from gandalf.errors import DataError, Findings

NEEDED = ("row", "label", "score")  # of the columns that `gandalf predict -o` writes
SUFFIXES = (".csv", ".parquet")
REMEDY = "give the file that gandalf predict -o wrote, or a .npz or .jsonl file"


def is_prediction_table(path: Path) -> bool:
    """Return True if the name ends like that of a table; a CSV file may be compressed."""
    return Path(plain_name(path)).suffix in SUFFIXES


def read_prediction_table(path: Path, test: Dataset) -> coo_array:
    """Return the scores of the table as an N x L matrix; a test point without a row has no predictions."""
    table = open_table(path, Findings())
    missing = [name for name in NEEDED if name not in table.columns]
    if missing:
        raise DataError(f"has no column {missing[0]!r}", remedy=REMEDY, file=path)
    entries = []
    for line, row in table.rows:
        try:
            entries.append(_entry(row, test))
        except DataError as error:
            problem = error.problem
            raise DataError(problem.what, remedy=problem.remedy, file=path, line=line) from error
    points, labels, scores = np.asarray(entries, dtype=np.float64).reshape(-1, 3).T
    places = (points.astype(np.int64), labels.astype(np.int64))  # float64 holds these numbers exactly
    return coo_array((scores, places), shape=test.targets.shape)


def _entry(row: Row, test: Dataset) -> tuple[int, int, float]:
    """Return the number of the point, the number of the label and the score, checked against the data."""
    try:
        point, label, score = int(row["row"]), int(row["label"]), float(row["score"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("row and label must be whole numbers and score a number", remedy=REMEDY) from error
    points, labels = test.targets.shape
    if not 0 <= point < points:
        what = f"row {point} is out of range: the test split has {points:,} points"
        raise DataError(what, remedy="predict the test split of this data set")
    if not 0 <= label < labels:
        what = f"label number {label} is out of range: the data set has {labels:,} labels"
        raise DataError(what, remedy="give the data set whose labels the model was trained with")
    _check_text("text", row, point, test.texts)
    _check_text("label_text", row, label, test.label_texts)
    return point, label, score


def _check_text(column: str, row: Row, index: int, texts: Any) -> None:  # noqa: ANN401  any sequence of texts
    """Refuse a row whose text is another one in the data set: points or labels have another order there."""
    given = row.get(column)
    if texts is None or not given or given.removeprefix("'") == texts[index].removeprefix("'"):
        return  # --escape-formulas puts an apostrophe before a text
    what = f"{column} {index} is {given[:60]!r} here and {texts[index][:60]!r} in the data set"
    raise DataError(what, remedy="give the data set that was predicted, in the same order")
