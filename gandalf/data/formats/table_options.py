"""What may be said of a table: its columns, what separates labels, where label texts are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

from gandalf.data.formats.frames import Frame, as_frame, as_label_frame
from gandalf.errors import DataError, argument


class TableArguments(TypedDict, total=False):
    """The same as keywords of `gandalf.load` and `gandalf.train`."""

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
    """Columns and files of a table; what is None is guessed from the header and the folder."""

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    separator: str | None = None  # between the labels of a cell; " ": white space; "none": one a cell
    labels: Path | Frame | None = None  # label texts
    test: Path | Frame | None = None
    language: str | None = None  # of the label texts, where there are several
    include: Path | tuple[str, ...] | None = None  # labels of the label file that are used: no others
    exclude: Path | tuple[str, ...] | None = None  # labels of the label file that are not used

    def __post_init__(self) -> None:
        if self.separator == "":
            raise DataError(
                f"{argument('separator')} is empty",
                remedy="name a character, or leave it out to have it guessed",
            )
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
        """Name of an option that chooses among the labels of a label file, if one is given."""
        return next((name for name in ("language", "include", "exclude") if name in self.given), None)

    @property
    def names_columns(self) -> bool:
        """Whether anything was said that only a table can have."""
        said = (self.text_column, self.label_column, self.weight_column, self.separator)
        return any(value is not None for value in said)

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value is not None}

    def with_arguments(self, given: TableArguments) -> TableOptions:
        """Return the options with some of them changed."""
        unknown = [name for name in given if name not in OPTIONS]
        if unknown:
            remedy = f"there are {', '.join(OPTIONS)}"
            raise DataError(f"there is no option {unknown[0]!r} of a table", remedy=remedy)
        return replace(self, **given)


def need_no_choice(options: TableOptions, source: Path) -> None:
    """Refuse options that choose among the labels of a file where there is none."""
    if options.label_choice is not None:
        what = f"has no label file for {argument(options.label_choice)} to choose from"
        raise DataError(what, remedy=f"name one with {argument('labels')}", file=source)


OPTIONS = tuple(field.name for field in fields(TableOptions))
