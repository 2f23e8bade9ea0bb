"""Read word vectors from a model folder, by its tokenizer and the table of its tokens' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.text.stored import read_text
from gandalf.text.subwords import UNKNOWN_NAMES, read_tokenizer

REMEDY = "name a folder or package with a tokenizer.json and a .safetensors table of its tokens"


def read_vector_folder(
    folder: Path, names: Sequence[str]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
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
            text = read_text(path, REMEDY)
            read_tokenizer(text)
            return text
    raise DataError("holds no tokenizer", file=folder, remedy=REMEDY, kind="missing-file")


def _table_in(folder: Path, size: int) -> npt.NDArray[np.float32]:
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
            raise DataError(f"cannot be read ({error})", file=path, remedy=REMEDY) from error
        if table is not None:
            return np.asarray(table.float().numpy(), dtype=np.float32)
    what = f"holds no table of vectors for the {size:,} tokens of its tokenizer"
    raise DataError(what, file=folder, remedy=REMEDY, kind="missing-file")


def _table_name(shapes: dict[str, list[int]], size: int) -> str | None:
    """Return the name of a matrix with at least `size` rows: preferably with "embed" in the name, then the
    smallest."""
    fitting = [name for name, shape in shapes.items() if len(shape) == 2 and shape[0] >= size]
    return min(fitting, key=lambda name: ("embed" not in name, shapes[name][0], name), default=None)
