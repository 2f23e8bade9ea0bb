"""Open CSV, TSV, JSON lines, Parquet and other files as a table: columns and a stream of rows."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gandalf.data.compression import is_packed
from gandalf.data.files import plain_name, read_lines
from gandalf.data.formats import annif, fasttext
from gandalf.data.formats.frames import Frame, decode_bytes, open_frame
from gandalf.data.formats.opened_table import OpenedTable, Opener, Row
from gandalf.data.formats.texts import clean
from gandalf.data.sentences import counted
from gandalf.data.unpack_limits import need_room
from gandalf.errors import DataError, Findings

_CELL_CHARACTERS = 1 << 24  # most characters of a CSV cell
ROW_BYTES = 64  # memory of a row in Python, without its cells


def open_table(path: Path | Frame, findings: Findings) -> OpenedTable:
    """Open a file by its content or suffix (without the suffix of a compression), or a table in memory."""
    if isinstance(path, Frame):
        return open_frame(path)
    read = _by_content(path) or _READERS.get(Path(plain_name(path)).suffix.lower())
    if read is None and annif.is_document(path):
        read = annif.open_document
    if read is None:
        what = "has a suffix that is not of a table"
        remedy = f"give a file whose name ends in {', '.join(_READERS)}"
        raise DataError(what, remedy=remedy, file=path, kind="unknown-source")
    return read(path, findings)


def is_table(path: Path) -> bool:
    """Return True if the file is a table by its suffix or its first line."""
    if not path.is_file():
        return False
    return Path(plain_name(path)).suffix.lower() in _READERS or _by_content(path) is not None


def _by_content(path: Path) -> Opener | None:
    """Return the reader of a line format, such as fastText's, by the first line; None for any other file."""
    suffix = Path(plain_name(path)).suffix.lower()
    if suffix not in (".txt", ".tsv", "") or not path.is_file():
        return None
    return next((read for fits, read in _LINES if fits(path)), None)


def table_names(stem: str) -> list[str]:
    """Return the possible file names of a table called `stem`."""
    return [f"{stem}{suffix}" for suffix in _READERS]


def tables_in(folder: Path) -> list[Path]:
    """Return all tables of a folder, without hidden files."""
    return sorted(path for path in folder.iterdir() if is_table(path) and not path.name.startswith("."))


def _open_csv(path: Path, findings: Findings) -> OpenedTable:
    lines = read_lines(path, findings)
    first = _header(lines, path)
    delimiter = next((mark for mark in ",;\t" if mark in first[1]), ",")
    texts = (f"{text}\n" for _, text in itertools.chain([first], lines))
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    try:
        columns = [clean(name) for name in _next_row(reader)]
    except csv.Error as error:
        remedy = "write the names of the columns, such as text,labels"
        raise DataError(
            f"the header is not valid CSV ({error})", remedy=remedy, file=path, line=1, kind="bad-line"
        ) from error
    return OpenedTable(path, columns, _csv_rows(reader, columns, path, findings), has_header=True)


def _header(lines: Iterator[tuple[int, str]], path: Path) -> tuple[int, str]:
    first = next(lines, None)
    if first is None:
        remedy = "write a line with the names of the columns, such as text,labels, and the rows below it"
        raise DataError("the file is empty", remedy=remedy, file=path, kind="empty-file")
    return first


def _next_row(reader: Any) -> list[str]:  # noqa: ANN401  the csv module does not name its type
    # The csv module refuses cells above 131,072 characters, which documents may have. Its limit belongs to
    # the whole process, so restore it after every row. A limit is still needed: after a quote that is never
    # closed, a cell would grow to the size of the file.
    limit = csv.field_size_limit(_CELL_CHARACTERS)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(limit)


def _csv_rows(reader: Any, columns: list[str], path: Path, findings: Findings) -> Iterator[tuple[int, Row]]:  # noqa: ANN401
    while True:
        line = reader.line_num + 1  # a quoted cell may hold newlines, so a row may be several lines
        try:
            cells = _next_row(reader)
        except StopIteration:
            return
        except csv.Error as error:
            remedy = "put cells with quotes or separators in double quotes, and double the quotes inside"
            findings.error(
                "bad-line", f"the line is not valid CSV ({error})", remedy=remedy, file=path, line=line
            )
            continue
        if cells:
            yield from _row(columns, cells, path, line, findings)


def _open_tsv(path: Path, findings: Findings) -> OpenedTable:
    lines = read_lines(path, findings)
    columns = [clean(name) for name in _tsv_cells(_header(lines, path)[1])]

    def rows() -> Iterator[tuple[int, Row]]:
        for line, text in lines:
            if text:
                yield from _row(columns, _tsv_cells(text), path, line, findings)

    return OpenedTable(path, columns, rows(), has_header=True)


def _tsv_cells(text: str) -> list[str]:
    # Most TSV files have no quoting; some writers quote whole cells that contain quotes.
    return [
        cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
        for cell in text.split("\t")
    ]


def _row(
    columns: list[str], cells: list[str], path: Path, line: int, findings: Findings
) -> Iterator[tuple[int, Row]]:
    if len(cells) == len(columns):
        yield line, dict(zip(columns, cells, strict=True))
        return
    what = f"the row has {counted(len(cells), 'cell')}, but the header has {len(columns)}"
    remedy = "put cells that hold the separator in double quotes"
    findings.error("bad-line", what, remedy=remedy, file=path, line=line)


def _open_json_lines(path: Path, findings: Findings) -> OpenedTable:
    rows = _json_rows(path, findings)
    first = next(rows, None)
    if first is None:
        remedy = "write one {...} on each line"
        raise DataError("the file has no JSON object", remedy=remedy, file=path, kind="empty-file")
    return OpenedTable(path, list(first[1]), itertools.chain([first], rows))


def _json_rows(path: Path, findings: Findings) -> Iterator[tuple[int, Row]]:
    for line, text in read_lines(path, findings):
        if line == 1 and text.lstrip().startswith("["):
            what = "the file is one JSON array, which cannot be streamed"
            remedy = "write one object on each line, for example with jq -c '.[]'"
            raise DataError(what, remedy=remedy, file=path, line=1, kind="bad-json")
        if not text.strip():
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield line, record
        else:
            what = f"the line is no JSON object: '{text[:60]}'"
            findings.error("bad-json", what, remedy="write one {...} on each line", file=path, line=line)


def _open_parquet(path: Path, findings: Findings) -> OpenedTable:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[parquet]'"
        raise DataError("reading Parquet needs pyarrow", file=path, remedy=remedy) from error
    if is_packed(path):
        remedy = "unpack it (gunzip or unzstd)"
        raise DataError("is compressed twice: Parquet files are compressed inside", file=path, remedy=remedy)
    # UnicodeDecodeError: a string that is not UTF-8
    damage = (pyarrow.ArrowException, OSError, UnicodeDecodeError)
    try:
        texts = _text_columns(pyarrow.parquet.read_metadata(path).schema)
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts)
    except damage as error:
        raise damaged_parquet(path) from error
    return OpenedTable(path, list(file.schema_arrow.names), _parquet_rows(file, path, damage))


def _parquet_rows(
    file: Any,  # noqa: ANN401  of an optional extra
    path: Path,
    damage: tuple[type[Exception], ...],
) -> Iterator[tuple[int, Row]]:
    number, total = itertools.count(1), 0
    batches = file.iter_batches(batch_size=1 << 14)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            total += _expanded_bytes(batch)
            need_room(total, path)
            rows = batch.to_pylist()
        except damage as error:
            raise damaged_parquet(path) from error
        for row in rows:
            yield next(number), {name: decode_bytes(value) for name, value in row.items()}


def _text_columns(schema: Any) -> list[str]:  # noqa: ANN401  of an optional extra
    """Return the columns of texts; read as dictionaries, a repeated text takes memory once."""
    columns = (schema.column(at) for at in range(len(schema.names)))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _expanded_bytes(batch: Any) -> int:  # noqa: ANN401  of an optional extra
    """Return the bytes of a batch as Python rows, in which each cell has its own text."""
    return int(batch.num_rows) * ROW_BYTES + sum(map(_column_bytes, batch.columns))


def _column_bytes(column: Any) -> int:  # noqa: ANN401  of an optional extra
    import pyarrow
    from pyarrow import compute, types

    if types.is_list(column.type) or types.is_large_list(column.type):
        return _column_bytes(column.flatten())
    if not isinstance(column, pyarrow.DictionaryArray):
        return int(column.nbytes)
    lengths = compute.cast(compute.binary_length(column.dictionary), pyarrow.int64())
    return int(compute.sum(lengths.take(column.indices.drop_null())).as_py() or 0)


def damaged_parquet(path: Path) -> DataError:
    """Return the error about a Parquet file that cannot be read."""
    remedy = "download or copy it again"
    return DataError("cannot be read as Parquet", file=path, remedy=remedy, kind="truncated-file")


_LINES: tuple[tuple[Callable[[Path], bool], Opener], ...] = (
    (fasttext.recognise, fasttext.open_lines),
    (annif.recognise_lines, annif.open_lines),
)
_READERS: dict[str, Opener] = {
    ".csv": _open_csv,
    ".tsv": _open_tsv,
    ".jsonl": _open_json_lines,
    ".ndjson": _open_json_lines,
    ".json": _open_json_lines,
    ".parquet": _open_parquet,
}
