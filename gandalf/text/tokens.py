"""What every kind of token offers, and how a model folder's are read back."""

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
    """Refuse what is not a list of texts, or anything like one that has a length and can be cut."""
    if isinstance(texts, bytes) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        raise DataError(f"wanted are a text or a list of texts, and this is {_kind(texts)}")
    for at, text in enumerate(texts, start=1):  # type: ignore[arg-type, var-annotated]  # it can be cut
        if not isinstance(text, str):
            raise DataError(f"text {at:,} of the list is {_kind(text)}", remedy="make a text of it: str(...)")


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class Tokens(Protocol):
    """A fitted vocabulary: texts to rows of ids. Every text has at least one id that is not padding."""

    size: int  # ids lie in [0, size); 0 is padding
    max_length: int
    threaded: bool  # whether `encode` uses all cores by itself

    @property
    def strings(self) -> list[str]:
        """The text that each token stands for; "" for padding and other special tokens."""
        ...

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """The ids of each text, cut off or padded with 0 on the right."""  # shape: (N, max_length)
        ...

    def known(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text that has a token which is not the unknown or a special one."""
        ...  # shape: (N,)

    def known_rows(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return the same for texts by their ids."""
        ...  # shape: (N, T) -> (N,)

    def with_length(self, max_length: int) -> Tokens:
        """Return the same tokens, of which so many are read of a text."""
        ...

    def idf(self) -> npt.NDArray[np.float32]:
        """The weight of each token by how few of the fitted texts hold it; 0 for padding."""
        ...  # shape: (size,)

    def save(self, folder: Path) -> None:
        """Write its JSON files into a model folder."""
        ...


KINDS: Mapping[str, Callable[[Path], Tokens]] = {  # by the file that marks them
    words.FILE: words.Words.load,
    subwords.FILE: subwords.Subwords.load,
}


def load_tokens(folder: str | Path) -> Tokens:
    """The tokens saved in a model folder, whichever kind they are."""
    folder = Path(folder)
    for name, load in KINDS.items():
        if (folder / name).is_file():
            return load(folder)
    names = " or ".join(KINDS)
    raise DataError(f"holds no vocabulary ({names})", file=folder, remedy=REMEDY, kind="missing-file")
