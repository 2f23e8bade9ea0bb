"""Load the tokens of a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gandalf.errors import DataError
from gandalf.text import subwords, words
from gandalf.text.stored import REMEDY
from gandalf.text.tokens import Tokens

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
