"""Hooks that refresh, every few steps, hard negatives, frozen rows and means of neighbours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.data.dataset import Dataset
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.model.exact import top_k
from gandalf.nets.encoders import encode_tokens
from gandalf.nets.heads import Composed, Table
from gandalf.train.guidance import Guidance
from gandalf.train.labels import Shortlist
from gandalf.train.loop import Training
from gandalf.train.parallel.gather import merge_best_labels

# Of the index: lists by the root of L, those searched, k-means rounds, rows that k-means wants for each list.
LISTS_PER_ROOT, PROBES, ROUNDS, PER_LIST = 4, 8, 5, 39
Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]  # ids and scores, N x number
ASKED = 1 << 16  # points looked up at once


class Refresh:
    """Hook that gives a shortlist new hard negatives every few steps."""

    def __init__(self, shortlist: Shortlist, hard: int, every: int, dtype: torch.dtype) -> None:
        self.shortlist, self.hard, self.steps, self.dtype = shortlist, hard, every, dtype

    def every(self, training: Training) -> int:
        """Number of steps between two look-ups."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Look up; never ends the training."""
        if self.hard and training.step < training.steps:
            tokens, ranks = training.points.tokens, training.ranks
            vectors = ranks.gather(
                encode_tokens(training.encoder, tokens[ranks.share(len(tokens))]), len(tokens)
            )
            head, own = training.head.plain(), ranks.share(self.shortlist.num_labels)
            hard = min(self.hard, self.shortlist.num_labels)
            ids, scores = _likeliest(vectors, head, hard, self.dtype)
            some = (slice(start, start + ASKED) for start in range(0, len(ids), ASKED))
            found = [merge_best_labels(ranks, ids[rows], scores[rows], own)[0] for rows in some]
            self.shortlist.refresh(np.concatenate(found).astype(np.int32))
        return False


class RefreshRows:
    """Hook that makes the frozen rows of label texts anew every few steps."""

    def __init__(self, head: Composed, every: int) -> None:
        self.head, self.steps = head, every

    def every(self, training: Training) -> int:
        """Number of steps between two refreshes."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make them; never ends the training."""
        self.head.refresh()
        return False


def likeliest(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> npt.NDArray[np.int32]:
    """The labels with the highest scores: by an index on a CPU, by exact products on a GPU."""
    return _likeliest(vectors, head, min(number, head.num_labels), dtype)[0].astype(np.int32)


def _likeliest(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> Found:
    """The same with their scores; -1 and no score where there are fewer labels."""
    if vectors.device.type == "cpu" and (found := _by_index(vectors, head, number)) is not None:
        return found
    return top_k(vectors, head, number, precision=dtype)


def _by_index(vectors: Tensor, head: Table, number: int) -> Found | None:
    """Approximately, by faiss; None where that is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    # The bias is one more number of the row, and 1 one more of the vector.
    rows = np.hstack([head.rows.data.numpy(), head.bias.data.numpy()[:, None]])
    lists = max(1, min(int(LISTS_PER_ROOT * len(rows) ** 0.5), len(rows) // PER_LIST))
    flat = faiss.IndexFlatIP(rows.shape[1])
    index = faiss.IndexIVFFlat(flat, rows.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = ROUNDS
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    found = [index.search(_with_one(part.numpy()), number) for part in torch.split(vectors, ASKED)]
    ids = np.concatenate([each for _, each in found])  # shape: (N, number)
    return ids, np.where(ids >= 0, np.concatenate([each for each, _ in found]), -np.inf)


def _with_one(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])


GRAPH = "shrunk"  # targets of the graph that guides, whatever those of the label points are


def guidance(rest: Dataset, weight: float) -> Guidance | None:
    """Return the guidance by the graph of these training points; None without a weight."""
    return Guidance(label_graph(rest, GraphOptions(GRAPH)).matrix, weight) if weight else None


class RefreshMeans:
    """Hook that makes the means of neighbours anew from time to time."""

    def __init__(self, guide: Guidance, tokens: npt.NDArray[np.int32], every: int) -> None:
        self.guide, self.tokens, self.steps = guide, tokens, every

    def every(self, training: Training) -> int:
        """Return the number of steps between two refreshes."""
        return self.steps

    def __call__(self, training: Training) -> bool:
        """Make them; never end the training."""
        if training.step < training.steps:
            self.guide.refresh(encode_tokens(training.encoder, self.tokens))
        return False
