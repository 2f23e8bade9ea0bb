"""What a user can say about a table that its header does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TableOptions:
    """Columns and files of a table; what is None is guessed from the header and the folder."""

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    separator: str | None = None  # between the labels of one cell; " " is any white space
    labels: Path | None = None  # label texts
    test: Path | None = None

    @property
    def names_columns(self) -> bool:
        """Whether anything was said that only a table can have."""
        said = (self.text_column, self.label_column, self.weight_column, self.separator)
        return any(value is not None for value in said)
