"""Define the options of a table: its columns, the separator between labels, and the files beside it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from gandalf.data.formats.frames import Frame, as_frame, as_label_frame
from gandalf.errors import DataError, argument


class TableArguments(TypedDict, total=False):
    """The options as keywords of `gandalf.load` and `gandalf.train`."""

    text_column: str | None
    label_column: str | None
    weight_column: str | None
    separator: str | None
    labels: Any  # a path, a table, a list of texts, or a dict of texts by id
    test: Any  # a path or a table
    language: str | None
    include: Any  # a path, or a list of names
    exclude: Any


@dataclass(frozen=True)
class TableOptions:
    """Columns and files of a table; an option that is None is guessed from the header or the folder."""

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    separator: str | None = None  # between labels; " ": white space; "none": one label in a cell
    labels: Path | Frame | None = None  # label texts
    test: Path | Frame | None = None
    language: str | None = None  # language of the label texts, if there are several
    include: Path | tuple[str, ...] | None = None  # use only these labels of the label file
    exclude: Path | tuple[str, ...] | None = None  # do not use these labels of the label file

    def __post_init__(self) -> None:
        if self.separator == "":
            what = f"{argument('separator')} is empty"
            raise DataError(what, remedy="give a character, or leave it out to guess the separator")
        for name, as_table in (("labels", as_label_frame), ("test", as_frame)):
            given = getattr(self, name)
            if isinstance(given, str | PathLike):
                object.__setattr__(self, name, Path(given))
            elif given is not None:
                object.__setattr__(self, name, as_table(given))
        for name in ("include", "exclude"):
            given = getattr(self, name)
            if isinstance(given, str | PathLike):
                object.__setattr__(self, name, Path(given))
            elif given is not None:
                object.__setattr__(self, name, tuple(map(str, given)))

    @property
    def label_choice(self) -> str | None:
        """Return the name of a given option that chooses among the labels of a label file, or None."""
        return next((name for name in ("language", "include", "exclude") if name in self.given), None)

    @property
    def names_columns(self) -> bool:
        """Return True if an option is given that only a table can have."""
        columns = (self.text_column, self.label_column, self.weight_column, self.separator)
        return any(value is not None for value in columns)

    @property
    def given(self) -> dict[str, Any]:
        """Return the given options by name."""
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}

    def with_arguments(self, given: TableArguments) -> TableOptions:
        """Return the options with some of them changed."""
        unknown = [name for name in given if name not in OPTIONS]
        if unknown:
            remedy = f"there are {', '.join(OPTIONS)}"
            raise DataError(f"there is no option {unknown[0]!r} of a table", remedy=remedy)
        return replace(self, **given)


def refuse_label_choice(options: TableOptions, source: Path) -> None:
    """Raise a DataError if an option chooses labels, because there is no label file."""
    if options.label_choice is not None:
        what = f"has no label file for {argument(options.label_choice)} to choose from"
        raise DataError(what, remedy=f"give one with {argument('labels')}", file=source)


OPTIONS = tuple(field.name for field in fields(TableOptions))
