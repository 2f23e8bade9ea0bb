"""Search the best labels by four-bit codes of all rows, in an eighth of the bytes or less.

faiss rounds each number of a row to one of sixteen values, and sums scores from tables that fit into a
processor's registers. The labels with the best rounded scores are scored again with the head's own rows.
A server makes this index in seconds at each start, since there is no graph to build.

With many labels the rows are first rotated. Axes along which rows and texts differ most come first; axes
that hardly change a score are left out. Two numbers then share a code, which takes a third of the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gandalf.memory.scan import SAMPLE, make_pair_scan, make_scan, pad_to_even_width, search_scan
from gandalf.model import Model
from gandalf.model.part import sample_label_texts
from gandalf.predict.index import (
    ENOUGH_RECALL,
    QUERIES,
    RecallTest,
    RowsKind,
    row_blocks,
    with_one,
)
from gandalf.wide.mixing import Floats, Ints

DEPTHS = (50, 100, 300, 1_000, 3_000)  # labels to score again; the first depth with enough recall is taken
MANY = 20_000  # with fewer labels rows are not rotated: a search takes 0.1 ms
AXES = 384  # axes that are kept
TEXTS = 4_096  # label texts that show how far texts extend along each axis
DEPTHS_TURNED = (100, 200, 300)  # a greater depth takes longer than a search with all axes
RIDGE = 1e-4  # share of the mean square of a text's numbers that each axis has at least


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of the first labels of a head, the number of labels to score again, and the measured recall."""

    scan: Any  # faiss.IndexPQFastScan of rows with the bias as one more number
    labels: int
    depth: int
    recall: float = 0.0
    queries: int = 0  # number of texts that measured the recall
    turn: Floats | None = None  # rotation of a text's numbers, (dim + 1) x axes; None: rows are not rotated
    exact_scores: ClassVar[bool] = False

    def candidates(self, x: Floats, number: int) -> tuple[Floats, Ints]:
        """Return the best labels by their codes."""
        depth = min(max(self.depth, number), self.labels)
        queries = with_one(x, self.scan.d) if self.turn is None else with_one(x) @ self.turn
        return search_scan(self.scan, queries, depth)

    def __str__(self) -> str:
        kind = (
            "four-bit codes" if self.turn is None else f"four-bit codes of {self.scan.d // 2} pairs of axes"
        )
        return f"{kind}, {self.depth:,} labels scored again"


def build_codes(model: Model, rows: RowsKind = "float32") -> Codes:
    """Make the codes, and choose the least depth with enough recall."""
    test = RecallTest(model, rows)
    if model.num_labels >= MANY:
        harder = RecallTest(model, rows, mixed_halves(sample_label_texts(model, QUERIES)))
        found = _with_enough_depth(_rotated_codes(model, len(harder.x)), DEPTHS_TURNED, harder)
        if found.recall >= ENOUGH_RECALL:
            return found
    scan = make_scan(pad_to_even_width(np.concatenate(row_blocks(model.head))))
    return _with_enough_depth(Codes(scan, model.num_labels, DEPTHS[0], queries=len(test.x)), DEPTHS, test)


def mixed_halves(texts: Sequence[str]) -> list[str]:
    """Return texts that begin like one given text and end like another.

    The model was trained on label texts. On other texts, leaving axes out misses more labels.
    """
    others = np.random.default_rng(0).permutation(len(texts)).tolist()
    both = ((text.split(), texts[other].split()) for text, other in zip(texts, others, strict=True))
    return [" ".join([*first[: (len(first) + 1) // 2], *last[len(last) // 2 :]]) for first, last in both]


def _with_enough_depth(codes: Codes, depths: Sequence[int], test: RecallTest) -> Codes:
    """Return the codes with the first depth that has enough recall, or with the last depth."""
    found = codes
    for depth in depths:
        found = replace(found, depth=min(depth, codes.labels))
        found = replace(found, recall=test(found))
        if found.recall >= ENOUGH_RECALL or depth >= codes.labels:
            break
    return found


def _rotated_codes(model: Model, queries: int) -> Codes:
    """Return codes of the rows along the axes that matter most to scores of label texts."""
    blocks = row_blocks(model.head)
    mean = np.mean([block.mean(axis=0) for block in blocks], axis=0, dtype=np.float32)
    some = np.concatenate([block[:: max(1, model.num_labels // SAMPLE)] for block in blocks]) - mean
    texts = with_one(model.vectors(sample_label_texts(model, TEXTS)).cpu().numpy())
    of_rows, of_texts = axes(some, texts, AXES)
    scan = make_pair_scan(some @ of_rows)
    for block in blocks:
        scan.add((block - mean) @ of_rows)  # the mean row changes all scores of a text alike
    return Codes(scan, model.num_labels, DEPTHS_TURNED[0], queries=queries, turn=of_texts)


def axes(rows: Floats, texts: Floats, number: int) -> tuple[Floats, Floats]:
    """Return a rotation of rows and a rotation of texts that keep the products of rows and texts.

    Rows are weighted by how far texts extend along each axis. The longest axes of the weighted rows are
    kept. Each pair has a long and a short axis, so that all pairs carry about the same information.
    """  # shape of both: (width, number)
    moment = texts.T.astype(np.float64) @ texts / len(texts)
    lengths, directions = np.linalg.eigh(moment)
    lengths = np.sqrt(np.maximum(lengths, RIDGE * np.trace(moment) / len(moment)))
    weighted = rows @ (directions * lengths)
    values, turned = np.linalg.eigh(weighted.T @ weighted)
    kept = turned[:, ::-1][:, : min(number, len(values)) // 2 * 2]
    half = kept.shape[1] // 2
    kept = kept[:, np.column_stack([np.arange(half), 2 * half - 1 - np.arange(half)]).ravel()]
    both = (directions * lengths) @ kept, (directions / lengths) @ kept
    return both[0].astype(np.float32), both[1].astype(np.float32)
