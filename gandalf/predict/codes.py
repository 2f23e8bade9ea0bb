"""The best labels by four-bit codes of all rows: every label is looked at, in an eighth of the bytes or less.

faiss rounds numbers of a row to one of sixteen places, and adds up scores from tables that fit a processor's
registers. The labels that score best so are scored again with the head's own rows. No graph has to be built,
so that an index is made in seconds whenever a server starts.

Of many labels the rows are first turned: axes along which rows and texts differ most come first, and those
that hardly change a score are left out. Two numbers then share a code, which takes a third of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gandalf.memory.scan import SAMPLE, make_scan, make_short_scan, of_even_width, search_scan
from gandalf.model import Model
from gandalf.model.exact import RowBlocks
from gandalf.predict.index import (
    ENOUGH,
    Floats,
    IndexSearch,
    Ints,
    RecallTest,
    RowsKind,
    asked,
    row_blocks,
    with_one,
)

DEPTHS = (50, 100, 300, 1_000, 3_000)  # labels of a text that are scored again: the first that suffices
MANY = 20_000  # labels from which on rows are turned; a search of fewer takes a tenth of a millisecond
AXES = 384  # that are kept
TEXTS = 4_096  # of labels, by which it is known how far texts go along each axis
DEPTHS_TURNED = (100, 200, 300)  # more would take longer than all axes
RIDGE = 1e-4  # of the mean square of a text's numbers: no axis is without texts


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of the first labels of a head, how many of the best are scored again, and the recall it gave."""

    scan: Any  # faiss.IndexPQFastScan, of rows with the bias as one more number
    labels: int
    depth: int
    recall: float = 0.0
    queries: int = 0  # that the recall was measured with
    turn: Floats | None = None  # (dim + 1) x axes, of a text's numbers; None: the rows were not turned
    exact_scores: bool = False

    def candidates(self, x: Floats, number: int) -> tuple[Floats, Ints]:
        """The best by their codes."""
        places = min(max(self.depth, number), self.labels)
        asked = with_one(x, self.scan.d) if self.turn is None else with_one(x) @ self.turn
        return search_scan(self.scan, asked, places)

    def over(self, head: RowBlocks) -> IndexSearch:
        """Search the head with it; the head may have more labels than there are codes."""
        return IndexSearch(self, head)

    def __str__(self) -> str:
        kind = (
            "four-bit codes" if self.turn is None else f"four-bit codes of {self.scan.d // 2} pairs of axes"
        )
        return f"{kind}, {self.depth:,} labels scored again"


def build_codes(model: Model, rows: RowsKind = "float32") -> Codes:
    """Make the codes, and score as many labels again as the recall asks for."""
    test = RecallTest(model, rows)
    if model.num_labels >= MANY:
        harder = RecallTest(model, rows, halves(asked(model)))
        found = _deep_enough(_turned(model, len(harder.x)), DEPTHS_TURNED, harder)
        if found.recall >= ENOUGH:
            return found
    scan = make_scan(of_even_width(np.concatenate(row_blocks(model.head))))
    return _deep_enough(Codes(scan, model.num_labels, DEPTHS[0], queries=len(test.x)), DEPTHS, test)


def halves(texts: Sequence[str]) -> list[str]:
    """Return texts that begin as one of the given and end as another.

    Labels' own texts were trained on: of texts that were not, axes that are left out miss more labels.
    """
    others = np.random.default_rng(0).permutation(len(texts)).tolist()
    both = ((text.split(), texts[other].split()) for text, other in zip(texts, others, strict=True))
    return [" ".join([*first[: (len(first) + 1) // 2], *last[len(last) // 2 :]]) for first, last in both]


def _deep_enough(codes: Codes, depths: Sequence[int], test: RecallTest) -> Codes:
    """Return the codes with the first depth at which enough is found, or with the last."""
    found = codes
    for depth in depths:
        found = replace(found, depth=min(depth, codes.labels))
        found = replace(found, recall=test(found))
        if found.recall >= ENOUGH or depth >= codes.labels:
            break
    return found


def _turned(model: Model, queries: int) -> Codes:
    """Return codes of the rows along the axes that matter most to scores of label texts."""
    blocks = row_blocks(model.head)
    mean = np.mean([block.mean(axis=0) for block in blocks], axis=0, dtype=np.float32)
    some = np.concatenate([block[:: max(1, model.num_labels // SAMPLE)] for block in blocks]) - mean
    of_rows, of_texts = axes(some, with_one(model.vectors(asked(model, TEXTS)).cpu().numpy()), AXES)
    scan = make_short_scan(some @ of_rows)
    for block in blocks:
        scan.add((block - mean) @ of_rows)  # the mean row adds the same to all scores of a text
    return Codes(scan, model.num_labels, DEPTHS_TURNED[0], queries=queries, turn=of_texts)


def axes(rows: Floats, texts: Floats, number: int) -> tuple[Floats, Floats]:
    """Return what turns rows, and what turns texts, such that the products of both stay.

    Rows are weighed by how far texts go along each axis; of the axes of the weighed rows the longest are
    kept. A long axis stands beside a short one, so that each pair has about as much to tell.
    """  # shape of both: (width, number)
    moment = texts.T.astype(np.float64) @ texts / len(texts)
    lengths, directions = np.linalg.eigh(moment)
    lengths = np.sqrt(np.maximum(lengths, RIDGE * np.trace(moment) / len(moment)))
    weighed = rows @ (directions * lengths)
    values, turned = np.linalg.eigh(weighed.T @ weighed)
    kept = turned[:, ::-1][:, : min(number, len(values)) // 2 * 2]
    half = kept.shape[1] // 2
    kept = kept[:, np.column_stack([np.arange(half), 2 * half - 1 - np.arange(half)]).ravel()]
    both = (directions * lengths) @ kept, (directions / lengths) @ kept
    return both[0].astype(np.float32), both[1].astype(np.float32)
