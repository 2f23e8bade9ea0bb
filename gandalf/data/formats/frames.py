"""Read tables in memory: DataFrames, Arrow tables, datasets of Hugging Face, lists of dicts.

A table is recognised by its methods, so no library is imported. Only a table with nothing but Arrow's C
stream is read by pyarrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gandalf.data.formats.opened_table import OpenedTable, Row
from gandalf.errors import DataError, Findings

TRAIN, TEST = ("train", "trn"), ("test", "tst")  # names of the splits, for files and for keys

_KNOWN = (
    "a folder, a file, a DataFrame of pandas or polars, an Arrow table, a dataset of Hugging Face, a list of"
    " dicts, or a dict of these with the key 'train'"
)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table in memory, and its name in messages."""

    rows: Any  # of any library
    name: str

    @property
    def path(self) -> Path:
        """Return the name that messages show in place of a file."""
        return Path(f"<{self.name}>")


def name_in_messages(source: Path | Frame) -> Path:
    """Return the file, or the name of the table in memory, for messages."""
    return source.path if isinstance(source, Frame) else source


def need_file(source: Path | Frame | None) -> Path | None:
    """Return the file; raise a DataError for a table in memory, if only files can be read."""
    if isinstance(source, Frame):
        what = f"{source.path} is in memory, but all parts of this data set must be in files"
        raise DataError(what, remedy="write it into a file")
    return source


def as_frame(given: Any, name: str = "") -> Frame:  # noqa: ANN401  of any library
    """Return a table in memory as a Frame; raise a DataError if it is no table."""
    if isinstance(given, Frame):
        return given
    if _find_opener(given) is None:
        what = f"a {type(given).__name__} cannot be read as a table"
        raise DataError(what, remedy=f"give {_KNOWN}", kind="unknown-source")
    return Frame(given, name or type(given).__name__)


def as_label_frame(given: Any) -> Frame:  # noqa: ANN401  of any library
    """Return label texts as a Frame; they may be a table, a list of texts, or a dict of texts by id."""
    if isinstance(given, Mapping):
        return Frame([{"id": key, "text": text} for key, text in given.items()], "labels")
    if isinstance(given, list | tuple) and not isinstance(given[0] if given else None, Mapping):
        return Frame([{"text": text} for text in given], "labels")
    return as_frame(given, "labels")


def split_frames(given: Any, findings: Findings) -> tuple[Frame, Frame | None]:  # noqa: ANN401  of any library
    """Return the table of training points, and the table of test points or None."""
    if not isinstance(given, Mapping):
        return as_frame(given), None
    train, test = (next((key for key in names if key in given), None) for names in (TRAIN, TEST))
    if train is None:
        raise DataError(
            f"the {type(given).__name__} has no table 'train', but {', '.join(map(str, given)) or 'nothing'}",
            remedy="name a table 'train', or give a single table",
            kind="unknown-source",
        )
    others = [str(key) for key in given if key not in (train, test)]
    if others:
        what = f"{', '.join(map(repr, others))} of the {type(given).__name__} is not read"
        findings.note("unread-split", what, remedy="name it 'test' if it holds the test points")
    return as_frame(given[train], train), None if test is None else as_frame(given[test], test)


def open_frame(frame: Frame) -> OpenedTable:
    """Return the columns and rows of a table in memory; rows are counted from 0."""
    kind = _find_opener(frame.rows)
    assert kind is not None, "as_frame has checked it"
    columns, rows = kind(frame)
    named = ({name: python_value(value) for name, value in row.items()} for row in rows)
    return OpenedTable(frame.path, [str(column) for column in columns], enumerate(named))


def python_value(value: Any) -> Any:  # noqa: ANN401  a cell can hold anything
    """Return a cell in Python's own types: convert NumPy's types, and missing values to None."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return [python_value(item) for item in value]
    if hasattr(value, "tolist"):
        return python_value(value.tolist())
    # NaN and NaT differ from themselves; a comparison with the NA of pandas has no truth value.
    if type(value).__name__ == "NAType" or value != value:
        return None
    return decode_bytes(value)


def decode_bytes(value: Any) -> Any:  # noqa: ANN401  a cell can hold anything
    """Decode bytes that are UTF-8, which some writers store instead of text; keep other bytes."""
    if isinstance(value, list):
        return [decode_bytes(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


# ---- kinds of tables


Opened = tuple[Iterable[Any], Iterable[Row]]


def _find_opener(given: Any) -> Callable[[Frame], Opened] | None:  # noqa: ANN401
    """Return the function that opens this kind of table, or None if it is no table."""
    if isinstance(given, list | tuple):
        return _open_dicts if all(isinstance(row, Mapping) for row in given) else None
    return next((kind for able, kind in _KINDS if all(hasattr(given, name) for name in able)), None)


def _open_dicts(frame: Frame) -> Opened:
    columns = dict.fromkeys(name for row in frame.rows for name in row)
    if not columns:
        remedy = "give a dict for each point, such as {'text': ..., 'labels': [...]}"
        raise DataError("the list is empty", remedy=remedy, file=frame.path, kind="empty-file")
    return columns, frame.rows


def _open_pandas(frame: Frame) -> Opened:
    columns = [str(name) for name in frame.rows.columns]
    cells = frame.rows.itertuples(index=False, name=None)
    return columns, (dict(zip(columns, row, strict=True)) for row in cells)


def _open_polars(frame: Frame) -> Opened:
    return frame.rows.columns, frame.rows.iter_rows(named=True)


def _open_hub_dataset(frame: Frame) -> Opened:
    """Open a dataset of Hugging Face, and replace numbers of classes by their names."""
    rows = iter(frame.rows.with_format(None))
    first = next(rows, None)
    columns = frame.rows.column_names or list(first or ())
    names = {name: _class_names(kind) for name, kind in (frame.rows.features or {}).items()}
    all_rows = rows if first is None else itertools.chain([first], rows)
    return columns, _with_names(all_rows, {name: found for name, found in names.items() if found})


def _class_names(feature: Any) -> list[str] | None:  # noqa: ANN401
    found = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    return found if isinstance(found, list) else None


def _with_names(rows: Iterable[Row], names: Mapping[str, list[str]]) -> Iterator[Row]:
    def name(value: Any, known: list[str]) -> Any:  # noqa: ANN401  a class, or a list of them
        if isinstance(value, list):
            return [name(item, known) for item in value]
        # -1 stands for no label, for example in a test split without labels.
        return None if value is None or value < 0 else known[value]

    for row in rows:
        yield {**row, **{column: name(row[column], known) for column, known in names.items()}}


def _open_arrow(frame: Frame) -> Opened:
    try:
        import pyarrow
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[parquet]', or give a DataFrame or a list of dicts"
        raise DataError("reading an Arrow stream needs pyarrow", file=frame.path, remedy=remedy) from error
    stream = pyarrow.RecordBatchReader.from_stream(frame.rows)
    return stream.schema.names, (row for batch in stream for row in batch.to_pylist())


# The order matters: a DataFrame is also an Arrow stream, but with cells of mixed types the stream fails.
_KINDS: tuple[tuple[tuple[str, ...], Callable[[Frame], Opened]], ...] = (
    (("column_names", "features", "with_format"), _open_hub_dataset),
    (("columns", "iter_rows"), _open_polars),
    (("columns", "itertuples"), _open_pandas),
    (("__arrow_c_stream__",), _open_arrow),
)
