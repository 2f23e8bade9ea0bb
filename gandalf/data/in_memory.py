"""Read texts and labels that a Python program passes: lists, columns of any library, indicator matrices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import binary_pairs
from gandalf.data.formats.texts import clean
from gandalf.errors import DataError

Name = str | int
Classes = npt.NDArray[Any]  # L names: integers, or an object array of strings
LabelTexts = Mapping[Any, str] | Sequence[str]


@dataclass(frozen=True, eq=False)
class Indicators:
    """The labels of each point, and the names of the labels."""

    targets: csr_array  # N x L
    names: list[Name]  # L

    @property
    def classes(self) -> Classes:
        """Return the names as an array."""
        return classes_of(self.names)


def classes_of(names: list[Name]) -> Classes:
    """Return names as an array: of integers, or of objects, since strings of fixed width waste memory."""
    whole = all(isinstance(name, int) for name in names)
    return np.array(names, dtype=np.int64 if whole else object)


def indicators(
    labels: Any,  # noqa: ANN401  of any library
    names: Sequence[Name] | None = None,
    *,
    drop_others: bool = False,
) -> Indicators:
    """Read N lists of names, N names, or an N x L matrix; `names` lists all allowed names in order.

    Without `names`, the names of lists are sorted, and the names of a matrix are 0 to L - 1. A name that is
    not allowed is an error; with `drop_others` it is dropped.
    """
    if len(getattr(labels, "shape", ())) == 2:
        return _read_matrix(csr_array(labels), names)
    values = _as_list(labels)
    if values and all(_is_name(value) for value in values):
        values = [[value] for value in values]  # one label each
    rows = [_names_of_point(row, at) for at, row in enumerate(values)]
    if names is None:
        # Numbers before strings, because Python cannot compare the two.
        names = sorted({name for row in rows for name in row}, key=lambda name: (isinstance(name, str), name))
    place = {name: at for at, name in enumerate(names)}
    pairs = [(at, name) for at, row in enumerate(rows) for name in row if not drop_others or name in place]
    for at, name in pairs:
        if name not in place:
            raise DataError(
                f"point {at:,} has the label {name!r}, which is not among the {len(place):,} names"
            )
    columns = [place[name] for _, name in pairs]
    found = binary_pairs([at for at, _ in pairs], columns, (len(rows), len(place)))
    return Indicators(found.astype(np.float32), list(names))


def texts_of_labels(names: Sequence[Name], given: LabelTexts | None) -> list[str]:
    """Return the text of each label; without `given`, the names are the texts."""
    if given is None:
        return [str(name) for name in names]
    texts = [given[name] for name in names] if isinstance(given, Mapping) else list(given)
    if len(texts) != len(names):
        raise DataError(f"there are {len(names):,} labels and {len(texts):,} label texts")
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str):
            raise DataError(f"the text of label {name!r} is not a string but {text!r}")
    return texts


def known_names(given: LabelTexts | None) -> list[Name] | None:
    """Return the names of labels: the keys of a mapping of label texts, or numbers; None without texts."""
    if given is None:
        return None
    if isinstance(given, str):
        raise DataError("label_texts is one string", remedy="give a dictionary from names to texts")
    return [_checked_name(name) for name in given] if isinstance(given, Mapping) else list(range(len(given)))


def _read_matrix(matrix: csr_array, names: Sequence[Name] | None) -> Indicators:
    names = list(range(matrix.shape[1])) if names is None else list(names)
    if matrix.shape[1] != len(names):
        raise DataError(
            f"the label matrix has {matrix.shape[1]:,} columns, but there are {len(names):,} labels"
        )
    return Indicators(matrix, names)


def _names_of_point(row: Iterable[object], at: int) -> set[Name]:
    if isinstance(row, str) or not isinstance(row, Iterable):
        what = f"the labels of point {at:,} are {row!r}, not a list"
        raise DataError(what, remedy="write [[name, ...], ...], or a name for each point")
    return {_checked_name(name) for name in row}


def _is_name(value: object) -> bool:
    return isinstance(value, str | int | np.integer) and not isinstance(value, bool)


def _checked_name(name: object) -> Name:
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError(f"the name of a label must be a string or a whole number, not {name!r}")
    return name


# ---- texts


def text_list(texts: Any) -> list[str]:  # noqa: ANN401  of any library
    """Return the cleaned texts of a list, a Series, an Arrow array, or a frame or array of one column."""
    if isinstance(texts, str):
        raise DataError("the texts are one string", remedy="write [text]")
    found = _as_list(texts)
    for at, text in enumerate(found):
        if not isinstance(text, str):
            raise DataError(f"text {at:,} is not a string but {text!r:.60}")
    return [clean(text) for text in found]


def plain_texts(texts: Any) -> Any:  # noqa: ANN401  a column of any library
    """Return the entries of a column of a table library as a list, and any other value as it is."""
    is_column = hasattr(texts, "shape") or hasattr(texts, "to_pylist")
    return _as_list(texts) if is_column else texts


def _as_list(values: Any) -> list[Any]:  # noqa: ANN401
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) == 2:  # iterating over a frame would give its column names
        if shape[1] != 1:
            raise DataError(
                f"the texts have {shape[1]:,} columns", remedy="give one of them, such as frame['title']"
            )
        return list(np.asarray(values, dtype=object).ravel())
    if hasattr(values, "to_pylist"):  # an Arrow array, whose entries are not Python strings
        return list(values.to_pylist())
    return list(values)


def as_mapping(values: Any) -> Mapping[Any, str] | Sequence[str]:  # noqa: ANN401
    """Return a Series as a mapping from its index, and any other column as a list."""
    if isinstance(values, Mapping | str):
        return values
    if hasattr(values, "index") and hasattr(values, "to_dict") and len(getattr(values, "shape", ())) == 1:
        if not values.index.is_unique:
            raise DataError("label_texts names a label twice", remedy="make its index unique")
        return dict(zip(values.index.tolist(), values.tolist(), strict=True))
    return _as_list(values)
