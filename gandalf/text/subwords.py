"""Sub-words as tokens, through the `tokenizers` library: learnt from the texts, or a pre-trained model's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.text.frequencies import document_frequencies, inverse_frequencies
from gandalf.text.id_rows import id_rows
from gandalf.text.stored import REMEDY, counts_of, need_length, read_facts, read_text, understood, write_facts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE, TOKENIZER = "subwords.json", "tokenizer.json"
_PADDING, UNKNOWN_NAMES = ("[PAD]", "<pad>", "<|pad|>"), ("[UNK]", "<unk>", "<|unk|>")
# Where a word begins inside another: at the capital in camelCase, at the last capital of HTTPServer.
_HUMPS = r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})"


@dataclass(frozen=True)
class SubwordsOptions:
    """How sub-words are learnt."""

    max_length: int = 32  # tokens of a text; what follows is cut off
    size: int = 30_000  # of the vocabulary, unless there are more characters, each a token in any case

    def __post_init__(self) -> None:
        need_length(self.max_length)
        for name, least in (("max_length", 1), ("size", 3)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise DataError(f"{name} is {value!r}; it must be a whole number of at least {least}")


class Subwords:
    """The tokens of a `tokenizer.json`, with padding moved to id 0 where it stands elsewhere.

    `tokenizer_ids` holds the file's own id of each of ours, which is its row in a pre-trained table.
    """

    threaded = True  # `encode` uses all cores by itself

    def __init__(self, tokenizer: str, max_length: int, *, special_tokens: bool = False) -> None:
        self.tokenizer, self.max_length, self.special_tokens = tokenizer, max_length, special_tokens
        self._model = read_tokenizer(tokenizer)
        added = self._model.num_special_tokens_to_add(False) if special_tokens else 0
        if max_length <= added:
            what = f"a text of {max_length} tokens has no room beside the tokenizer's {added} special ones"
            raise DataError(what, remedy="raise max_length")
        self._model.no_padding()
        self._model.enable_truncation(max_length)
        self._model.encode_special_tokens = True  # "[PAD]" written in a text is text
        vocabulary = self._model.get_vocab()
        self.tokenizer_ids = _with_padding_first(vocabulary)  # shape: (size,), -1 for padding of our own
        self.size = len(self.tokenizer_ids)
        self._ours = np.zeros(int(self.tokenizer_ids.max(initial=0)) + 1, dtype=np.int32)
        used = self.tokenizer_ids >= 0
        self._ours[self.tokenizer_ids[used]] = np.flatnonzero(used)
        unknown = next((vocabulary[name] for name in UNKNOWN_NAMES if name in vocabulary), None)
        self._unknown = 1 if unknown is None else int(self._ours[unknown])  # stands for a text without tokens
        self.frequencies = np.zeros(self.size, dtype=np.int64)  # shape: (size,), texts that hold each token
        self.num_texts = 0  # that the frequencies were counted in

    @classmethod
    def fit(
        cls, texts: Iterable[str], options: SubwordsOptions | None = None, *, workers: int | None = None
    ) -> Subwords:
        """Learn byte-pair merges from the texts, in two passes over them (an iterator is kept in memory)."""
        options = options or SubwordsOptions()
        if iter(texts) is texts:
            texts = list(texts)
        fitted = cls(_learn(texts, options.size), options.max_length)
        return fitted.counted(texts, workers=workers)

    @classmethod
    def from_file(cls, path: str | Path, *, max_length: int = 32) -> Subwords:
        """The tokens of a local `tokenizer.json`, or of a folder that holds one, special tokens included."""
        path = Path(path)
        path = path / TOKENIZER if path.is_dir() else path
        text = _checked_text(path, "name the folder or file of a tokenizer")
        return cls(text, max_length, special_tokens=True)

    def counted(self, texts: Iterable[str], *, workers: int | None = None) -> Subwords:
        """The same tokens with the frequencies of these texts, for `idf`."""
        counted = Subwords(self.tokenizer, self.max_length, special_tokens=self.special_tokens)
        counted.frequencies, counted.num_texts = document_frequencies(self, texts, workers=workers)
        return counted

    @property
    def strings(self) -> list[str]:
        """The text that each token stands for; "" for padding and other special tokens."""
        decoded = [
            "" if number < 0 else self._model.decode([number]) for number in self.tokenizer_ids.tolist()
        ]
        return [text.removeprefix("##").strip() for text in decoded]

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """The ids of each text, cut off or padded with 0 on the right."""
        try:
            found = self._model.encode_batch_fast(texts, add_special_tokens=self.special_tokens)
        except TypeError:  # half a surrogate pair, which is no text to the library
            found = self._model.encode_batch_fast(
                [_whole(text) for text in texts], add_special_tokens=self.special_tokens
            )
        lengths = np.array([len(row) for row in found], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(row.ids for row in found), np.int64, int(lengths.sum()))
        table = id_rows(self._ours[ids], lengths, self.max_length)
        table[lengths == 0, 0] = self._unknown
        return table

    def known(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text that has a token which is not the unknown or a special one."""
        return self.known_rows(self.encode(texts))  # shape: (N,)

    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return the same for texts by their ids."""  # shape: (N, T) -> (N,)
        nothing = [0, self._unknown, *self.encode([""])[0]]  # a text without words has the special ones alone
        return np.asarray((~np.isin(ids, nothing)).any(axis=1))

    def with_length(self, max_length: int) -> Subwords:
        """Return the same tokens, of which so many are read of a text."""
        made = Subwords(self.tokenizer, max_length, special_tokens=self.special_tokens)
        made.frequencies, made.num_texts = self.frequencies, self.num_texts
        return made

    def idf(self) -> npt.NDArray[np.float32]:
        """The weight of each token by how few of the counted texts hold it; 0 for padding."""
        return inverse_frequencies(self.frequencies, self.num_texts)

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the frequencies into a model folder."""
        facts = {
            "max_length": self.max_length,
            "special_tokens": self.special_tokens,
            "num_texts": self.num_texts,
            "frequencies": self.frequencies.tolist(),
        }
        with written(Path(folder) / TOKENIZER) as file:
            file.write(self.tokenizer)
        write_facts(Path(folder) / FILE, facts)

    @classmethod
    def load(cls, folder: Path) -> Subwords:
        """Read back what `save` wrote."""
        path = Path(folder) / FILE
        facts, tokenizer = read_facts(path), _checked_text(Path(folder) / TOKENIZER, REMEDY)
        with understood(path):
            options = SubwordsOptions(facts["max_length"])
            loaded = cls(tokenizer, options.max_length, special_tokens=bool(facts["special_tokens"]))
            loaded.frequencies = counts_of(facts["frequencies"], loaded.size)
            loaded.num_texts = int(counts_of([facts["num_texts"]], 1)[0])
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"frequencies": self.frequencies, "num_texts": self.num_texts}
        return _rebuilt, (self.tokenizer, self.max_length, self.special_tokens), state


def _rebuilt(tokenizer: str, max_length: int, special_tokens: bool) -> Subwords:
    return Subwords(tokenizer, max_length, special_tokens=special_tokens)


def _checked_text(path: Path, remedy: str) -> str:
    text = read_text(path, remedy)
    read_tokenizer(text, path)  # for the name of the file in the error
    return text


def read_tokenizer(text: str, file: Path | None = None) -> Tokenizer:
    """The tokenizer that the text of a `tokenizer.json` describes."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError("sub-words need tokenizers", remedy="pip install 'gandalf-xmc[train]'") from error
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"is no tokenizer that can be read ({error})", file=file, remedy=REMEDY) from error


def _with_padding_first(vocabulary: dict[str, int]) -> npt.NDArray[np.int64]:
    ids = np.arange(max(vocabulary.values(), default=-1) + 1)
    padding = next((vocabulary[name] for name in _PADDING if name in vocabulary), None)
    if padding is None:
        return np.concatenate([[-1], ids])
    ids[[0, padding]] = ids[[padding, 0]]
    return ids


def _learn(texts: Iterable[str], size: int) -> str:
    blank = read_tokenizer(json.dumps(_BLANK))
    from tokenizers import trainers

    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[_PADDING[0], UNKNOWN_NAMES[0]],
        show_progress=False,
    )
    blank.train_from_iterator(map(_whole, texts), trainer)
    return blank.to_str()


# Merges rather than a unigram model: learnt twice from the same texts they are the same.
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


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
