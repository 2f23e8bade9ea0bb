"""Read the cells of a label column: lists, lists as text, or separated names, perhaps with weights.

`decide_separator` guesses the separator, since a comma may also be part of a name.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gandalf.data.formats.texts import clean
from gandalf.data.matrix_builder import as_float
from gandalf.data.sentences import counted

NO_SEPARATOR = "none"  # each cell is one label
_URI = re.compile(r"<[^<>\s]+>")
# A quoted name, alone or among other names, also between full-width semicolons: "Arts, Crafts & Sewing",Toys
_QUOTED = re.compile(r'(^|[;；|,])\s*"[^"]*"\s*([;；|,]|$)')


def split_cell(cell: Any, separator: str | None) -> list[Any]:  # noqa: ANN401  a cell can hold anything
    """Return the items of a cell."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return []
    if isinstance(cell, list | tuple):
        return list(cell)
    if not isinstance(cell, str):
        return [cell]
    found = parse_list(cell)
    if found is not None:
        return found
    return [part for part in map(str.strip, _split_text(cell, separator)) if part]


def _split_text(cell: str, separator: str | None) -> list[str]:
    if separator is None or separator == NO_SEPARATOR:
        return [cell]
    if separator == " ":
        return cell.split()
    if len(separator) == 1 and '"' in cell and _QUOTED.search(cell):
        return next(csv.reader([cell], delimiter=separator, skipinitialspace=True))
    return cell.split(separator)


def split_labels(cell: Any, separator: str | None) -> list[Any]:  # noqa: ANN401
    """Return the labels of a cell: its items without empty ones."""
    return [item for item in split_cell(cell, separator) if item is not None and item != ""]


def name_and_weight(item: Any) -> tuple[str, float]:  # noqa: ANN401
    """Return the name of a label and its weight: 1, or the weight of `name::weight`."""
    if isinstance(item, str):
        name, mark, weight = item.rpartition("::")
        number = parse_number(weight) if mark and name.strip() else None
        return (clean(item), 1.0) if number is None else (clean(name), number)
    return as_identifier(item), 1.0


def as_identifier(value: Any) -> str:  # noqa: ANN401
    """Return an identifier as text; 5 and 5.0 give the same text, since spreadsheets turn integers into
    floats."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return clean(str(value))


def parse_number(value: Any) -> float | None:  # noqa: ANN401
    """Return the value as a number, or None if it is no number; too large an integer becomes infinity."""
    if isinstance(value, bool):
        return None
    try:
        return as_float(value)
    except (TypeError, ValueError):
        return None


def parse_uris(text: str) -> list[str] | None:
    """Return the URIs of `<http://a> <http://b>`, or None if the text has another form."""
    words = text.split()
    if not words or not all(_URI.fullmatch(word) for word in words):
        return None
    return [word[1:-1] for word in words]


def parse_list(text: str) -> list[Any] | None:
    """Return the items of a list in JSON or Python syntax, or of URIs in angle brackets; None if it is no
    list."""
    text = text.strip()
    if text.startswith("<"):
        return parse_uris(text)
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, list) else None
    return None


# ---- the separator

# The second mark is the full-width semicolon of Chinese and Japanese keyboards. The comma comes last, because
# it is most likely part of a name.
SEPARATORS = (";", "；", "|", ",")

# Commas separate labels only if this share of the parts between commas also occurs in other cells. In lists
# of labels most parts do; the parts of "Arts, Crafts & Sewing" do not. A comma followed by a space needs
# more.
LEAST_WITH_SPACE, LEAST_WITHOUT = 0.3, 0.1
_RIVAL = 0.1  # another mark counts if it is in at least this share of the number of cells with a comma
_FEW = 5  # with fewer distinct cells and no space after commas, commas separate labels
_NO_MARKS = re.compile(r'&#?\w+;|"[^"]*"')  # marks in &amp; and in quoted names do not count


@dataclass(frozen=True)
class SeparatorChoice:
    """The separator, or `NO_SEPARATOR`, with an example cell and the reason."""

    separator: str  # a mark, or `NO_SEPARATOR`
    example: str
    why: str

    def __str__(self) -> str:
        number = counted(len(split_cell(self.example, self.separator)), "label")
        how = "one label each" if self.separator == NO_SEPARATOR else f"separated by '{self.separator}'"
        return f"{how}: '{self.example[:80]}' is {number} ({self.why})"


def decide_separator(cells: Iterable[Any], known: Collection[str] = ()) -> SeparatorChoice | None:
    """Return the separator of the cells, or None if no cell is a text with a usual separator.

    If label names are `known`, the mark that splits most cells into known names wins. Otherwise the mark in
    most cells wins; a comma wins only if the parts between commas also occur in other cells.
    """
    texts = Counter(cell for cell in cells if isinstance(cell, str) and parse_list(cell) is None)
    bare = {text: _NO_MARKS.sub("", text) for text in texts}
    marked = {mark: [text for text in texts if mark in bare[text]] for mark in SEPARATORS}
    marked = {mark: found for mark, found in marked.items() if found}
    if not marked:
        return None
    return _choose_by_names(marked, known) or _choose_by_cells(marked, texts)


def _choose_by_names(marked: Mapping[str, Sequence[str]], known: Collection[str]) -> SeparatorChoice | None:
    """Choose the mark that splits most cells into known names."""
    if not known:
        return None
    cells = list(dict.fromkeys(text for found in marked.values() for text in found))
    # Whole cells first, so that they win if both readings fit equally many cells.
    marks = (NO_SEPARATOR, *marked)
    fitting = {mark: [cell for cell in cells if _all_known(cell, mark, known)] for mark in marks}
    best = max(fitting, key=lambda mark: len(fitting[mark]))
    return SeparatorChoice(best, fitting[best][0], "labels of such names exist") if fitting[best] else None


def _all_known(cell: str, mark: str, known: Collection[str]) -> bool:
    names = split_cell(cell, mark)
    return all(name in known or name_and_weight(name)[0] in known for name in names)


def _choose_by_cells(marked: Mapping[str, Sequence[str]], texts: Mapping[str, int]) -> SeparatorChoice:
    """Choose by the number of cells with each mark and, for the comma, by the share of recurring parts."""
    numbers = {mark: sum(texts[cell] for cell in cells) for mark, cells in marked.items()}
    for mark in sorted(marked, key=lambda mark: -numbers[mark]):
        if mark != ",":
            return SeparatorChoice(mark, marked[mark][0], f"names seldom hold '{mark}'")
        again = _recurring_share(marked[mark], texts, mark)
        for other in (each for each in marked if each != mark):  # cells may list several names with commas
            rival = _recurring_share(marked[other], texts, other)
            if rival >= again and numbers[other] >= _RIVAL * numbers[mark]:
                why = f"{rival:.0%} of such parts are in other cells too; between commas {again:.0%} are"
                return SeparatorChoice(other, marked[other][0], why)
        share = f"{again:.0%} of the parts of such cells are in other cells too"
        if again >= _least_recurring(marked[mark], texts):
            return SeparatorChoice(mark, marked[mark][0], share)
    return SeparatorChoice(NO_SEPARATOR, marked[","][0], share)


def _recurring_share(cells: Sequence[str], texts: Mapping[str, int], mark: str) -> float:
    """Return the share of the parts of cells that also occur in another cell."""
    parts = {cell: set(split_cell(cell, mark)) for cell in texts}
    seen = Counter(part for found in parts.values() for part in found)
    of_cells = [part for cell in cells for part in parts[cell]]
    return sum(seen[part] > 1 for part in of_cells) / max(len(of_cells), 1)


def _least_recurring(cells: Sequence[str], texts: Mapping[str, int]) -> float:
    """Return the share of parts that must recur if commas separate labels."""
    if any('"' in cell for cell in cells):
        return 0.0  # if names with a comma are quoted, other commas separate labels
    if 2 * sum(", " in cell for cell in cells) > len(cells):
        return LEAST_WITH_SPACE
    often = len(cells) >= _FEW and sum(texts[cell] for cell in cells) >= 2 * len(cells)
    return LEAST_WITHOUT if often else 0.0  # cells that repeat often look like single names
