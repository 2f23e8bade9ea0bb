"""Build a sparse matrix row by row, and check its entries block by block."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.sentences import there_are
from gandalf.errors import Findings, Severity

NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
INTEGER = re.compile(r"[+-]?[0-9]+")

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_PENDING_ROWS = 1 << 16
_SHOWN_DIGITS = 30  # of a number in a message


@dataclass(frozen=True)
class Column:
    """The noun for a column in messages, True if values may be negative, and perhaps texts of columns."""

    noun: str
    signed: bool
    texts: Sequence[str] | None = None

    def called(self, index: int) -> str:
        """Return what messages call a column: its number, and its text if that is known."""
        known = "" if self.texts is None else f" '{self.texts[index][:60]}'"
        return f"{self.noun} {index}{known}"


LABEL = Column("label", signed=False)
FEATURE = Column("feature", signed=True)


class MatrixBuilder:
    """Collect rows of (column, value) pairs into flat arrays that grow in place.

    An entry with a column out of range, a value that is no finite number, or a negative target is reported as
    an error and left out. A zero is left out silently. If a column stands twice in a row, a warning is
    reported and the larger value is kept.
    """

    def __init__(self, columns: int | None, column: Column, file: Path, findings: Findings) -> None:
        self.columns, self.column, self.file, self.findings = columns, column, file, findings
        self._indices, self._values = array("i"), array("f")
        self._counts = array("q")  # entries of each row
        self._pending_indices, self._pending_values = array("q"), array("d")
        self._pending_counts, self._pending_lines = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._counts) + len(self._pending_counts)

    def add(self, indices: Sequence[int], values: Sequence[float] | None, line: int) -> None:
        """Append one row. If it holds anything but numbers, append an empty row and raise TypeError."""
        start = len(self._pending_indices)
        values = [1.0] * len(indices) if values is None else values
        try:
            if bool in map(type, indices) or bool in map(type, values):
                raise TypeError("Python treats True as 1, but True is no label number and no value")
            try:
                self._set_pending_row(start, indices, values)
            except OverflowError:
                self._set_pending_row(start, *self._drop_huge_indices(indices, values, line))
        except TypeError:
            self._set_pending_row(start, (), ())
            raise
        finally:
            self._pending_counts.append(len(self._pending_indices) - start)
            self._pending_lines.append(line)
        if len(self._pending_counts) >= _PENDING_ROWS:
            self._flush()

    def add_block(self, counts: Ints, indices: Ints, values: Floats, lines: Sequence[int] | None) -> None:
        """Append many rows: row r has `counts[r]` entries and stands in line `lines[r]` of the file."""
        self._flush()
        self._append(counts, indices, values, lines)

    def report_line(self, kind: str, what: str, remedy: str, line: int) -> None:
        """Report an error in a line of the file."""
        self.findings.error(kind, what, remedy=remedy, file=self.file, line=line)

    def _drop_huge_indices(
        self, indices: Sequence[int], values: Sequence[float], line: int
    ) -> tuple[list[int], list[float]]:
        """Return the pairs whose column fits into 64 bits; report the other pairs."""
        kept = []
        for index, value in zip(indices, values, strict=True):
            if abs(index) < 2**63:
                kept.append((index, as_float(value)))
            else:
                self._report_outside(_abbreviated(index), [line], 0)
        return [index for index, _ in kept], [value for _, value in kept]

    def _report_outside(self, index: str, lines: Sequence[int] | None, row: int) -> None:
        noun = self.column.noun
        what = f"{noun} {index} is out of range"
        if self.columns is not None:
            what += f": {there_are(self.columns, noun)}, counted from 0"
        remedy = f"correct the {noun}, or the {noun} file or header that gives their number"
        self._report("error", "index-out-of-range", what, remedy, lines, row)

    def _set_pending_row(self, start: int, indices: Sequence[int], values: Sequence[float]) -> None:
        del self._pending_indices[start:], self._pending_values[start:]
        self._pending_indices.extend(indices)
        self._pending_values.extend(values)

    def _append(self, counts: Ints, indices: Ints, values: Floats, lines: Sequence[int] | None) -> None:
        rows = np.repeat(np.arange(len(counts)), counts)  # shape: (nnz,)
        keep = self._valid_entries(rows, indices, values, lines)
        if not keep.all():
            rows, indices, values = rows[keep], indices[keep], values[keep]
        rows, indices, values = self._without_duplicates(rows, indices, values, lines)
        self._indices.frombytes(indices.astype(np.int32).tobytes())
        self._values.frombytes(values.astype(np.float32).tobytes())
        self._counts.frombytes(np.bincount(rows, minlength=len(counts)).astype(np.int64).tobytes())

    def finish(self, columns: int | None = None) -> csr_array:
        """Return the matrix; `columns` is needed if the constructor did not get it."""
        self._flush()
        width = self.columns if columns is None else columns
        assert width is not None, "the number of columns must be known by now"
        counts = np.asarray(self._counts)
        dtype = np.int32 if len(self._indices) < 2**31 else np.int64
        indptr = np.zeros(len(counts) + 1, dtype=dtype)
        np.cumsum(counts, out=indptr[1:])
        # The matrix uses the buffers without a copy, so the peak of memory is about the size of the result.
        indices = np.asarray(self._indices).astype(dtype, copy=False)
        values = np.asarray(self._values)
        matrix = csr_array((values, indices, indptr), shape=(len(counts), width))
        matrix.has_canonical_format = True
        return matrix

    def _flush(self) -> None:
        if not self._pending_counts:
            return
        counts, lines = np.array(self._pending_counts), self._pending_lines.tolist()
        with np.errstate(over="ignore"):  # above float32 a value becomes inf, which `_valid_entries` reports
            values = np.array(self._pending_values, dtype=np.float64).astype(np.float32)
        self._append(counts, np.array(self._pending_indices, dtype=np.int64), values, lines)
        self._pending_indices, self._pending_values = array("q"), array("d")
        self._pending_counts, self._pending_lines = array("q"), array("q")

    def _valid_entries(self, rows: Ints, indices: Ints, values: Floats, lines: Sequence[int] | None) -> Mask:
        """Return a mask of the valid entries; report the others."""
        outside = indices < 0
        if self.columns is not None:
            outside |= indices >= self.columns
        odd = ~np.isfinite(values)
        negative = np.zeros_like(odd) if self.column.signed else values < 0
        for at in np.flatnonzero(outside):
            self._report_outside(str(indices[at]), lines, rows[at])
        for at in np.flatnonzero(odd & ~outside):
            called = self.column.called(indices[at])
            what = f"the value of {called} is {values[at]}, which is not a finite number"
            remedy = "write a number or leave the entry out"
            self._report("error", "nan", what, remedy, lines, rows[at])
        for at in np.flatnonzero(negative & ~odd & ~outside):
            called = self.column.called(indices[at])
            what = f"the value of {called} is {values[at]:g}, and targets cannot be negative"
            remedy = "leave the entry out, or give a value above 0"
            self._report("error", "value-out-of-range", what, remedy, lines, rows[at])
        return np.asarray(~(outside | odd | negative) & (values != 0), dtype=bool)

    def _without_duplicates(
        self, rows: Ints, indices: Ints, values: Floats, lines: Sequence[int] | None
    ) -> tuple[Ints, Ints, Floats]:
        """Sort each row by column; if a column stands twice, keep the larger value."""
        if _strictly_increasing(rows, indices):
            return rows, indices, values
        order = np.lexsort((indices, rows))
        rows, indices, values = rows[order], indices[order], values[order]
        repeated = (rows[1:] == rows[:-1]) & (indices[1:] == indices[:-1])
        if not repeated.any():
            return rows, indices, values
        for at in np.flatnonzero(repeated):
            noun = self.column.noun
            what = f"{self.column.called(indices[at])} stands twice in the row; the larger value is used"
            self._report("warning", f"duplicate-{noun}", what, "write it once", lines, rows[at])
        first = np.flatnonzero(np.concatenate(([True], ~repeated)))
        return rows[first], indices[first], np.maximum.reduceat(values, first)

    def _report(
        self, severity: Severity, kind: str, what: str, remedy: str, lines: Sequence[int] | None, row: int
    ) -> None:
        """Report a finding with its line, or with its row (from 0) if the file has no lines."""
        what = f"row {row}: {what}" if lines is None else what
        line = None if lines is None else int(lines[int(row)])
        self.findings.add(severity, kind, what, remedy=remedy, file=self.file, line=line)


def checked_matrix(found: csr_array, column: Column, file: Path, findings: Findings) -> csr_array:
    """Check a SciPy matrix that was read from `file` as `MatrixBuilder` checks rows of text."""
    rows = MatrixBuilder(found.shape[1], column, file, findings)
    counts, indices = np.diff(found.indptr).astype(np.int64), found.indices.astype(np.int64)
    rows.add_block(counts, indices, found.data.astype(np.float32), None)
    return rows.finish()


def as_float(value: Any) -> float:  # noqa: ANN401  a number of any size, or a text
    """Convert a number or its text to float; an integer that is too large becomes infinity."""
    if isinstance(value, str) and NUMBER.fullmatch(value.strip()) is None:
        raise ValueError(f"{value!r} is no number")  # float() would accept 1_0 and digits of other scripts
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value > 0 or -1)


def row_findings(findings: Findings, found: int, expected: int) -> Findings:
    """Return `findings`, or strict ones if far fewer rows were found than expected."""
    # A damaged header can announce billions of rows. Filling them up would take all memory.
    return findings if expected <= 2 * found + 100 else Findings(strict=True)


def fit_rows(matrix: csr_array, rows: int) -> csr_array:
    """Return the matrix with exactly `rows` rows: cut it, or append empty rows."""
    if matrix.shape[0] == rows:
        return matrix
    indptr = matrix.indptr[: rows + 1]
    indptr = np.concatenate((indptr, np.full(rows + 1 - len(indptr), indptr[-1], dtype=indptr.dtype)))
    end = indptr[-1]
    return csr_array((matrix.data[:end], matrix.indices[:end], indptr), shape=(rows, matrix.shape[1]))


def _abbreviated(number: int) -> str:
    digits = str(number)
    return digits if len(digits) <= _SHOWN_DIGITS else f"{digits[:_SHOWN_DIGITS]}..."


def _strictly_increasing(rows: Ints, indices: Ints) -> bool:
    return bool(np.all((rows[1:] > rows[:-1]) | (indices[1:] > indices[:-1])))
