"""Read pre-trained word vectors for the tokens of a vocabulary, from a text file or a model folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.files import first_line, read_lines
from gandalf.data.unpack_limits import need_room
from gandalf.errors import DataError, Findings
from gandalf.text.stored import read_text
from gandalf.text.subwords import UNKNOWN_NAMES, read_tokenizer
from gandalf.text.tokens import Tokens

Vectors = npt.NDArray[np.float32]
FoundWords = npt.NDArray[np.bool_]

FILE_REMEDY = "download or copy it again, or name a text file of word vectors"
FOLDER_REMEDY = "name a folder or package with a tokenizer.json and a .safetensors table of its tokens"


def static_vectors(source: str | Path, tokens: Tokens, dim: int) -> tuple[Vectors, FoundWords]:
    """Return a vector of `dim` numbers for each token, and a mask of the tokens found; other vectors are 0.

    `source` is a text file of vectors (GloVe, word2vec, fastText), or a folder or installed package with a
    tokenizer and its table of vectors (static embeddings, or the input table of a transformer).
    """
    if dim < 1:
        raise DataError(f"vectors cannot have {dim} numbers", remedy="ask for 1 or more")
    strings = tokens.strings
    names = {name: row for row, name in enumerate(dict.fromkeys(filter(None, strings)))}
    path = _find_source(str(source))
    read = read_vector_folder if path.is_dir() else read_vector_file
    vectors, found = read(path, list(names))
    if names and not found.any():
        what = "holds a vector for none of the words"
        raise DataError(what, remedy="use vectors in the language of the texts", file=path)
    rows = np.array([names.get(string, -1) for string in strings])
    held = rows >= 0
    held[held] = found[rows[held]]
    matrix = np.zeros((len(rows), dim), dtype=np.float32)  # shape: (size, dim)
    matrix[held] = project(vectors, found, dim)[rows[held]]
    return matrix, held


def _find_source(source: str) -> Path:
    path = Path(source)
    if source and path.exists():  # an empty name would be the current folder
        return path
    name = source.replace("-", "_")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        what = f"there is no file, folder or installed package '{source}' with word vectors"
        remedy = "name a GloVe, word2vec or fastText text file, or install a package such as wordllama"
        raise DataError(what, remedy=remedy, kind="missing-file")
    return Path(spec.submodule_search_locations[0])


def project(vectors: Vectors, found: FoundWords, dim: int) -> Vectors:
    """Return the vectors in `dim` columns, with their dot products kept as well as possible.

    Too many columns are reduced to the directions of largest variance of the found vectors (an SVD). Too few
    columns are rotated by a fixed rotation into the larger space, so that no column is empty.
    """
    columns = vectors.shape[1]
    if columns == dim:
        return vectors
    if columns < dim:
        drawn = np.random.default_rng(0).standard_normal((dim, columns))
        turn = np.linalg.qr(drawn)[0].T  # shape: (columns, dim), rows of length 1 at right angles
    else:
        kept = vectors[found].astype(np.float64)
        _, directions = np.linalg.eigh(kept.T @ kept)  # shape: (columns, columns), longest last
        turn = directions[:, ::-1][:, :dim]
        # The sign of a direction is arbitrary; fix it so that every machine gives the same vectors.
        turn *= np.sign(turn[np.abs(turn).argmax(axis=0), np.arange(dim)])
    return vectors @ turn.astype(np.float32)


# ---- text files (GloVe, word2vec, fastText's `.vec`): a word and its numbers on each line


def read_vector_file(path: Path, names: Sequence[str]) -> tuple[Vectors, FoundWords]:
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
        raise DataError(what, file=path, remedy=FILE_REMEDY, kind="truncated-file")
    return vectors, found


def _read_size(path: Path) -> tuple[int | None, int]:
    """Return the number of vectors, or None if there is no header, and the numbers in each vector."""
    fields = first_line(path).rstrip(" ").split(" ")
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        count, columns = int(fields[0]), int(fields[1])
        need_room(2 * count * columns, path, "says that it has")  # a number and a space for each
        return count, columns
    if len(fields) < 2:
        raise DataError("is no text file of word vectors", file=path, line=1, remedy=FILE_REMEDY)
    return None, len(fields) - 1


def _split_line(line: str, columns: int, path: Path, number: int) -> tuple[str, list[str]]:
    """Return the word of a line, which may contain spaces, and the fields of its numbers."""
    word, *numbers = line.rstrip(" ").rsplit(" ", columns)
    if len(numbers) < columns:
        _refuse(f"has {len(numbers)} numbers after the word, but {columns} are expected", path, number)
    if " " in word and _is_number(word.rsplit(" ", 1)[1]):
        _refuse(f"has more than the {columns} numbers expected after the word", path, number)
    return word, numbers


def _numbers(fields: list[str], path: Path, line: int) -> Vectors:
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
    raise DataError(f"the line {what}", file=path, line=line, remedy=FILE_REMEDY)


# ---- folders: a tokenizer and the table of its tokens' vectors


def read_vector_folder(folder: Path, names: Sequence[str]) -> tuple[Vectors, FoundWords]:
    """Return the mean vector of each name's tokens, and a mask of the names with tokens."""
    tokenizer = read_tokenizer(_tokenizer_in(folder))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    vocabulary = tokenizer.get_vocab()
    table = _table_in(folder, max(vocabulary.values(), default=-1) + 1)  # shape: (V, columns)
    unknown = {vocabulary[name] for name in UNKNOWN_NAMES if name in vocabulary}
    encoded = tokenizer.encode_batch_fast(list(names), add_special_tokens=False)
    rows = [[number for number in row.ids if number not in unknown] for row in encoded]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    shares = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
    ids = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    means = csr_array((shares, ids, starts), shape=(len(rows), len(table))) @ table
    return np.asarray(means, dtype=np.float32), lengths > 0


def _tokenizer_in(folder: Path) -> str:
    """Return the text of the first file in the folder, or below it, that describes a tokenizer."""
    files = sorted(folder.rglob("*tokenizer*.json"), key=lambda path: (path.name != "tokenizer.json", path))
    for path in files:
        with suppress(DataError):  # the file of a tokenizer's settings has a similar name
            text = read_text(path, FOLDER_REMEDY)
            read_tokenizer(text)
            return text
    raise DataError("holds no tokenizer", file=folder, remedy=FOLDER_REMEDY, kind="missing-file")


def _table_in(folder: Path, size: int) -> Vectors:
    """Return the matrix in the folder, or below it, that has a row for each of `size` tokens."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[train]'"
        raise DataError("reading a model's vectors needs safetensors", remedy=remedy) from error
    for path in sorted(folder.rglob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                name = _table_name({name: file.get_slice(name).get_shape() for name in file.keys()}, size)  # noqa: SIM118
                table = None if name is None else file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise DataError(f"cannot be read ({error})", file=path, remedy=FOLDER_REMEDY) from error
        if table is not None:
            return np.asarray(table.float().numpy(), dtype=np.float32)
    what = f"holds no table of vectors for the {size:,} tokens of its tokenizer"
    raise DataError(what, file=folder, remedy=FOLDER_REMEDY, kind="missing-file")


def _table_name(shapes: dict[str, list[int]], size: int) -> str | None:
    """Return the name of a matrix with at least `size` rows: preferably with "embed" in the name, then the
    smallest."""
    fitting = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] >= size]
    return min(fitting, key=lambda name: ("embed" not in name, shapes[name][0], name), default=None)
