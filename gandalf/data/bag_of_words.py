"""Sparse features of texts: TF-IDF of words, of word pairs and of character n-grams."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
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
LEAST_TEXTS = {"words": 1, "pairs": 2, "characters": 2}  # that hold a term: rarer ones tell nothing new
# Length of each kind's share of a row. Pairs repeat what their words say, so they count half as much.
LENGTHS = {"words": 1.0, "pairs": 0.5, "characters": 1.0}
SHORTEST, LONGEST = 3, 5  # characters of an n-gram, the marks of a word's ends among them
PAIR, SPELLED = " ", "#"  # no word holds either, so no two kinds of term have one name
REMEMBERED = 200_000  # spelled words kept at hand


@dataclass(frozen=True)
class BagOfWords:
    """Terms that have a column, kind by kind, and their weights.

    Within a kind the terms found in most texts come first, ties in code-point order. A row is a text: the
    terms of a kind have a fixed length together (`LENGTHS`), then the whole row has length 1, so that the
    many n-grams of a text do not drown its words.
    """

    words: tuple[str, ...]  # D, terms of all kinds
    idf: npt.NDArray[np.float32]  # D: ln((1 + documents) / (1 + documents with the term)) + 1
    kinds: tuple[TermKind, ...] = ("words",)

    @classmethod
    def fit(
        cls, texts: Sequence[str], max_features: int, kinds: tuple[TermKind, ...] = ("words",)
    ) -> tuple[BagOfWords, csr_array]:
        """Choose up to `max_features` terms of each kind; return the texts' own features with them."""
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
        bag = cls(tuple(terms[order]), idf.astype(np.float32), kinds)
        return bag, bag._weighted(csr_array(counts[:, order]))

    def features(self, texts: Sequence[str]) -> csr_array:
        """Return N x D float32 TF-IDF rows of length 1; a text without a known term is an empty row."""
        return self._weighted(_term_counts(texts, self._column, self.kinds, grow=False))

    @cached_property
    def _column(self) -> dict[str, int]:
        """Made once: a query at a time would else pay for all terms each time."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def _kind_numbers(self) -> npt.NDArray[np.int64]:
        """The place in `kinds` of each term's kind."""  # shape: (D,)
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
        values = _of_length_1(weights, groups, counts.shape[0] * size)
        if size > 1:
            lengths = np.array([LENGTHS[kind] for kind in self.kinds])
            values = _of_length_1(values * lengths[groups % size], rows, counts.shape[0])
        return csr_array((values.astype(np.float32), counts.indices, counts.indptr), shape=counts.shape)


def kind_of(term: str) -> TermKind:
    """Return the kind of a term by its form."""
    if term.startswith(SPELLED):
        return "characters"
    return "pairs" if PAIR in term else "words"


def add_features(splits: Splits, *, max_features: int = 100_000) -> tuple[Splits, tuple[str, ...]]:
    """Return the data set with features of points and labels, and the words that the columns stand for.

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


def _of_length_1(
    values: npt.NDArray[np.floating], groups: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Divide each value by the length of its group."""
    lengths = np.sqrt(np.bincount(groups, values.astype(np.float64) ** 2, count))  # shape: (count,)
    return np.asarray(values / lengths[groups])


def _term_counts(
    texts: Sequence[str], column: dict[str, int], kinds: tuple[TermKind, ...], *, grow: bool
) -> csr_array:
    """Count the terms with a column in each text; `grow` gives new terms new columns."""
    columns, ends = array("q"), array("q", [0])
    spelled: dict[str, list[int]] = {}  # columns of a word's n-grams: words recur, so each is cut once

    def found(terms: Iterator[str] | Sequence[str]) -> list[int]:
        if grow:
            return [column.setdefault(term, len(column)) for term in terms]
        return [column[term] for term in terms if term in column]

    for text in track(texts, "counting words", total=len(texts)):
        words = split_words(text)
        if "words" in kinds:
            columns.extend(found(words))
        if "pairs" in kinds:
            columns.extend(found(one + PAIR + other for one, other in pairwise(words)))
        for word in words if "characters" in kinds else ():
            if word not in spelled:
                if len(spelled) >= REMEMBERED:
                    spelled.clear()
                spelled[word] = found(n_grams(word))
            columns.extend(spelled[word])
        ends.append(len(columns))
    ones = np.ones(len(columns), dtype=np.float32)
    shape = (len(texts), len(column))
    counts = csr_array((ones, np.frombuffer(columns, np.int64), np.frombuffer(ends, np.int64)), shape=shape)
    counts.sum_duplicates()
    return counts


def n_grams(word: str) -> list[str]:
    """Return the terms of a word's character n-grams; its ends are marked, so that "<un" is a beginning."""
    marked = f"<{word}>"
    return [
        SPELLED + marked[start : start + size]
        for size in range(SHORTEST, LONGEST + 1)
        for start in range(len(marked) - size + 1)
    ]
