"""Read word vectors from text files (GloVe, word2vec, fastText's `.vec`): a word and its numbers on each
line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from gandalf.data.files import first_line, read_lines
from gandalf.data.unpack_limits import need_room
from gandalf.errors import DataError, Findings

REMEDY = "download or copy it again, or name a text file of word vectors"


def read_vector_file(
    path: Path, names: Sequence[str]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the vector of each name, and a mask of the names found; a different case matches as second
    choice."""
    stated, columns = _read_size(path)
    wanted = {name: row for row, name in enumerate(names)}
    vectors = np.zeros((len(names), columns), dtype=np.float32)
    found, exact = np.zeros((2, len(names)), dtype=bool)
    count = 0
    for number, line in read_lines(path, Findings()):
        if number == 1 and stated is not None:
            continue
        count += 1
        word, numbers = _split_line(line, columns, path, number)
        row = wanted.get(word, -1)
        same = row >= 0
        if not same:
            row = wanted.get(word.lower(), -1)
        if row >= 0 and not exact[row] and (same or not found[row]):
            vectors[row] = _numbers(numbers, path, number)
            found[row], exact[row] = True, same
    if stated is not None and count < stated:
        what = f"ends after {count:,} vectors, but its first line says {stated:,}"
        raise DataError(what, file=path, remedy=REMEDY, kind="truncated-file")
    return vectors, found


def _read_size(path: Path) -> tuple[int | None, int]:
    """Return the number of vectors, or None if there is no header, and the numbers in each vector."""
    fields = first_line(path).rstrip(" ").split(" ")
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        count, columns = int(fields[0]), int(fields[1])
        need_room(2 * count * columns, path, "says that it has")  # a number and a space for each
        return count, columns
    if len(fields) < 2:
        raise DataError("is no text file of word vectors", file=path, line=1, remedy=REMEDY)
    return None, len(fields) - 1


def _split_line(line: str, columns: int, path: Path, number: int) -> tuple[str, list[str]]:
    """Return the word of a line, which may contain spaces, and the fields of its numbers."""
    word, *numbers = line.rstrip(" ").rsplit(" ", columns)
    if len(numbers) < columns:
        _refuse(f"has {len(numbers)} numbers after the word, but {columns} are expected", path, number)
    if " " in word and _is_number(word.rsplit(" ", 1)[1]):
        _refuse(f"has more than the {columns} numbers expected after the word", path, number)
    return word, numbers


def _numbers(fields: list[str], path: Path, line: int) -> npt.NDArray[np.float32]:
    try:
        vector = np.array(fields, dtype=np.float64)
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        _refuse(f"has '{wrong[:40]}', but a number is expected", path, line)
    if not np.isfinite(vector).all() or np.abs(vector).max(initial=0) > np.finfo(np.float32).max:
        _refuse("has a number that is not finite", path, line)
    return vector.astype(np.float32)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _refuse(what: str, path: Path, line: int) -> NoReturn:
    raise DataError(f"the line {what}", file=path, line=line, remedy=REMEDY)
