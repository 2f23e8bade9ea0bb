"""Texts as a Python program hands them over: lists, or columns of any library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gandalf.data.formats.texts import clean
from gandalf.errors import DataError


def text_list(texts: Any) -> list[str]:  # noqa: ANN401  of any library
    """Return clean texts of a list, of a Series or an Arrow array, or of a frame or array of one column."""
    if isinstance(texts, str):
        raise DataError("the texts are one string", remedy="write [text]")
    found = _one_column(texts)
    for at, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"text {at:,} is not a string but {text!r:.60}")
    return [clean(text) for text in found]


def _one_column(values: Any) -> list[Any]:  # noqa: ANN401
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) == 2:  # iterating over a frame would give the names of its columns
        if shape[1] != 1:
            raise DataError(
                f"the texts have {shape[1]:,} columns", remedy="give one of them, such as frame['title']"
            )
        return list(np.asarray(values, dtype=object).ravel())
    if hasattr(values, "to_pylist"):  # an Arrow array, whose entries are no strings
        return list(values.to_pylist())
    return list(values)


def as_mapping(values: Any) -> Mapping[Any, str] | Sequence[str]:  # noqa: ANN401
    """Return a Series with an index as a mapping, any other column as a list."""
    if isinstance(values, Mapping | str):
        return values
    if hasattr(values, "index") and hasattr(values, "to_dict") and len(getattr(values, "shape", ())) == 1:
        if not values.index.is_unique:
            raise DataError("label_texts names a label twice", remedy="make its index unique")
        return dict(zip(values.index.tolist(), values.tolist(), strict=True))
    return _one_column(values)
