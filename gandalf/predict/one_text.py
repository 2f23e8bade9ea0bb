"""Find the labels of one text by a network of words in NumPy: PyTorch's calls take longer than the sums."""

from __future__ import annotations

import numpy as np

from gandalf.model import Model
from gandalf.nets.heads import Table
from gandalf.predict.index import IndexSearch
from gandalf.wide.mixing import Floats, Ints, pad_row
from gandalf.wide.plain import best_places, label_scores
from gandalf.wide.rounded import Rounded

ROUND_AT = 10  # the rows are rounded at this text; for fewer texts rounding does not pay
# Sizes of a table (L x dim) that are rounded. With fewer numbers, the product with all rows is as fast as
# with rounded rows. With more numbers, rounding takes too long for a user who waits for one text.
LEAST, MOST = 1 << 20, 1 << 24


class OneText:
    """A fast search for the best labels of one text, with the results of `Predictor.best`.

    The rows are rounded at the text number ROUND_AT, or by a call of `prepare`.
    """

    def __init__(self, network: Model, search: IndexSearch | None, rounded: Rounded | None = None) -> None:
        self._network, self._search = network, search
        self.rounded = rounded
        self._rounded_state: object = None  # of the rows that are rounded; None: given
        self._texts_seen = 0

    def best(self, text: str, k: int) -> tuple[Ints, Floats] | None:
        """Return label numbers and scores, 1 x k, or None if only the general search can answer."""
        encoder, tokens = self._network.encoder, self._network.tokens
        plain = encoder.plain()
        if plain is None:
            return None
        ids = tokens.encode([text])
        if not tokens.known_rows(ids)[0]:
            return pad_row(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), k)
        x = plain(ids[0])
        return self._search_rows(x, k) if self._search is None else self._search.search_one(x, k)

    def prepare(self) -> None:
        """Round the rows now if they are many, so that no later text waits for it."""
        arrays = self._arrays()
        if arrays is not None and arrays[0].size >= LEAST:
            self._round(*arrays)

    def _search_rows(self, x: Floats, k: int) -> tuple[Ints, Floats] | None:
        arrays = self._arrays()
        if arrays is None:
            return None
        rows, bias = arrays
        self._texts_seen += 1
        if self._texts_seen == ROUND_AT and self.rounded is None and LEAST <= rows.size <= MOST:
            self._round(rows, bias)
        found = None
        if self.rounded is not None and self._is_current():
            found = self.rounded.best(x, k, rows, bias)
        if found is None:
            scores = label_scores(x, rows, bias)
            if np.isnan(scores.max()):
                return None
            found = best_places(scores, k)
        return pad_row(*found, k)

    def _round(self, rows: Floats, bias: Floats) -> None:
        self.rounded = Rounded.of(rows, bias)
        self._rounded_state = self._state()

    def _is_current(self) -> bool:
        return self._rounded_state is None or self._rounded_state == self._state()

    def _state(self) -> tuple[int, int]:
        """Return numbers that change when the rows are replaced or written to."""
        rows = self._network.head.rows
        return rows.data_ptr(), rows._version

    def _arrays(self) -> tuple[Floats, Floats] | None:
        head = self._network.head
        return head.arrays() if isinstance(head, Table) else None
