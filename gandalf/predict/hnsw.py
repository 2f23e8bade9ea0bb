"""Search an HNSW graph of faiss: it links each label to similar labels, and a search follows the links."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gandalf.memory.scan import need_faiss
from gandalf.model import Model
from gandalf.model.exact import RowBlocks
from gandalf.predict.index import ENOUGH_RECALL, RecallTest, RowsKind, row_blocks, with_one
from gandalf.wide.mixing import Floats, Ints

LINKS, BUILD_WIDTH = 32, 200  # links of a label; candidates kept while the graph is built (efConstruction)
WIDTHS = (64, 128, 256, 512, 1_024)  # candidates kept in a search (efSearch); the first with enough recall


@dataclass(frozen=True, eq=False)
class Hnsw:
    """An HNSW graph over the first labels of a head, its search width, and the measured recall."""

    graph: Any  # faiss.IndexHNSWFlat or IndexHNSWSQ of rows with the bias as one more number
    labels: int  # number of labels in the graph
    width: int
    recall: float
    queries: int  # number of texts that measured the recall
    rows: RowsKind = "float32"

    @property
    def exact_scores(self) -> bool:
        """Return True if the graph holds the head's own rows, not rounded rows."""
        return self.rows == "float32"

    def candidates(self, x: Floats, number: int) -> tuple[Floats, Ints]:
        """Return the best labels that a search of the graph reaches."""
        import faiss

        library: Any = faiss
        width = library.SearchParametersHNSW(efSearch=max(self.width, number))
        found: tuple[Floats, Ints] = self.graph.search(with_one(x), number, params=width)
        return found

    def __str__(self) -> str:
        return f"hnsw index, search width {self.width:,}"


def build_hnsw(model: Model, rows: RowsKind = "float32") -> Hnsw:
    """Build the graph, and choose the least search width with enough recall."""
    test = RecallTest(model, rows)
    found = Hnsw(_graph(model.head, rows), model.num_labels, WIDTHS[0], 0.0, len(test.x), rows)
    for width in WIDTHS:
        found = replace(found, width=width)
        found = replace(found, recall=test(found))
        if found.recall >= ENOUGH_RECALL:
            break
    return found


def _graph(head: RowBlocks, rows: RowsKind) -> Any:  # noqa: ANN401  faiss has no types
    blocks = row_blocks(head)
    graph = empty_graph(blocks[0].shape[1] - 1, rows)
    if not graph.is_trained:
        graph.train(np.concatenate(blocks[:8]))  # finds the range of each number
    for block in blocks:
        graph.add(block)
    return graph


def empty_graph(dim: int, rows: RowsKind) -> Any:  # noqa: ANN401  faiss has no types
    """Return an HNSW graph without labels."""
    library = need_faiss()
    kind, eight_bits = library.METRIC_INNER_PRODUCT, library.ScalarQuantizer.QT_8bit
    graph: Any = (
        library.IndexHNSWFlat(dim + 1, LINKS, kind)
        if rows == "float32"
        else library.IndexHNSWSQ(dim + 1, eight_bits, LINKS, kind)
    )
    graph.hnsw.efConstruction = BUILD_WIDTH
    return graph
