"""Bag-of-words features for trainers that read features and not text: TF-IDF over `split_words`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Splits
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.progress import track


@dataclass(frozen=True)
class BagOfWords:
    """Words that have a column, most frequent first (ties in code-point order), and their weights."""

    words: tuple[str, ...]  # D
    idf: npt.NDArray[np.float32]  # D: ln((1 + documents) / (1 + documents with the word)) + 1

    @classmethod
    def fit(cls, texts: Sequence[str], max_features: int) -> tuple[BagOfWords, csr_array]:
        """Choose the `max_features` words found in most texts; the texts' own features come with them."""
        column: dict[str, int] = {}
        counts = _word_counts(texts, column, grow=True)
        documents = np.bincount(counts.indices, minlength=len(column))  # shape: (words,)
        words = np.asarray(list(column), dtype=object)
        order = np.lexsort((words, -documents))[:max_features]
        idf = np.log((1 + len(texts)) / (1 + documents[order])) + 1
        bag = cls(tuple(words[order]), idf.astype(np.float32))
        return bag, bag._weighted(csr_array(counts[:, order]))

    def features(self, texts: Sequence[str]) -> csr_array:
        """N x D float32: count times idf, rows of length 1; a text without known words is an empty row."""
        return self._weighted(_word_counts(texts, self._column, grow=False))

    @cached_property
    def _column(self) -> dict[str, int]:
        """Made once: a query at a time would else pay for all words each time."""
        return {word: i for i, word in enumerate(self.words)}

    def _weighted(self, counts: csr_array) -> csr_array:
        counts.sort_indices()
        weights = counts.data * self.idf[counts.indices]
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        lengths = np.sqrt(np.bincount(rows, weights.astype(np.float64) ** 2, counts.shape[0]))  # shape: (N,)
        values = (weights / lengths[rows]).astype(np.float32)
        return csr_array((values, counts.indices, counts.indptr), shape=counts.shape)


def add_features(splits: Splits, *, max_features: int = 100_000) -> tuple[Splits, tuple[str, ...]]:
    """The same data set with features of points and labels, and the words that the columns stand for.

    The words come from the training and label texts only; nothing is learnt from the test split.
    """
    train, test = splits.train, splits.test
    if train.texts is None:
        raise DataError(
            "bag-of-words features need texts, and this data set has none",
            remedy="use its raw layout (trn/tst/lbl.json.gz)",
        )
    bag, known = BagOfWords.fit([*train.texts, *(train.label_texts or ())], max_features)
    label_features = None if train.label_texts is None else known[len(train) :]
    train = replace(train, features=known[: len(train)], label_features=label_features)
    if test is not None:
        features = None if test.texts is None else bag.features(test.texts)
        test = replace(test, features=features, label_features=label_features)
    return replace(splits, train=train, test=test), bag.words


def _word_counts(texts: Sequence[str], column: dict[str, int], *, grow: bool) -> csr_array:
    """How often each word with a column stands in each text; `grow` gives new words new columns."""
    columns, ends = array("q"), array("q", [0])
    for text in track(texts, "counting words", total=len(texts)):
        words = split_words(text)
        if grow:
            columns.extend([column.setdefault(word, len(column)) for word in words])
        else:
            columns.extend([column[word] for word in words if word in column])
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    shape = (len(texts), len(column))
    counts = csr_array((ones, np.frombuffer(columns, np.int64), np.frombuffer(ends, np.int64)), shape=shape)
    counts.sum_duplicates()
    return counts
