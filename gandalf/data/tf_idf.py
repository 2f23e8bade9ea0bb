"""Make sparse TF-IDF features of texts from words, word pairs and character n-grams."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Splits
from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.progress import track

TermKind = Literal["words", "pairs", "characters"]
KINDS: tuple[TermKind, ...] = ("words", "pairs", "characters")
LEAST_TEXTS = {"words": 1, "pairs": 2, "characters": 2}  # a term in fewer texts gets no column
# L2 norm of the values of each kind in a row. Pairs repeat their words, so they count half.
KIND_NORMS = {"words": 1.0, "pairs": 0.5, "characters": 1.0}
SHORTEST, LONGEST = 3, 5  # characters of an n-gram, including the marks < and > of a word's ends
PAIR_MARK, N_GRAM_MARK = " ", "#"  # no word contains these, so terms of different kinds always differ
CACHED_WORDS = 200_000  # words whose n-grams are kept


@dataclass(frozen=True)
class TfIdf:
    """The terms that have a column, kind by kind, and their weights.

    Within a kind, the terms that occur in most texts come first; ties are in code-point order. In the row of
    a text the values of each kind are first scaled to the L2 norm `KIND_NORMS`, so that many n-grams do not
    outweigh the words. Then the whole row is scaled to norm 1.
    """

    words: tuple[str, ...]  # D, terms of all kinds
    idf: npt.NDArray[np.float32]  # D: ln((1 + documents) / (1 + documents with the term)) + 1
    kinds: tuple[TermKind, ...] = ("words",)

    @classmethod
    def fit(
        cls, texts: Sequence[str], max_features: int, kinds: tuple[TermKind, ...] = ("words",)
    ) -> tuple[TfIdf, csr_array]:
        """Choose up to `max_features` terms of each kind; return the object and the features of `texts`."""
        column: dict[str, int] = {}
        counts = _term_counts(texts, column, kinds, grow=True)
        documents = np.bincount(counts.indices, minlength=len(column))  # shape: (terms,)
        terms = np.asarray(list(column), dtype=object)
        order = np.lexsort((terms, -documents))
        of_kind = np.array([kind_of(term) for term in terms], dtype=object)[order]
        least = np.array([LEAST_TEXTS[kind] for kind in of_kind], dtype=np.int64)
        order, of_kind = (each[documents[order] >= least] for each in (order, of_kind))
        order = np.concatenate([order[of_kind == kind][:max_features] for kind in kinds])
        idf = np.log((1 + len(texts)) / (1 + documents[order])) + 1
        tf_idf = cls(tuple(terms[order]), idf.astype(np.float32), kinds)
        return tf_idf, tf_idf._weighted(csr_array(counts[:, order]))

    def features(self, texts: Sequence[str]) -> csr_array:
        """Return N x D float32 TF-IDF rows of norm 1; a text without a known term has an empty row."""
        return self._weighted(_term_counts(texts, self._column, self.kinds, grow=False))

    @cached_property
    def _column(self) -> dict[str, int]:
        """Return the column of each term. Cached, because building it for each query is slow."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def _kind_numbers(self) -> npt.NDArray[np.int64]:
        """Return the index into `kinds` of each term."""  # shape: (D,)
        if len(self.kinds) == 1:
            return np.zeros(len(self.words), dtype=np.int64)
        places = {kind: place for place, kind in enumerate(self.kinds)}
        return np.fromiter((places[kind_of(term)] for term in self.words), np.int64, len(self.words))

    def _weighted(self, counts: csr_array) -> csr_array:
        counts.sort_indices()
        weights = counts.data * self.idf[counts.indices]
        rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        size = len(self.kinds)
        groups = rows * size + self._kind_numbers[counts.indices]
        values = _scaled_to_norm_1(weights, groups, counts.shape[0] * size)
        if size > 1:
            lengths = np.array([KIND_NORMS[kind] for kind in self.kinds])
            values = _scaled_to_norm_1(values * lengths[groups % size], rows, counts.shape[0])
        return csr_array((values.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)


def kind_of(term: str) -> TermKind:
    """Return the kind of a term, which its marks show."""
    if term.startswith(N_GRAM_MARK):
        return "characters"
    return "pairs" if PAIR_MARK in term else "words"


def add_features(splits: Splits, *, max_features: int = 100_000) -> tuple[Splits, tuple[str, ...]]:
    """Return the data set with features of points and labels, and the word of each column.

    The words come from the training texts and label texts only, never from the test split.
    """
    train, test = splits.train, splits.test
    if train.texts is None:
        what = "TF-IDF features need texts, and this data set has none"
        raise DataError(what, remedy="use its raw layout (trn/tst/lbl.json.gz)")
    tf_idf, features_of_all = TfIdf.fit([*train.texts, *(train.label_texts or ())], max_features)
    label_features = None if train.label_texts is None else features_of_all[len(train) :]
    train = replace(train, features=features_of_all[: len(train)], label_features=label_features)
    if test is not None:
        features = None if test.texts is None else tf_idf.features(test.texts)
        test = replace(test, features=features, label_features=label_features)
    return replace(splits, train=train, test=test), tf_idf.words


def _scaled_to_norm_1(
    values: npt.NDArray[np.floating], groups: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Scale the values of each group to L2 norm 1."""
    lengths = np.sqrt(np.bincount(groups, values.astype(np.float64) ** 2, count))  # shape: (count,)
    return np.asarray(values / lengths[groups])


def _term_counts(
    texts: Sequence[str], column: dict[str, int], kinds: tuple[TermKind, ...], *, grow: bool
) -> csr_array:
    """Count the terms of each text; with `grow`, add a column for each new term, else skip new terms."""
    columns, ends = array("q"), array("q", [0])

    def columns_of(terms: Iterator[str] | Sequence[str]) -> list[int]:
        if grow:
            return [column.setdefault(term, len(column)) for term in terms]
        return [column[term] for term in terms if term in column]

    @lru_cache(maxsize=CACHED_WORDS)  # because words recur
    def n_gram_columns(word: str) -> list[int]:
        return columns_of(n_grams(word))

    for text in track(texts, "counting words", total=len(texts)):
        words = split_words(text)
        if "words" in kinds:
            columns.extend(columns_of(words))
        if "pairs" in kinds:
            columns.extend(columns_of(one + PAIR_MARK + other for one, other in pairwise(words)))
        if "characters" in kinds:
            columns.extend(chain.from_iterable(map(n_gram_columns, words)))
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    shape = (len(texts), len(column))
    counts = csr_array((ones, np.frombuffer(columns, np.int64), np.frombuffer(ends, np.int64)), shape=shape)
    counts.sum_duplicates()
    return counts


def n_grams(word: str) -> list[str]:
    """Return the character n-grams of a word as terms; "<" and ">" mark its ends, as in "<un"."""
    marked = f"<{word}>"
    return [
        N_GRAM_MARK + marked[start : start + size]
        for size in range(SHORTEST, LONGEST + 1)
        for start in range(len(marked) - size + 1)
    ]
