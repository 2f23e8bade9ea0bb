"""Choose the length of texts in tokens by the data, and count the texts that it cuts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gandalf.data.lengths import length_for
from gandalf.text.table import token_table
from gandalf.text.tokens import Tokens

SAMPLE = 100_000  # texts whose lengths are measured


def with_fitted_length(tokens: Tokens, texts: Sequence[str]) -> Tokens:
    """Return the same tokens with a length chosen by these texts, at most the present length."""
    places = np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(np.int64)
    table = token_table(tokens, [texts[place] for place in places.tolist()])
    return tokens.with_length(length_for((table != 0).sum(axis=1), tokens.max_length))


def count_cut(tokens: Tokens, texts: Sequence[str], table: npt.NDArray[np.int32]) -> int:
    """Return the number of texts that are cut; `table` holds their ids."""
    if table.shape[1] < tokens.max_length:
        return 0
    full = np.flatnonzero(table[:, -1])  # only a text that fills its row can be cut
    if not len(full):
        return 0
    longer = token_table(tokens.with_length(tokens.max_length + 1), [texts[row] for row in full.tolist()])
    return int(np.count_nonzero(longer[:, -1])) if longer.shape[1] > tokens.max_length else 0
