"""Read the input of predictions: one text, a file of texts, or the test split of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scipy.sparse import csr_array

from gandalf.data.dataset import Splits
from gandalf.data.files import plain_name, read_lines
from gandalf.data.formats.label_cells import as_identifier
from gandalf.data.formats.opened_table import OpenedTable, find_column
from gandalf.data.formats.table_columns import ID_COLUMNS, TEXT_COLUMNS
from gandalf.data.formats.table_files import open_table, table_names
from gandalf.data.formats.texts import Texts, clean
from gandalf.data.load import bundled
from gandalf.errors import DataError, Findings
from gandalf.progress import track

if TYPE_CHECKING:  # a text alone needs no PyTorch
    from gandalf.model import Part

CHUNK = 8_192  # texts in a chunk
LINES = ".txt"  # ending of files with one text on each line

Item = TypeVar("Item")

_SUFFIXES = (LINES, *table_names(""))
_PATH_STARTS = ("/", "./", "../", "~/")


@dataclass(frozen=True)
class InputChunk:
    """Consecutive texts of the input, with their ids and excluded pairs."""

    texts: list[str]
    ids: list[str] | None = None  # ids of the texts in the input
    exclude: csr_array | None = None  # excluded pairs; shape: (len(texts), L)


def is_text(given: str) -> bool:
    """Return True if the argument is a text, False if it names an existing file, folder or bundled set.

    If it looks like a path and nothing exists there, raise a DataError: a mistyped name must not be
    predicted as a text.
    """
    if given in bundled() or _exists(given):
        return False
    path_like = "/" in given and not any(letter.isspace() for letter in given)
    if path_like or given.startswith(_PATH_STARTS) or _suffix(given) in _SUFFIXES:
        raise DataError(
            f"there is no file or folder {given!r}",
            remedy="correct the name, or put the text itself into a .txt file, one text a line",
            kind="unknown-source",
        )
    return True


def is_text_file(path: Path) -> bool:
    """Return True if the path is a file whose name ends like a file of lines or a table."""
    return path.is_file() and _suffix(path.name) in _SUFFIXES


def texts_of_file(
    path: Path, text_column: str | None = None, usual: str | None = None
) -> Iterator[InputChunk]:
    """Yield the texts of a file in chunks; `usual` is the text column of the model's training table."""
    if _suffix(path.name) != LINES:
        yield from _texts_of_table(open_table(path, Findings()), text_column, usual)
        return
    if text_column is not None:
        what = "holds one text a line, and --text-column names a column of a table"
        raise DataError(what, remedy="leave it out", file=path)
    for texts in _chunked(clean(line) for _, line in read_lines(path, Findings())):
        yield InputChunk(texts)


def texts_of_test_split(splits: Splits, model: Part) -> Iterator[InputChunk]:
    """Yield the test points in their order, with their excluded pairs."""
    test = splits.test
    if test is None or test.texts is None:
        missing = "test split" if test is None else "texts"
        raise DataError(f"{splits.name!r} has no {missing} to predict", remedy="give a file of texts")
    check_labels(splits, model, "a file of texts")
    starts = range(0, len(test), CHUNK)
    for start in track(starts, "predicting") if len(starts) > 1 else starts:
        rows = slice(start, start + CHUNK)
        yield InputChunk(
            list(test.texts[rows]),
            None if test.ids is None else list(test.ids[rows]),
            None if test.exclude is None else test.exclude[rows],
        )


def _texts_of_table(table: OpenedTable, named: str | None, usual: str | None) -> Iterator[InputChunk]:
    text, id = columns_of(table, named, usual)
    for rows in _chunked(table.rows):
        texts = Texts(table.path, Findings())
        for line, row in rows:
            texts.add_cell(row.get(text), line)
        ids = None if id is None else [as_identifier(row.get(id)) for _, row in rows]
        yield InputChunk(texts.cleaned, ids)


def columns_of(table: OpenedTable, named: str | None, usual: str | None = None) -> tuple[str, str | None]:
    """Return the columns of texts and ids: the text column is `named`, else `usual`, else a common name."""
    guessed = TEXT_COLUMNS if usual is None else (usual, *TEXT_COLUMNS)
    text = find_column(table, guessed if named is None else (named,))
    if text is None:
        called = "text column known by its name" if named is None else f"column '{named}'"
        raise DataError(
            f"there is no {called}; the columns are: {', '.join(table.columns) or 'none'}",
            remedy="name it with --text-column",
            file=table.path,
            kind="missing-column",
        )
    return text, find_column(table, ID_COLUMNS)


def check_labels(splits: Splits, model: Part, instead: str | None = None) -> None:
    """Refuse data with other labels than the model: label 7 of the data must be label 7 of the model.

    `instead` names, for the message, what else the user could give.
    """
    labels = splits.train.num_labels
    remedy = "give the data that the model was trained on" + ("" if instead is None else f", or {instead}")
    if labels != model.num_labels:
        what = f"{splits.name!r} has {labels:,} labels, and the model {model.num_labels:,}"
        from gandalf.model.added_labels import count_added  # imported here to start quickly

        if count_added(model.config) and labels == model.num_labels - count_added(model.config):
            what += f", {count_added(model.config):,} of them added later"
            first = "" if instead is None else f"{instead}, or "
            remedy = f"give {first}the model as it was before labels were added"
        raise DataError(what, remedy=remedy)
    texts = splits.train.label_texts
    if texts is None:
        return
    same = sum(map(str.__eq__, texts, model.label_texts))
    if 2 * same < labels:  # some label texts may have been corrected since the training
        what = f"{splits.name!r} has other labels than the model: {same:,} of {labels:,} texts are the same"
        raise DataError(what, remedy=remedy)


def _chunked(items: Iterable[Item]) -> Iterator[list[Item]]:
    items = iter(items)
    while chunk := list(islice(items, CHUNK)):
        yield chunk


def _suffix(name: str) -> str:
    return Path(plain_name(Path(name))).suffix.lower() if name.strip() else ""


def _exists(given: str) -> bool:
    try:
        return bool(given.strip()) and Path(given).exists()
    except (OSError, ValueError):  # the text is too long for a path, or holds a zero byte
        return False
