"""Define `OpenedTable`, which all readers of tables return: names of columns, and a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gandalf.errors import DataError, Findings

Row = Mapping[str, Any]


class OpenedTable(NamedTuple):
    """The columns of a file, and its rows with the line in which each starts."""

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, Row]]
    has_header: bool = False  # the columns come from the first line, which may be a row by mistake


Opener = Callable[[Path, Findings], OpenedTable]


def find_column(table: OpenedTable, names: Sequence[str]) -> str | None:
    """Return the column with the first of these names, or None; an exact match wins over another case."""
    columns = {column.casefold(): column for column in reversed(table.columns)}
    columns |= {column: column for column in table.columns}
    keys = (name if name in columns else name.casefold() for name in names)
    found = next((columns[key] for key in keys if key in columns), None)
    if found is not None and table.columns.count(found) > 1:
        what = f"there are {table.columns.count(found)} columns called '{found}'"
        raise DataError(what, remedy="give each a different name", file=table.path, kind="duplicate-column")
    return found
