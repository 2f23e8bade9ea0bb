"""Read new labels, which are added to a trained model without training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from gandalf.data.files import plain_name, read_lines
from gandalf.data.formats.label_cells import as_identifier, split_labels
from gandalf.data.formats.label_names import ID_COLUMNS, TEXT_COLUMNS
from gandalf.data.formats.opened_table import Row
from gandalf.data.formats.table_files import is_table, open_table, table_names
from gandalf.data.formats.texts import clean
from gandalf.errors import DataError, Findings

LINES = ".txt"  # one label a line
EXAMPLE_COLUMNS = ("examples", "example")
NEIGHBOUR_COLUMNS = ("neighbours", "neighbors", "neighbour", "neighbor")


@dataclass(frozen=True)
class NewLabel:
    """A new label: its text, texts that have it, similar known labels, and its place in a file."""

    text: str
    id: str | None = None
    examples: Sequence[str] = ()
    neighbours: Sequence[str | int] = ()  # ids or texts of known labels; integers are label numbers
    file: Path | None = None
    line: int | None = None

    def refused(self, what: str, remedy: str) -> DataError:
        """Return an error that names the place of this label."""
        return DataError(what, remedy=remedy, file=self.file, line=self.line, kind="bad-label")


def new_labels(
    texts: Sequence[str],
    ids: Sequence[str] | None = None,
    examples: Sequence[Sequence[str]] | None = None,
    neighbours: Sequence[Sequence[str | int]] | None = None,
) -> list[NewLabel]:
    """Make new labels from lists of equal length; the examples or neighbours of a label may be empty."""
    given = {"texts": texts, "ids": ids, "examples": examples, "neighbours": neighbours}
    for name, each in given.items():
        if isinstance(each, str) or (name in ("examples", "neighbours") and _holds_text(each)):
            raise DataError(
                f"{name} holds a string, but a list is expected", remedy="put the string in a list"
            )
        if name == "texts" and not all(isinstance(text, str) for text in texts):
            raise DataError("the text of a label is not a string", remedy="give strings")
        if each is not None and len(each) != len(texts):
            raise DataError(f"{name} has {len(each):,} entries, but there are {len(texts):,} texts")
    return [
        NewLabel(
            text,
            None if ids is None else ids[at],
            () if examples is None else examples[at],
            () if neighbours is None else neighbours[at],
        )
        for at, text in enumerate(texts)
    ]


def _holds_text(lists: Sequence[object] | None) -> bool:
    return any(isinstance(each, str) for each in lists or ())


def read_new_labels(path: Path, separator: str = ";") -> list[NewLabel]:
    """Read the new labels of a file: one label text on each line, or a table with a column of label texts.

    A table may also have the columns `id`, `examples` and `neighbours`. A cell holds several values as a
    list, or with a separator between them.
    """
    if not path.is_file():
        what = "there is no such file" if not path.exists() else "is not a file"
        raise DataError(what, remedy="give a .txt file with a label's text on each line", file=path)
    if Path(plain_name(path)).suffix.lower() == LINES:
        lines = read_lines(path, Findings())
        found = [NewLabel(clean(text), file=path, line=line) for line, text in lines if text.strip()]
    elif is_table(path):
        found = list(_read_table(path, separator))
    else:
        remedy = f"give a file whose name ends in {', '.join([LINES, *table_names('')])}"
        raise DataError("has an unknown suffix for a file of labels", remedy=remedy, file=path)
    if not found:
        raise DataError("holds no label", remedy="write one label text on each line", file=path)
    return found


def _read_table(path: Path, separator: str) -> Iterator[NewLabel]:
    for line, row in open_table(path, Findings()).rows:
        _refuse_misspelt(row, path, line)
        text = _cell(row, TEXT_COLUMNS)
        if text is not None and not isinstance(text, str):
            raise DataError("the label text is not a string", remedy="write a string", file=path, line=line)
        if text is None and not {str(name).casefold() for name in row} & {*TEXT_COLUMNS}:
            what = f"there is no column of label texts; the columns are: {', '.join(map(str, row)) or 'none'}"
            remedy = "name the column of label texts 'text'"
            raise DataError(what, remedy=remedy, file=path, line=line, kind="missing-column")
        yield NewLabel(
            as_identifier(text),
            as_identifier(_cell(row, ID_COLUMNS)) or None,
            _items(_cell(row, EXAMPLE_COLUMNS), separator, path, line),
            _items(_cell(row, NEIGHBOUR_COLUMNS), separator, path, line),
            path,
            line,
        )


def _cell(row: Row, names: Sequence[str]) -> Any:  # noqa: ANN401  a cell can hold anything
    """Return the first value that is not None in the columns `names`; JSON lines may lack columns."""
    folded = {str(name).casefold(): value for name, value in row.items()}
    return next((folded[name] for name in names if folded.get(name) is not None), None)


def _refuse_misspelt(row: Row, path: Path, line: int) -> None:
    """Refuse a column with a name similar to a known one; ignore all other unknown columns."""
    known = (*TEXT_COLUMNS, *ID_COLUMNS, *EXAMPLE_COLUMNS, *NEIGHBOUR_COLUMNS)
    for name in map(str, row):
        near = get_close_matches(name.casefold(), known, 1, cutoff=0.8)
        if near and name.casefold() not in known:
            what = f"the column {name!r} is not known"
            raise DataError(what, remedy=f"did you mean {near[0]!r}?", file=path, line=line, kind="bad-label")


def _items(cell: Any, separator: str, path: Path, line: int) -> tuple[str, ...]:  # noqa: ANN401
    if isinstance(cell, dict):
        what = "examples and neighbours must be lists of texts, but this is a JSON object"
        raise DataError(what, remedy='write ["one", "another"]', file=path, line=line, kind="bad-label")
    return tuple(as_identifier(item) for item in split_labels(cell, separator))
