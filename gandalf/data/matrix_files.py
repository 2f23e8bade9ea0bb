"""Read sparse matrices of unknown origin, and check them before anything computes with them.

SciPy's compiled loops trust the pointers of a compressed matrix. With a wrong pointer they read and write
beyond the arrays, and the process crashes without a message.
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import IO, Any
from zipfile import is_zipfile

import numpy as np
from scipy.sparse import csc_array, csr_array, load_npz

from gandalf.data.unpack_limits import check_npz, need_room
from gandalf.errors import DataError

REMEDY = "write it with scipy.sparse.save_npz, or copy it again if it was cut short"

_COMPRESSED = {"csr": csr_array, "csc": csc_array}
_CHECKED_BY_SCIPY = {"csr", "csc", "bsr"}
_REAL = "biuf"  # NumPy's letters for booleans, integers and floating point


def read_npz(path: Path, *, columns: bool = True) -> Any:  # noqa: ANN401  SciPy's forms share no class
    """Read a file of `scipy.sparse.save_npz` in its stored format, and check the matrix.

    `columns=False` skips the check of the column indices of a CSR matrix; then the caller checks them.
    """
    try:
        with open(path, "rb") as file:
            if not is_zipfile(file):
                raise ValueError("it is no zip file")
            check_npz(path)
            file.seek(0)
            matrix = _read_stored(file, path)
    except DataError:
        raise
    except Exception as error:  # zip, NumPy and SciPy raise exceptions of many types on damaged files
        reason = (str(error) or type(error).__name__).splitlines()[0][:120]
        what = f"cannot be read as a SciPy sparse matrix ({reason})"
        raise DataError(what, remedy=REMEDY, file=path, kind="truncated-file") from error
    check_sparse(matrix, path, columns=columns)
    return matrix


def check_sparse(matrix: Any, file: Path | None = None, *, columns: bool = True) -> None:  # noqa: ANN401  any form
    """Raise a DataError if values are not real numbers, or pointers or indices lead outside the matrix."""
    if matrix.ndim != 2:
        raise DataError(f"the sparse matrix has {matrix.ndim} dimensions, not 2", remedy=REMEDY, file=file)
    if matrix.dtype.kind not in _REAL:
        what = f"the sparse matrix holds {matrix.dtype} values"
        raise DataError(what, remedy="write real numbers", file=file, kind="bad-number")
    try:
        if matrix.format in _CHECKED_BY_SCIPY:
            with_columns = columns or matrix.format != "csr"
            copy(matrix).check_format(full_check=with_columns)  # a copy: SciPy's check may exchange arrays
            if (np.diff(matrix.indptr) < 0).any():  # SciPy checks this only if the last pointer is above 0
                raise ValueError("indptr must be a non-decreasing sequence")
        if matrix.format == "coo":
            _check_coordinates(matrix)
    except ValueError as error:
        remedy = "build it again" if file is None else REMEDY
        raise DataError(
            f"the sparse matrix is damaged ({error})", remedy=remedy, file=file, kind="truncated-file"
        ) from error


def _read_stored(file: IO[bytes], path: Path) -> Any:  # noqa: ANN401  any of SciPy's forms
    with np.load(file, allow_pickle=False) as parts:
        sizes = np.atleast_1d(parts["shape"]).tolist()
        pointers = 8 * max(sizes, default=0)  # 8 bytes for each row
        need_room(pointers, path, "has a shape that takes")
        make = _COMPRESSED.get(_format_name(parts["format"].item()))
        if make is not None:
            return _read_compressed(make, parts)
    file.seek(0)
    return load_npz(file)


def _read_compressed(make: Any, parts: Any) -> Any:  # noqa: ANN401  SciPy's class, NumPy's open archive
    """Read a CSR or CSC matrix. SciPy's reader would silently drop entries that no pointer covers."""
    data, indices, indptr, shape = (parts[name] for name in ("data", "indices", "indptr", "shape"))
    if any(part.ndim != 1 or part.dtype.kind not in "iu" for part in (indices, indptr, shape)):
        raise ValueError("indices, pointers or shape are not lists of integers")
    if len(indptr) == 0 or not indptr[-1] == len(indices) == len(data):
        raise ValueError("the pointers do not end where the entries do")
    return make((data, indices, indptr), shape=tuple(shape.tolist()))


def _format_name(text: str | bytes) -> str:
    return text.decode("ascii") if isinstance(text, bytes) else text  # versions of SciPy write either


def _check_coordinates(matrix: Any) -> None:  # noqa: ANN401  SciPy's coo_array or coo_matrix
    for indices, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
        if len(indices) != len(matrix.data):
            raise ValueError("the numbers of indices and values differ")
        if len(indices) and not 0 <= indices.min() <= indices.max() < size:
            raise ValueError("an entry lies outside the matrix")
