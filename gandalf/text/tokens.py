"""Define the protocol `Tokens`, and load the tokens of a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.text import subwords, words
from gandalf.text.stored import REMEDY


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


class Tokens(Protocol):
    """A fitted vocabulary that turns texts into rows of ids. Every text has at least one id besides
    padding."""

    size: int  # ids lie in [0, size); 0 is padding
    max_length: int
    threaded: bool  # True if `encode` uses all cores

    @property
    def strings(self) -> list[str]:
        """Return the text of each token; "" for padding and other special tokens."""
        ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Return the ids of each text, cut or padded with 0 on the right."""  # shape: (N, max_length)
        ...

    def known(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text with a token that is neither unknown nor special."""
        ...  # shape: (N,)

    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return the same for texts by their ids."""
        ...  # shape: (N, T) -> (N,)

    def with_length(self, max_length: int) -> Tokens:
        """Return the same tokens with another `max_length`."""
        ...

    def idf(self) -> npt.NDArray[np.float32]:
        """Return the IDF weight of each token in the fitted texts; 0 for padding."""
        ...  # shape: (size,)

    def save(self, folder: Path) -> None:
        """Write the vocabulary into a model folder."""
        ...


KINDS: Mapping[str, Callable[[Path], Tokens]] = {  # by the file that only this kind has
    words.FILE: words.Words.load,
    subwords.FILE: subwords.Subwords.load,
}


def load_tokens(folder: str | Path) -> Tokens:
    """Load the tokens of a model folder, of either kind."""
    folder = Path(folder)
    for name, load in KINDS.items():
        if (folder / name).is_file():
            return load(folder)
    names = " or ".join(KINDS)
    raise DataError(f"holds no vocabulary ({names})", file=folder, remedy=REMEDY, kind="missing-file")
