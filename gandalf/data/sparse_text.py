"""Read and write sparse matrices as text files.

The usual file has a header "rows columns" and lines of `index:value` pairs. The old single file has a header
"points features labels" and lines with both labels and features.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.files import TextBlock, first_line, read_blocks, written
from gandalf.data.matrix_builder import (
    FEATURE,
    INTEGER,
    LABEL,
    NUMBER,
    Column,
    Floats,
    Ints,
    MatrixBuilder,
    fit_rows,
    row_findings,
)
from gandalf.data.sentences import counted
from gandalf.data.unpack_limits import need_room
from gandalf.errors import DataError, Findings

_COUNT = re.compile(r"[0-9]{1,9}")
_INTEGER = re.compile(INTEGER.pattern.encode())
_NUMBER = re.compile(NUMBER.pattern.encode(), re.IGNORECASE)
_DIGITS = 40  # digits of an index that are read; Python refuses thousands, and 40 are far out of range
_ROWS_AT_ONCE = 1 << 16
_NEWLINE, _SPACE, _COLON = b"\n :"


def header_of(path: Path, numbers: int) -> list[int] | None:
    """Return the whole numbers of the first line, or None unless it has exactly `numbers` of them."""
    words = first_line(path).split()
    good = len(words) == numbers and all(_COUNT.fullmatch(word) for word in words)
    return [int(word) for word in words] if good else None


def read_sparse(path: Path, column: Column, findings: Findings) -> csr_array:
    """Read a "rows cols" file; a blank line is an empty row."""
    rows, columns = _need_header(path, ("rows", "columns"))
    matrix = MatrixBuilder(columns, column, path, findings)
    for block in _blocks_after_header(path, findings):
        _add_pairs(matrix, block)
    return _with_row_count(matrix.finish(), rows, path, findings)


def read_combined(path: Path, findings: Findings) -> tuple[csr_array, csr_array]:
    """Read an old "points features labels" file of `l1,l2 f:v f:v` lines; return features and targets."""
    rows, num_features, num_labels = _need_header(path, ("points", "features", "labels"))
    features = MatrixBuilder(num_features, FEATURE, path, findings)
    targets = MatrixBuilder(num_labels, LABEL, path, findings)
    for block in _blocks_after_header(path, findings):
        labels, pairs = _split_block(block)
        _add_labels(targets, labels)
        _add_pairs(features, pairs)
    body = _with_row_count(features.finish(), rows, path, findings)
    return body, fit_rows(targets.finish(), rows)


def write_sparse(matrix: csr_array, path: Path) -> None:
    """Write a "rows cols" file; values have the fewest digits that read back to the same float32."""
    with written(path) as file:
        file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n")
        for indices, values in rows_as_text(matrix):
            file.write(" ".join(map(":".join, zip(indices, values, strict=True))) + "\n")


def rows_as_text(matrix: csr_array) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the columns and the values of each row as text."""
    for start in range(0, matrix.shape[0], _ROWS_AT_ONCE):
        bounds = matrix.indptr[start : start + _ROWS_AT_ONCE + 1]
        indices = list(map(str, matrix.indices[bounds[0] : bounds[-1]].tolist()))
        values = shortest_texts(matrix.data[bounds[0] : bounds[-1]])
        offsets = (bounds - bounds[0]).tolist()
        for begin, end in pairwise(offsets):
            yield indices[begin:end], values[begin:end]


def shortest_texts(values: npt.ArrayLike) -> list[str]:
    """Return each value as text, with the fewest digits that read back to the same float32."""
    # Format only distinct values, because formatting is slow and most targets are 1.0.
    distinct, where = np.unique(np.asarray(values, dtype=np.float32), return_inverse=True)
    texts = distinct.astype(str).tolist()
    return [texts[i] for i in where.tolist()]


# ---- header and number of rows


def _need_header(path: Path, names: tuple[str, ...]) -> list[int]:
    found = header_of(path, len(names))
    if found is None:
        what = f"the first line must give the numbers of {_in_words(names)}, but is '{first_line(path)[:60]}'"
        remedy = f"begin the file with a line '{' '.join(names)}' of whole numbers"
        raise DataError(what, remedy=remedy, file=path, line=1, kind="missing-header")
    need_room(8 * max(found[1:]), path, "has a first line with sizes that take")  # 8 bytes for each column
    return found


def _in_words(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


def _blocks_after_header(path: Path, findings: Findings) -> Iterator[TextBlock]:
    """Yield the blocks of the file without the header line."""
    for block in read_blocks(path, findings):
        header = block.first_line == 1
        body = TextBlock(2, block.data.split(b"\n", 1)[1]) if header else block
        if body.data:
            yield body


def _with_row_count(matrix: csr_array, rows: int, path: Path, findings: Findings) -> csr_array:
    found = matrix.shape[0]
    # Ignore blank lines at the end beyond the rows of the header: editors append them.
    surplus_is_blank = found > rows and matrix.indptr[rows] == matrix.indptr[-1]
    if found != rows and not surplus_is_blank:
        what = f"the header says {counted(rows, 'row')}, but {counted(found, 'follows', 'follow')}"
        remedy = "correct the header, or copy the file again if it was cut short"
        row_findings(findings, found, rows).error("header-mismatch", what, remedy=remedy, file=path, line=1)
    return fit_rows(matrix, rows)


# ---- blocks of lines: NumPy parses a valid block at once; any other block is read line by line for messages


class _Parsed(NamedTuple):
    counts: Ints  # entries of each line
    indices: Ints
    values: Floats


def _add_pairs(matrix: MatrixBuilder, block: TextBlock) -> None:
    _add(matrix, block, _parse_pairs, _pairs_of_line)


def _add_labels(matrix: MatrixBuilder, block: TextBlock) -> None:
    _add(matrix, block, _parse_labels, _labels_of_line)


def _add(
    matrix: MatrixBuilder,
    block: TextBlock,
    at_once: Callable[[bytes], _Parsed | None],
    one_line: Callable[[MatrixBuilder, bytes, int], tuple[list[int], list[float]]],
) -> None:
    parsed = at_once(block.data)
    if parsed is not None:
        lines = range(block.first_line, block.first_line + len(parsed.counts))
        matrix.add_block(*parsed, lines)
        return
    for line, text in enumerate(block.data.split(b"\n")[:-1], start=block.first_line):
        matrix.add(*one_line(matrix, text, line), line)


def _parse_pairs(data: bytes) -> _Parsed | None:
    """Parse the `index:value` pairs of whole lines; return None if a pair is not valid."""
    codes = np.frombuffer(data, dtype=np.uint8)
    colons = np.flatnonzero(codes == _COLON)
    blank = codes <= _SPACE
    starts = np.flatnonzero(~blank & np.concatenate(([True], blank[:-1])))
    # Each word has exactly one colon, not at its start: word k starts before colon k, word k + 1 after it.
    if len(starts) != len(colons) or not (starts < colons).all() or not (colons[:-1] < starts[1:]).all():
        return None
    numbers = _numbers(data.replace(b":", b" "), 2 * len(colons))
    if numbers is None or not _are_whole(numbers[::2]):
        return None
    return _Parsed(_per_line(codes, colons), numbers[::2].astype(np.int64), _as_float32(numbers[1::2]))


def _parse_labels(data: bytes) -> _Parsed | None:
    """Parse the comma-separated labels of whole lines; return None if a label is not valid."""
    codes = np.frombuffer(data, dtype=np.uint8)
    inside = codes > _SPACE
    inside &= codes != ord(",")
    starts = np.flatnonzero(inside & np.concatenate(([True], ~inside[:-1])))
    numbers = _numbers(data.replace(b",", b" "), len(starts))
    if numbers is None or not _are_whole(numbers):
        return None
    return _Parsed(_per_line(codes, starts), numbers.astype(np.int64), np.ones(len(starts), dtype=np.float32))


def _numbers(data: bytes, expected: int) -> npt.NDArray[np.float64] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy's signal for text that is no number
        try:
            numbers = np.fromstring(data.decode("ascii"), dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None
    # Some versions of NumPy read blank text as one number.
    numbers = numbers if expected else numbers[:0]
    return numbers if len(numbers) == expected else None


def _are_whole(numbers: npt.NDArray[np.float64]) -> bool:
    return bool(np.all((np.abs(numbers) < 2**31) & (numbers == np.floor(numbers))))


def _as_float32(numbers: npt.NDArray[np.float64]) -> Floats:
    with np.errstate(over="ignore"):  # a value beyond float32 becomes inf, and the builder reports it
        return numbers.astype(np.float32)


def _per_line(codes: npt.NDArray[np.uint8], positions: npt.NDArray[np.intp]) -> Ints:
    """Count the byte positions, which ascend, in each line."""
    ends = np.searchsorted(positions, np.flatnonzero(codes == _NEWLINE))
    return np.diff(ends, prepend=0).astype(np.int64)


def _split_block(block: TextBlock) -> tuple[TextBlock, TextBlock]:
    """Cut every line at its first space: the labels before it, the features after it."""
    codes = np.frombuffer(block.data, dtype=np.uint8)
    newlines = np.flatnonzero(codes == _NEWLINE)
    begins = np.concatenate(([0], newlines[:-1] + 1))
    if _has_features_first(codes, begins):
        return _split_by_line(block)
    spaces = np.flatnonzero((codes == _SPACE) | (codes == _NEWLINE))
    cuts = spaces[np.searchsorted(spaces, begins)]  # the first space, or the line's end
    steps = np.zeros(len(codes) + 1, dtype=np.int8)
    steps[begins] += 1
    steps[cuts] -= 1
    of_labels = np.cumsum(steps[:-1], dtype=np.int8).astype(bool)
    labels, pairs = codes[of_labels | (codes == _NEWLINE)], codes[~of_labels]
    return TextBlock(block.first_line, labels.tobytes()), TextBlock(block.first_line, pairs.tobytes())


def _has_features_first(codes: npt.NDArray[np.uint8], begins: npt.NDArray[np.intp]) -> bool:
    """Return True if a line without labels lacks its leading space."""
    marks = np.flatnonzero((codes == _SPACE) | (codes == _NEWLINE) | (codes == _COLON))
    return bool((codes[marks[np.searchsorted(marks, begins)]] == _COLON).any())


def _split_by_line(block: TextBlock) -> tuple[TextBlock, TextBlock]:
    labels, pairs = [], []
    for line in block.data.split(b"\n")[:-1]:
        head, _, tail = line.partition(b" ")
        labels.append(b"" if b":" in head else head)
        pairs.append(line if b":" in head else tail)
    return tuple(TextBlock(block.first_line, b"\n".join([*part, b""])) for part in (labels, pairs))  # type: ignore[return-value]


def _pairs_of_line(matrix: MatrixBuilder, text: bytes, line: int) -> tuple[list[int], list[float]]:
    indices, values = [], []
    for word in text.split():
        index, colon, value = word.partition(b":")
        if not colon:
            what, remedy = f"'{_shown(word)}' is not an index:value pair", "separate pairs by spaces"
            matrix.report_line("bad-line", what, remedy, line)
        elif not _INTEGER.fullmatch(index) or not _NUMBER.fullmatch(value):
            _bad_number(matrix, word, line)
        else:
            indices.append(int(index[:_DIGITS]))
            values.append(float(value))
    return indices, values


def _labels_of_line(matrix: MatrixBuilder, text: bytes, line: int) -> tuple[list[int], list[float]]:
    indices = []
    for word in text.replace(b",", b" ").split():
        if _INTEGER.fullmatch(word):
            indices.append(int(word[:_DIGITS]))
        else:
            _bad_number(matrix, word, line)
    return indices, [1.0] * len(indices)


def _bad_number(matrix: MatrixBuilder, word: bytes, line: int) -> None:
    what = f"'{_shown(word)}' contains something other than a number"
    remedy = f"write whole numbers for {matrix.column.noun}s and decimal numbers for values"
    matrix.report_line("bad-number", what, remedy, line)


def _shown(word: bytes) -> str:
    return word[:40].decode("utf-8", "replace")
