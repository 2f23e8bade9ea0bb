"""The best labels by four-bit codes of all rows: every label is looked at, in an eighth of the bytes.

faiss rounds each number of a row to one of sixteen places, and adds up scores from tables that fit a
processor's registers. The labels that score best so are scored again with the head's own rows. No graph has
to be built, so that an index is made in seconds whenever a server starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from gandalf.memory.scan import make_scan, of_even_width, search_scan
from gandalf.model import Model
from gandalf.model.exact import Head
from gandalf.predict.index import (
    ENOUGH,
    Floats,
    IndexSearch,
    Ints,
    RecallTest,
    RowsKind,
    row_blocks,
    with_one,
)

DEPTHS = (50, 100, 300, 1_000, 3_000)  # labels of a text that are scored again: the first that suffices


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of the first labels of a head, how many of the best are scored again, and the recall it gave."""

    scan: Any  # faiss.IndexPQFastScan, of rows with the bias as one more number
    labels: int
    depth: int
    recall: float = 0.0
    queries: int = 0  # that the recall was measured with
    exact_scores: bool = False

    def candidates(self, x: Tensor, number: int) -> tuple[Floats, Ints]:
        """The best by their codes."""
        places = min(max(self.depth, number), self.labels)
        return search_scan(self.scan, with_one(x, self.scan.d), places)

    def over(self, head: Head) -> IndexSearch:
        """Search the head with it; the head may have more labels than there are codes."""
        return IndexSearch(self, head)

    def __str__(self) -> str:
        return f"four-bit codes, {self.depth:,} labels scored again"


def build_codes(model: Model, rows: RowsKind = "float32") -> Codes:
    """Make the codes, and score as many labels again as the recall asks for."""
    test = RecallTest(model, rows)
    scan = make_scan(of_even_width(np.concatenate(row_blocks(model.head))))
    found = Codes(scan, model.num_labels, DEPTHS[0], queries=len(test.x))
    for depth in DEPTHS:
        found = replace(found, depth=min(depth, model.num_labels))
        found = replace(found, recall=test(found))
        if found.recall >= ENOUGH or depth >= model.num_labels:
            break
    return found
