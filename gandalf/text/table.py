"""Encode all texts of a split as one table of token ids, and choose its length by the texts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.data.lengths import length_for
from gandalf.text.tokens import Tokens
from gandalf.text.workers import map_chunks

Ids = npt.NDArray[np.int32]
SAMPLE = 100_000  # texts whose lengths are measured


def token_table(
    tokens: Tokens, texts: Iterable[str], *, path: str | Path | None = None, workers: int | None = None
) -> Ids:
    """Return the ids of all texts (N x length of the longest text); the number of workers does not change
    them.

    With `path`, the table is written there as a `.npy` file and mapped read-only, so that it need not fit in
    memory.
    """
    workers = 0 if workers is None and tokens.threaded else workers
    chunks = map_chunks(partial(_encode_trimmed, tokens), texts, "tokens", workers=workers)
    return _table_in_memory(chunks) if path is None else _table_in_file(chunks, Path(path))


def with_fitted_length(tokens: Tokens, texts: Sequence[str]) -> Tokens:
    """Return the same tokens with a length chosen by these texts, at most the present length."""
    places = np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(np.int64)
    table = token_table(tokens, [texts[place] for place in places.tolist()])
    return tokens.with_length(length_for((table != 0).sum(axis=1), tokens.max_length))


def count_cut(tokens: Tokens, texts: Sequence[str], table: Ids) -> int:
    """Return the number of texts that are cut; `table` holds their ids."""
    if table.shape[1] < tokens.max_length:
        return 0
    full = np.flatnonzero(table[:, -1])  # only a text that fills its row can be cut
    if not len(full):
        return 0
    longer = token_table(tokens.with_length(tokens.max_length + 1), [texts[row] for row in full.tolist()])
    return int(np.count_nonzero(longer[:, -1])) if longer.shape[1] > tokens.max_length else 0


def _encode_trimmed(tokens: Tokens, texts: list[str]) -> Ids:
    table = tokens.encode(texts)
    width = int(np.flatnonzero(table.any(axis=0)).max(initial=0)) + 1
    return np.ascontiguousarray(table[:, :width])  # shape: (chunk, its longest text's length)


def _table_in_memory(chunks: Iterator[Ids]) -> Ids:
    parts = list(chunks)
    width = max((part.shape[1] for part in parts), default=1)
    table = np.zeros((sum(map(len, parts)), width), dtype=np.int32)
    start = 0
    for part in parts:
        table[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return table


def _table_in_file(chunks: Iterator[Ids], path: Path) -> Ids:
    """Spool the chunks in a temporary file until the width is known, then write the padded table."""
    rows, width = 0, 1
    with written(path, "wb") as file, tempfile.TemporaryFile(dir=path.parent) as spool:
        number = 0
        for part in chunks:
            np.save(spool, part, allow_pickle=False)
            rows, width, number = rows + len(part), max(width, part.shape[1]), number + 1
        spool.seek(0)
        header = {"descr": "<i4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(number):
            part = np.load(spool, allow_pickle=False)
            file.write(np.pad(part, ((0, 0), (0, width - part.shape[1]))).astype("<i4").tobytes())
    mapped: Ids = np.load(path, mmap_mode="r")
    return mapped
