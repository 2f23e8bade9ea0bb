"""Use sub-words as tokens, by the library `tokenizers`: learnt from texts, or of a pre-trained model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.data.unpack_limits import need_room_for
from gandalf.errors import DataError
from gandalf.text.stored import REMEDY, naming_file, need_counts, read_facts, read_text, write_facts
from gandalf.text.tokens import Tokens, id_rows

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, TOKENIZER = "subwords.json", "tokenizer.json"
TOKEN_BYTES = 32  # in the tables that have a place for each number up to a tokenizer's largest
_PADDING, UNKNOWN_NAMES = ("[PAD]", "<pad>", "<|pad|>"), ("[UNK]", "<unk>", "<|unk|>")
# Splits inside words: before the capital of camelCase, and before the last capital of HTTPServer.
_HUMPS = r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})"


@dataclass(frozen=True)
class SubwordsOptions:
    """Options for learning sub-words."""

    max_length: int = 32  # tokens read of a text
    size: int = 30_000  # size of the vocabulary; it is larger if there are more distinct characters

    def __post_init__(self) -> None:
        need_counts(self, max_length=1, size=3)


class Subwords(Tokens):
    """The tokens of a `tokenizer.json`, with the padding token moved to id 0.

    `tokenizer_ids` maps our ids to the ids of the file, which are rows of a pre-trained table.
    """

    threaded = True  # `encode` uses all cores

    def __init__(self, tokenizer: str, max_length: int, *, special_tokens: bool = False) -> None:
        self.tokenizer, self.special_tokens = tokenizer, special_tokens
        self._model = read_tokenizer(tokenizer)
        added = self._model.num_special_tokens_to_add(False) if special_tokens else 0
        if max_length <= added:
            what = f"max_length is {max_length}, and the tokenizer adds {added} special tokens"
            raise DataError(what, remedy="raise max_length")
        self._model.no_padding()
        self._model.enable_truncation(max_length)
        self._model.encode_special_tokens = True  # read "[PAD]" in a text as text
        vocabulary = self._model.get_vocab()
        self.tokenizer_ids = _with_padding_first(vocabulary)  # shape: (size,), -1 for padding not in the file
        super().__init__(len(self.tokenizer_ids), max_length)
        self._new_ids = np.zeros(int(self.tokenizer_ids.max(initial=0)) + 1, dtype=np.int32)
        used = self.tokenizer_ids >= 0
        self._new_ids[self.tokenizer_ids[used]] = np.flatnonzero(used)
        unknown = next((vocabulary[name] for name in UNKNOWN_NAMES if name in vocabulary), None)
        self._unknown = 1 if unknown is None else int(self._new_ids[unknown])  # id of a text without tokens

    @classmethod
    def fit(
        cls, texts: Iterable[str], options: SubwordsOptions | None = None, *, workers: int | None = None
    ) -> Subwords:
        """Learn byte-pair merges from the texts in two passes; an iterator is first read into memory."""
        options = options or SubwordsOptions()
        if iter(texts) is texts:
            texts = list(texts)
        fitted = cls(_learn_merges(texts, options.size), options.max_length)
        return fitted.counted(texts, workers=workers)

    @classmethod
    def from_file(cls, path: str | Path, *, max_length: int = 32) -> Subwords:
        """Return the tokens of a `tokenizer.json`, or of a folder with one, special tokens included."""
        path = Path(path)
        path = path / TOKENIZER if path.is_dir() else path
        text = _checked_text(path, "name the folder or file of a tokenizer")
        return cls(text, max_length, special_tokens=True)

    def counted(self, texts: Iterable[str], *, workers: int | None = None) -> Subwords:
        """Return the same tokens with the frequencies of these texts, for `idf`."""
        counted = Subwords(self.tokenizer, self.max_length, special_tokens=self.special_tokens)
        counted.count(texts, workers)
        return counted

    @property
    def strings(self) -> list[str]:
        """Return the text of each token; "" for padding and other special tokens."""
        decoded = [
            "" if number < 0 else self._model.decode([number]) for number in self.tokenizer_ids.tolist()
        ]
        return [text.removeprefix("##").strip() for text in decoded]

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the ids of each text, cut or padded with 0 on the right."""
        with _without_panic():
            try:
                found = self._model.encode_batch_fast(texts, add_special_tokens=self.special_tokens)
            except TypeError:  # the library refuses lone surrogates
                found = self._model.encode_batch_fast(
                    [_without_surrogates(text) for text in texts], add_special_tokens=self.special_tokens
                )
        lengths = np.array([len(row) for row in found], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(row.ids for row in found), np.int64, int(lengths.sum()))
        table = id_rows(self._new_ids[ids], lengths, self.max_length)
        table[lengths == 0, 0] = self._unknown
        return table

    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Like `known`, but for the token ids of texts."""  # shape: (N, T) -> (N,)
        nothing = [0, self._unknown, *self.encode([""])[0]]  # a text without words has special tokens only
        return np.asarray((~np.isin(ids, nothing)).any(axis=1))

    def with_length(self, max_length: int) -> Subwords:
        """Return the same tokens with another `max_length`."""
        made = Subwords(self.tokenizer, max_length, special_tokens=self.special_tokens)
        made.frequencies, made.num_texts = self.frequencies, self.num_texts
        return made

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the frequencies into a model folder."""
        facts = {
            "max_length": self.max_length,
            "special_tokens": self.special_tokens,
            **self.count_facts(),
        }
        with written(Path(folder) / TOKENIZER) as file:
            file.write(self.tokenizer)
        write_facts(Path(folder) / FILE, facts)

    @classmethod
    def load(cls, folder: Path) -> Subwords:
        """Read back what `save` wrote."""
        path = Path(folder) / FILE
        facts, tokenizer = read_facts(path), _checked_text(Path(folder) / TOKENIZER, REMEDY)
        with naming_file(path):
            options = SubwordsOptions(facts["max_length"])
            loaded = cls(tokenizer, options.max_length, special_tokens=bool(facts["special_tokens"]))
            loaded.read_counts(facts)
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"frequencies": self.frequencies, "num_texts": self.num_texts}
        return _rebuilt, (self.tokenizer, self.max_length, self.special_tokens), state


def _rebuilt(tokenizer: str, max_length: int, special_tokens: bool) -> Subwords:
    return Subwords(tokenizer, max_length, special_tokens=special_tokens)


def _checked_text(path: Path, remedy: str) -> str:
    text = read_text(path, remedy)
    read_tokenizer(text, path)  # only for an error that names the file
    return text


def read_tokenizer(text: str, file: Path | None = None) -> Tokenizer:
    """Return the tokenizer that the text of a `tokenizer.json` describes."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError("sub-words need tokenizers", remedy="pip install 'gandalf-xmc[train]'") from error
    try:
        with _without_panic():
            found = Tokenizer.from_str(text)
    except DataError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"is no tokenizer that can be read ({error})", file=file, remedy=REMEDY) from error
    largest = max(found.get_vocab().values(), default=0)
    what = f"has a token with the number {largest:,}; tables up to it take"
    need_room_for(TOKEN_BYTES * (largest + 1), len(text), file, what)
    return found


@contextmanager
def _without_panic() -> Iterator[None]:
    """Turn a panic of the library, which is no `Exception`, into an error with a sentence."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a class that cannot be imported
            raise
        what = f"the tokenizer of the model breaks off ({str(error).splitlines()[0][:80]})"
        raise DataError(what, remedy=REMEDY) from error


def _with_padding_first(vocabulary: dict[str, int]) -> npt.NDArray[np.int64]:
    ids = np.arange(max(vocabulary.values(), default=-1) + 1)
    padding = next((vocabulary[name] for name in _PADDING if name in vocabulary), None)
    if padding is None:
        return np.concatenate([[-1], ids])
    ids[[0, padding]] = ids[[padding, 0]]
    return ids


def _learn_merges(texts: Iterable[str], size: int) -> str:
    blank = read_tokenizer(json.dumps(_BLANK))
    from tokenizers import trainers

    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[_PADDING[0], UNKNOWN_NAMES[0]],
        show_progress=False,
    )
    blank.train_from_iterator(map(_without_surrogates, texts), trainer)
    return blank.to_str()


# Byte-pair merges, not a unigram model, because they are the same each time they are learnt.
_BLANK = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": _HUMPS}, "content": " "},
            {"type": "Lowercase"},
        ],
    },
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [{"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": False}],
    },
    "model": {"type": "BPE", "unk_token": UNKNOWN_NAMES[0], "fuse_unk": True, "vocab": {}, "merges": []},
}


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
