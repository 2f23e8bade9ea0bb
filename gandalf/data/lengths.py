"""Choose how many tokens of each text are read, by the lengths of the training texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PERCENTILE = 99.5  # percent of the training texts that are read whole
LEAST = 32  # a high minimum costs nothing: a table of ids is only as wide as its longest text
# Read no more of a longer text: a transformer's cost grows with the square of the length, and in a bag of
# words single words lose their weight.
MOST_WORDS, MOST_PIECES = 64, 128
EMPTY_TEXT_REMEDY = "check which column or field holds the texts"


def length_for(lengths: npt.NDArray[np.int64], most: int) -> int:
    """Return the number of tokens that covers PERCENTILE of the texts, within [LEAST, most]."""
    if not len(lengths):
        return min(LEAST, most)
    wanted = int(np.percentile(lengths, PERCENTILE, method="higher"))
    return min(max(wanted, LEAST), most)


def count_empty(texts: Sequence[str]) -> int:
    """Return the number of texts that are empty or blank."""
    return sum(not text or text.isspace() for text in texts)


def cut_sentence(cut: int, texts: int, length: int, unit: str = "tokens") -> str:
    """Return a sentence with the number of texts that are longer than `length` and are cut."""
    are = "is longer than" if cut == 1 else "are longer than"
    return (
        f"{cut:,} of {texts:,} texts ({cut / max(texts, 1):.1%}) {are} {length} {unit} and"
        f" {'is' if cut == 1 else 'are'} cut"
    )
