"""What stands in a label column: lists, lists written as text, or separated names, perhaps with weights."""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from typing import Any

from gandalf.data.formats.texts import clean
from gandalf.data.matrix_builder import as_float

NO_SEPARATOR = "none"  # a cell is one label, whatever it holds
_URI = re.compile(r"<[^<>\s]+>")
# A name in quotes among others, or alone: "Arts, Crafts & Sewing",Toys
_QUOTED = re.compile(r'(^|[;|,])\s*"[^"]*"\s*([;|,]|$)')


def split_cell(cell: Any, separator: str | None) -> list[Any]:  # noqa: ANN401  a cell can hold anything
    """The items of a cell, whichever way it lists them."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return []
    if isinstance(cell, list | tuple):
        return list(cell)
    if not isinstance(cell, str):
        return [cell]
    found = listed(cell)
    if found is not None:
        return found
    return [part for part in map(str.strip, _parts(cell, separator)) if part]


def _parts(cell: str, separator: str | None) -> list[str]:
    if separator is None or separator == NO_SEPARATOR:
        return [cell]
    if separator == " ":
        return cell.split()
    if len(separator) == 1 and '"' in cell and _QUOTED.search(cell):
        return next(csv.reader([cell], delimiter=separator, skipinitialspace=True))
    return cell.split(separator)


def split_labels(cell: Any, separator: str | None) -> list[Any]:  # noqa: ANN401
    """The labels of a cell: its items without those that are empty."""
    return [item for item in split_cell(cell, separator) if item is not None and item != ""]


def name_and_weight(item: Any) -> tuple[str, float]:  # noqa: ANN401
    """The label's name, and its weight: 1, unless it is written `name::weight`."""
    if isinstance(item, str):
        name, mark, weight = item.rpartition("::")
        number = number_of(weight) if mark and name.strip() else None
        return (clean(item), 1.0) if number is None else (clean(name), number)
    return key_of(item), 1.0


def key_of(value: Any) -> str:  # noqa: ANN401
    """An identifier as text; 5 and 5.0 are the same, since spreadsheets make floats of whole numbers."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return clean(str(value))


def number_of(value: Any) -> float | None:  # noqa: ANN401
    """The value as a number, or None if it is none; infinity for an integer that no float can hold."""
    if isinstance(value, bool):
        return None
    try:
        return as_float(value)
    except (TypeError, ValueError):
        return None


def uris_of(text: str) -> list[str] | None:
    """`<http://a> <http://b>`, as Annif writes them; None if the text holds anything else."""
    words = text.split()
    if not words or not all(_URI.fullmatch(word) for word in words):
        return None
    return [word[1:-1] for word in words]


def listed(text: str) -> list[Any] | None:
    """`["a", "b"]`, `['a', 'b']` as Python writes it, or URIs in angle brackets; None if it is no list."""
    text = text.strip()
    if text.startswith("<"):
        return uris_of(text)
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, list) else None
    return None
