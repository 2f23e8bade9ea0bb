"""How many tokens of a text are read, by the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PERCENTILE = 99.5  # of the training texts that are read whole
LEAST = 32  # room that is not filled costs nothing: tables are as wide as their longest text
# A longer text is a document. The layers of a transformer cost the square of it, a bag drowns in it.
MOST_WORDS, MOST_PIECES = 64, 128
WHICH_FIELD = "check which column or field holds the texts"  # where texts are empty


def length_for(lengths: npt.NDArray[np.int64], most: int) -> int:
    """Return the number of tokens to read of a text: nearly all texts whole, within [LEAST, most]."""
    if not len(lengths):
        return min(LEAST, most)
    wanted = int(np.percentile(lengths, PERCENTILE, method="higher"))
    return min(max(wanted, LEAST), most)


def count_empty(texts: Sequence[str]) -> int:
    """Return how many texts are empty or nothing but blanks."""
    return sum(not text or text.isspace() for text in texts)


def cut_sentence(cut: int, texts: int, length: int, unit: str = "tokens") -> str:
    """Say how many texts are longer than what is read of them."""
    are = "is longer than" if cut == 1 else "are longer than"
    return (
        f"{cut:,} of {texts:,} texts ({cut / max(texts, 1):.1%}) {are} {length} {unit} and"
        f" {'is' if cut == 1 else 'are'} cut"
    )
