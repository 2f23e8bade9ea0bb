"""Read pre-trained word vectors for the tokens of a vocabulary."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.text.tokens import Tokens
from gandalf.text.vector_files import read_vector_file
from gandalf.text.vector_folders import read_vector_folder

Vectors = npt.NDArray[np.float32]
FoundWords = npt.NDArray[np.bool_]


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
        raise DataError(
            "holds a vector for none of the words",
            file=path,
            remedy="use vectors in the language of the texts",
        )
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
        raise DataError(
            f"there is no file, folder or installed package '{source}' with word vectors",
            remedy="name a GloVe, word2vec or fastText text file, or install a package such as wordllama",
            kind="missing-file",
        )
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
