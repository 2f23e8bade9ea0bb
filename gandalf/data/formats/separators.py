"""What stands between the labels of a cell, decided on evidence: a comma may be part of a name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gandalf.data.formats.label_cells import NO_SEPARATOR, listed, name_and_weight, split_cell
from gandalf.data.sentences import counted

SEPARATORS = (";", "|", ",")  # in this order: a comma is the most likely to be part of a name

# Share of the parts of cells that must be in other cells too, or commas are part of names. In lists of labels
# most are; those of "Arts, Crafts & Sewing" are not. A comma with a space behind it needs more of them.
LEAST_WITH_SPACE, LEAST_WITHOUT = 0.3, 0.1
_RIVAL = 0.1  # cells with another mark, against those with a comma, for it to be more than a slip
_FEW = 5  # distinct cells; of fewer without a space, nothing tells against the comma
_NO_MARKS = re.compile(r'&#?\w+;|"[^"]*"')  # &amp; separates nothing, and what is in quotes is one name


@dataclass(frozen=True)
class Decision:
    """The separator, or that there is none, with a cell as an example and the evidence."""

    separator: str  # a mark, or `NO_SEPARATOR`
    example: str
    why: str

    def __str__(self) -> str:
        number = counted(len(split_cell(self.example, self.separator)), "label")
        said = "one label each" if self.separator == NO_SEPARATOR else f"separated by '{self.separator}'"
        return f"{said}: '{self.example[:80]}' is {number} ({self.why})"


def decide_separator(cells: Iterable[Any], known: Collection[str] = ()) -> Decision | None:
    """Return the usual separator that the cells bear out; None if they hold no text with one.

    Names that are `known` decide. Else it is the mark in most cells, the first of those in equally many; a
    comma only if the parts that it separates are in other cells too.
    """
    texts = Counter(cell for cell in cells if isinstance(cell, str) and listed(cell) is None)
    bare = {text: _NO_MARKS.sub("", text) for text in texts}
    marked = {mark: [text for text in texts if mark in bare[text]] for mark in SEPARATORS}
    marked = {mark: found for mark, found in marked.items() if found}
    if not marked:
        return None
    return _by_names(marked, known) or _by_cells(marked, texts)


def _by_names(marked: Mapping[str, Sequence[str]], known: Collection[str]) -> Decision | None:
    """Decide by the mark that splits the most cells into names that are known."""
    if not known:
        return None
    cells = list(dict.fromkeys(text for found in marked.values() for text in found))
    # Whole names first: they win where both readings fit as many cells.
    marks = (NO_SEPARATOR, *marked)
    fitting = {mark: [cell for cell in cells if _all_known(cell, mark, known)] for mark in marks}
    best = max(fitting, key=lambda mark: len(fitting[mark]))
    return Decision(best, fitting[best][0], "labels of such names exist") if fitting[best] else None


def _all_known(cell: str, mark: str, known: Collection[str]) -> bool:
    names = split_cell(cell, mark)
    return all(name in known or name_and_weight(name)[0] in known for name in names)


def _by_cells(marked: Mapping[str, Sequence[str]], texts: Mapping[str, int]) -> Decision:
    """Decide by how many cells hold each mark and, for the comma, by how often its parts recur."""
    numbers = {mark: sum(texts[cell] for cell in cells) for mark, cells in marked.items()}
    for mark in sorted(marked, key=lambda mark: -numbers[mark]):
        if mark != ",":
            return Decision(mark, marked[mark][0], f"names seldom hold '{mark}'")
        again = _recurring(marked[mark], texts, mark)
        for other in (each for each in marked if each != mark):  # names with commas, several to a cell
            rival = _recurring(marked[other], texts, other)
            if rival >= again and numbers[other] >= _RIVAL * numbers[mark]:
                why = f"{rival:.0%} of such parts are in other cells too; between commas {again:.0%} are"
                return Decision(other, marked[other][0], why)
        share = f"{again:.0%} of the parts of such cells are in other cells too"
        if again >= _least(marked[mark], texts):
            return Decision(mark, marked[mark][0], share)
    return Decision(NO_SEPARATOR, marked[","][0], share)


def _recurring(cells: Sequence[str], texts: Mapping[str, int], mark: str) -> float:
    """Return the share of the parts of the cells that are also in another cell, alone or with other parts."""
    parts = {cell: set(split_cell(cell, mark)) for cell in texts}
    seen = Counter(part for found in parts.values() for part in found)
    of_cells = [part for cell in cells for part in parts[cell]]
    return sum(seen[part] > 1 for part in of_cells) / max(len(of_cells), 1)


def _least(cells: Sequence[str], texts: Mapping[str, int]) -> float:
    """Share of parts that must recur for these cells to be lists."""
    if any('"' in cell for cell in cells):
        return 0.0  # who quotes a name with a comma means the other commas to separate
    if 2 * sum(", " in cell for cell in cells) > len(cells):
        return LEAST_WITH_SPACE
    often = len(cells) >= _FEW and sum(texts[cell] for cell in cells) >= 2 * len(cells)
    return LEAST_WITHOUT if often else 0.0  # the same cells again and again look like names
