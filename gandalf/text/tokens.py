"""Define `Tokens`, the base of both kinds of vocabulary: ids of texts, and counts for weights (IDF)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.text.stored import checked_counts
from gandalf.text.workers import map_chunks

Ids = npt.NDArray[np.int32]


class Tokens(ABC):
    """A fitted vocabulary that turns texts into rows of ids, each with at least one id besides padding."""

    threaded: bool  # True if `encode` uses all cores

    def __init__(self, size: int, max_length: int) -> None:
        self.size, self.max_length = size, max_length  # ids lie in [0, size); 0 is padding
        self.frequencies = np.zeros(size, dtype=np.int64)  # shape: (size,), number of texts with each token
        self.num_texts = 0  # number of texts behind `frequencies`

    @property
    @abstractmethod
    def strings(self) -> list[str]:
        """Return the text of each token; "" for padding and other special tokens."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Ids:
        """Return the ids of each text, cut or padded with 0 on the right."""  # shape: (N, max_length)

    @abstractmethod
    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Like `known`, but for the token ids of texts."""  # shape: (N, T) -> (N,)

    @abstractmethod
    def with_length(self, max_length: int) -> Tokens:
        """Return the same tokens with another `max_length`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the vocabulary into a model folder."""

    def known(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text with a token that is neither unknown nor special."""  # shape: (N,)
        return self.known_rows(self.encode(texts))

    def idf(self) -> npt.NDArray[np.float32]:
        """Return log((1 + N) / (1 + texts with the token)) + 1 for each token, and 0 for padding."""
        weights = np.log((1 + self.num_texts) / (1 + self.frequencies)) + 1
        weights[0] = 0
        return weights.astype(np.float32)  # shape: (size,)

    def count(self, texts: Iterable[str], workers: int | None) -> None:
        """Count the texts that hold each token, in place of the counts so far."""
        frequencies, num_texts = np.zeros(self.size, dtype=np.int64), 0
        workers = 0 if workers is None and self.threaded else workers
        for ids, counts, read in map_chunks(partial(_count, self), texts, "frequencies", workers=workers):
            frequencies[ids] += counts
            num_texts += read
        self.frequencies, self.num_texts = frequencies, num_texts

    def count_facts(self) -> dict[str, Any]:
        """Return the counts for the file of the vocabulary."""
        return {"num_texts": self.num_texts, "frequencies": self.frequencies.tolist()}

    def read_counts(self, facts: Mapping[str, Any]) -> None:
        """Take the counts from the file of the vocabulary; raise an exception if they are not valid."""
        self.frequencies = checked_counts(facts["frequencies"], self.size)
        self.num_texts = int(checked_counts([facts["num_texts"]], 1)[0])


def _count(tokens: Tokens, texts: Sequence[str]) -> tuple[Ids, npt.NDArray[np.int64], int]:
    rows = np.sort(tokens.encode(texts), axis=1)  # equal ids become neighbours
    first = rows != 0
    first[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    ids, counts = np.unique(rows[first], return_counts=True)
    return ids, counts.astype(np.int64), len(texts)


def id_rows(ids: npt.ArrayLike, lengths: npt.NDArray[np.integer[Any]], width: int) -> Ids:
    """Return rows of the given lengths, at most `width`, filled with consecutive ids and padded with 0."""
    table = np.zeros((len(lengths), width), dtype=np.int32)  # shape: (N, width)
    table[np.arange(width) < lengths[:, None]] = ids
    return table


def check_texts(texts: object) -> None:
    """Raise a DataError unless `texts` is a list of strings, or another sequence of strings."""
    if isinstance(texts, bytes) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        raise DataError(f"the texts must be a string or a list of strings, not {_kind(texts)}")
    for at, text in enumerate(texts, start=1):  # type: ignore[arg-type, var-annotated]  # has __getitem__
        if not isinstance(text, str):
            raise DataError(f"text {at:,} of the list is {_kind(text)}", remedy="convert it with str(...)")


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
