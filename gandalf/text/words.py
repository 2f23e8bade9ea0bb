"""Use words as tokens: a vocabulary learnt from the texts, and pieces of words for unknown words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.words import split_words
from gandalf.errors import DataError
from gandalf.text.stored import naming_file, need_counts, read_facts, write_facts
from gandalf.text.tokens import Tokens, id_rows
from gandalf.text.workers import map_chunks

UNKNOWN = 1  # 0 is padding
FILE = "words.json"
_LONGEST_PIECE = 16  # characters
_CACHED_WORDS = 200_000  # words whose pieces are kept, so that a table breaks each word about once


@dataclass(frozen=True)
class WordsOptions:
    """Options for learning words and pieces."""

    max_length: int = 32  # tokens read of a text
    min_count: int = 2  # rarer words are broken into pieces, so that the pieces are trained, too
    max_words: int = 500_000
    pieces: int = 8_000  # pieces of several characters; in addition, every single character is a piece

    def __post_init__(self) -> None:
        need_counts(self, max_length=1, min_count=1, max_words=0, pieces=0)


class Words(Tokens):
    """Ids of words and pieces: 0 is padding, 1 a text without tokens, then words by falling count, then
    pieces.

    A word outside the vocabulary becomes a list of pieces, cut from the left, the longest piece first. A
    piece that is also a word has the id of the word, so that "windowtext" uses the vectors of "window" and
    "text".
    """

    threaded = False  # `encode` uses one core, so a table needs several processes

    def __init__(self, words: Sequence[str], pieces: Sequence[str], options: WordsOptions) -> None:
        self.words, self.pieces, self.options = tuple(words), tuple(pieces), options
        self._words = {word: number for number, word in enumerate(self.words, start=UNKNOWN + 1)}
        numbers = dict(self._words)
        for piece in self.pieces:
            numbers.setdefault(piece, UNKNOWN + 1 + len(numbers))
        self._pieces = {piece: numbers[piece] for piece in self.pieces}
        self._longest = max(map(len, self.pieces), default=0)
        self._piece_ids: dict[str, list[int]] = {}  # a cache by word
        super().__init__(UNKNOWN + 1 + len(numbers), options.max_length)

    @classmethod
    def fit(
        cls, texts: Iterable[str], options: WordsOptions | None = None, *, workers: int | None = None
    ) -> Words:
        """Learn words and pieces from the texts in two passes; an iterator is first read into memory."""
        options = options or WordsOptions()
        if iter(texts) is texts:
            texts = list(texts)
        counts: Counter[str] = Counter()
        for found in map_chunks(_count_words, texts, "vocabulary", workers=workers):
            counts.update(found)
        # Break ties by alphabet, so that the order of the texts does not change the vocabulary.
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        often = [word for word in ranked if counts[word] >= options.min_count]
        fitted = cls(often[: options.max_words], learn_pieces(counts, options.pieces), options)
        fitted.count(texts, workers)
        return fitted

    @property
    def strings(self) -> list[str]:
        """Return the text of each token; "" for padding and the unknown token."""
        return ["", "", *dict.fromkeys([*self.words, *self.pieces])]

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the ids of each text, cut or padded with 0 on the right."""
        rows = [self._ids(text) for text in texts]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        return id_rows(ids, lengths, self.max_length)

    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Like `known`, but for the token ids of texts."""  # shape: (N, T) -> (N,)
        return np.asarray((ids > UNKNOWN).any(axis=1))

    def with_length(self, max_length: int) -> Words:
        """Return the same words and pieces with another `max_length`."""
        made = Words(self.words, self.pieces, replace(self.options, max_length=max_length))
        made.frequencies, made.num_texts = self.frequencies, self.num_texts
        return made

    def save(self, folder: Path) -> None:
        """Write the vocabulary into a model folder."""
        facts = {
            "options": asdict(self.options),
            "words": self.words,
            "pieces": self.pieces,
            **self.count_facts(),
        }
        write_facts(Path(folder) / FILE, facts)

    @classmethod
    def load(cls, folder: Path) -> Words:
        """Read back what `save` wrote."""
        path = Path(folder) / FILE
        facts = read_facts(path)
        with naming_file(path):
            loaded = cls(
                _strings(facts["words"]), _strings(facts["pieces"]), WordsOptions(**facts["options"])
            )
            loaded.read_counts(facts)
        return loaded

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in split_words(text):
            number = self._words.get(word)
            if number is not None:
                ids.append(number)
            else:
                ids += self._ids_of_pieces(word)
            if len(ids) >= self.max_length:
                return ids[: self.max_length]
        return ids or [UNKNOWN]

    def _ids_of_pieces(self, word: str) -> list[int]:
        ids = self._piece_ids.get(word)
        if ids is None:
            if len(self._piece_ids) >= _CACHED_WORDS:
                self._piece_ids.clear()
            # Not all pieces, because a damaged file may hold a very long word.
            pieces = islice(self._cut_into_pieces(word), self.max_length)
            ids = self._piece_ids[word] = [self._pieces[piece] for piece in pieces]
        return ids

    def _cut_into_pieces(self, word: str) -> Iterator[str]:
        """Yield the longest piece at each place; skip unknown characters."""
        start = 0
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start, -1)
            piece = next((word[start:end] for end in ends if word[start:end] in self._pieces), "")
            if piece:
                yield piece
            start += len(piece) or 1


def _count_words(texts: Sequence[str]) -> Counter[str]:
    return Counter(chain.from_iterable(map(split_words, texts)))


def _strings(values: Sequence[str]) -> Sequence[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise TypeError("a list of words holds something other than words")
    if len(set(values)) != len(values):
        raise ValueError("a word is listed twice")
    return values


def learn_pieces(counts: Mapping[str, int], number: int) -> list[str]:
    """Return every single character of the words, then up to `number` longer pieces, by byte-pair merges."""
    characters = sorted(set(chain.from_iterable(counts)))
    if not number or not characters:
        return characters
    try:
        from tokenizers import Tokenizer, models, trainers
    except ImportError as error:
        raise DataError(
            "learning pieces of words needs tokenizers", remedy="pip install 'gandalf-xmc[train]'"
        ) from error
    merged = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=len(characters) + number,
        min_frequency=2,  # a piece of a single word helps no other word
        max_token_length=_LONGEST_PIECE,
        show_progress=False,
    )
    merged.train_from_iterator(_repeated_by_log_count(counts), trainer)
    learnt: dict[str, int] = merged.get_vocab()
    return characters + sorted((piece for piece in learnt if len(piece) > 1), key=lambda piece: learnt[piece])


def _repeated_by_log_count(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield each word 1 + log2(count) times, so that the few most frequent words do not determine the
    pieces."""
    for word in sorted(counts):
        for _ in range(1 + int(math.log2(counts[word]))):
            yield word
