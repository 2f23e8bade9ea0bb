"""Arrange predictions in columns, one row for each label of each text, for files and data frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.model.known_labels import Labelled

Kind = Literal["pandas", "polars", "arrow"]
Columns = dict[str, Any]  # name -> array or list of equal lengths

NAMES = ("row", "uid", "text", "rank", "label", "label_id", "label_text", "score")


def label_name(model: Labelled, label: int) -> str:
    """Return a name for people: the label's text, else its id, else its number."""
    text = model.label_texts[label]
    return text if text.strip() else label_id(model, label)


def label_id(model: Labelled, label: int) -> str:
    """Return the label's id, or its number if labels have no ids."""
    return str(label) if model.label_ids is None else model.label_ids[label]


def label_columns(
    model: Labelled,
    texts: Sequence[str],
    ids: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
    uids: Sequence[str] | None = None,
    first_row: int = 0,
) -> Columns:
    """Return the columns NAMES of N x k label numbers, of which -1 is no label; rows count from 0."""
    rows, places = np.nonzero(ids >= 0)
    labels, of = ids[rows, places], rows.tolist()
    return {
        "row": rows + first_row,
        "uid": [None if uids is None else uids[row] for row in of],
        "text": [texts[row] for row in of],
        "rank": places + 1,
        "label": labels,
        "label_id": [label_id(model, label) for label in labels.tolist()],
        "label_text": [model.label_texts[label] for label in labels.tolist()],
        "score": scores[rows, places],
    }


def as_table(columns: Columns, kind: Kind) -> Any:  # noqa: ANN401  a table of a library that may be missing
    """Return the columns as a pandas or polars DataFrame or as a pyarrow Table, without an empty `uid`."""
    if kind not in get_args(Kind):
        raise DataError(f"there is no kind of table {kind!r}", remedy=f"say one of {', '.join(_MAKERS)}")
    if not any(uid is not None for uid in columns["uid"]):
        columns = {name: values for name, values in columns.items() if name != "uid"}
    library, maker = _MAKERS[kind]
    try:
        make: Callable[[Columns], Any] = getattr(import_module(library), maker)
    except ImportError as error:
        raise DataError(f"a table of {library} needs {library}", remedy=f"pip install {library}") from error
    return make(columns)


_MAKERS: dict[str, tuple[str, str]] = {
    "pandas": ("pandas", "DataFrame"),
    "polars": ("polars", "DataFrame"),
    "arrow": ("pyarrow", "table"),
}
