"""Count the texts that hold each token, and compute token weights (IDF) from the counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gandalf.text.workers import map_chunks

Ids = npt.NDArray[np.int32]


class _Encodes(Protocol):
    size: int
    threaded: bool

    def encode(self, texts: Sequence[str]) -> Ids: ...


def document_frequencies(
    tokens: _Encodes, texts: Iterable[str], *, workers: int | None = None
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the number of texts that hold each token (0 for padding), and the number of texts."""
    frequencies, num_texts = np.zeros(tokens.size, dtype=np.int64), 0  # shape: (size,)
    workers = 0 if workers is None and tokens.threaded else workers
    for ids, counts, texts_read in map_chunks(partial(_count, tokens), texts, "frequencies", workers=workers):
        frequencies[ids] += counts
        num_texts += texts_read
    return frequencies, num_texts


def _count(tokens: _Encodes, texts: Sequence[str]) -> tuple[Ids, npt.NDArray[np.int64], int]:
    rows = np.sort(tokens.encode(texts), axis=1)  # equal ids become neighbours
    first = rows != 0
    first[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    ids, counts = np.unique(rows[first], return_counts=True)
    return ids, counts.astype(np.int64), len(texts)


def inverse_frequencies(frequencies: npt.NDArray[np.int64], num_texts: int) -> npt.NDArray[np.float32]:
    """Return log((1 + N) / (1 + df)) + 1 for each token, and 0 for padding."""
    weights = np.log((1 + num_texts) / (1 + frequencies)) + 1
    weights[0] = 0
    return weights.astype(np.float32)  # shape: (size,)
