"""Read fastText's format: lines such as `__label__hardware __label__urgent printer on fire`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gandalf.data.files import first_line, read_lines
from gandalf.data.formats.opened_table import OpenedTable, Row
from gandalf.errors import Findings

PREFIX = "__label__"


def recognise(path: Path) -> bool:
    """Return True if the file begins with a label."""
    return first_line(path).startswith(PREFIX)


def open_lines(path: Path, findings: Findings) -> OpenedTable:
    """Return the lines as rows: words with the prefix are labels, at any place; the other words are the
    text."""

    def rows() -> Iterator[tuple[int, Row]]:
        for line, content in read_lines(path, findings):
            words = content.split()
            labels = [word.removeprefix(PREFIX) for word in words if word.startswith(PREFIX)]
            text = " ".join(word for word in words if not word.startswith(PREFIX))
            if words:
                yield line, {"text": text, "labels": labels}

    return OpenedTable(path, ["text", "labels"], rows())
