"""A table as every reader hands it on: columns by name, and a stream of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gandalf.errors import DataError

Row = Mapping[str, Any]


class Table(NamedTuple):
    """A file's columns, and its rows with the line each starts in."""

    path: Path
    columns: list[str]
    rows: Iterator[tuple[int, Row]]
    has_header: bool = False  # the columns are what the first line says: if that is a row, they are no names


def find_column(table: Table, names: Sequence[str]) -> str | None:
    """The table's column of the first of these names it has, whatever the case of the letters."""
    columns = {column.casefold(): column for column in reversed(table.columns)}
    columns |= {column: column for column in table.columns}  # as it is written, before any other case
    keys = (name if name in columns else name.casefold() for name in names)
    found = next((columns[key] for key in keys if key in columns), None)
    if found is not None and table.columns.count(found) > 1:
        raise DataError(
            f"there are {table.columns.count(found)} columns called '{found}'",
            remedy="give each a name of its own",
            file=table.path,
            kind="duplicate-column",
        )
    return found
