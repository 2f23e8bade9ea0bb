"""Find the best labels by an index, which reads a small part of the rows and misses a few labels.

An index is an HNSW graph (`hnsw`) or a list of codes (`codes`). Labels that an index finds have the scores of
the exact search: candidates of rounded rows are scored again with the head's own rows. Labels that were added
after the index was built are few, and all of them are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.model import Model
from gandalf.model.exact import RowBlocks, pair_scores, top_k
from gandalf.model.part import sample_label_texts
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.wide.mixing import NO_LABEL, Floats, Ints, no_labels, pad_row

RowsKind = Literal["float32", "int8"]
ENOUGH_RECALL, RECALL_AT = 0.98, 10  # recall to reach, and the number of best labels that it is measured on
QUERIES = 1_000  # label texts that measure the recall
TOGETHER = 64  # label texts that are searched at once
SPARE = 16  # candidates beyond 2k that are scored again
FEW = 128  # at most so many candidates are all scored again; narrowing them down first takes longer
STEP = 1 << 14  # rows that are copied at once


class Index(Protocol):
    """An index that finds candidates for the best labels; its recall was measured when it was built."""

    @property
    def labels(self) -> int:
        """Return the number of labels in the index; they are the first labels of the head."""
        ...

    @property
    def exact_scores(self) -> bool:
        """Return True if the index gives the head's own scores."""
        ...

    @property
    def recall(self) -> float:
        """Return the share of the exact search's best labels that the index found."""
        ...

    def candidates(self, x: Floats, number: int) -> tuple[Floats, Ints]:
        """Return scores and numbers of at least `number` candidates for each vector; -1 is no label."""
        ...


class IndexSearch:
    """A search of a head by an index, for a `Predictor`; the head may have more labels than the index."""

    def __init__(self, index: Index, head: RowBlocks) -> None:
        self.index, self.head = index, head

    @torch.no_grad()
    def __call__(self, x: Tensor, k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return numbers and scores of the k best labels that are found, in the form of `top_k`."""
        if exclude is None and self.index.exact_scores and self.head.num_labels == self.index.labels:
            return self._as_found(x, k)
        if len(x) == 1 and exclude is None:
            found = self.search_one(x[0].float().cpu().numpy(), k)
            if found is not None:
                return found
        denied = 0 if exclude is None else int(np.diff(exclude.indptr).max(initial=0))
        number = 2 * k + SPARE + denied
        if number >= self.index.labels // 2:
            return top_k(x, self.head, k, exclude=exclude)  # an index saves nothing for half of the labels
        ids = self.index.candidates(x.float().cpu().numpy(), number)[1]  # shape: (N, number or more)
        ids = ids if ids.shape[1] <= max(number, FEW) else self._narrowed(x, ids, number)
        later = np.arange(self.index.labels, self.head.num_labels)
        ids = np.hstack([ids, np.broadcast_to(later, (len(x), len(later)))])
        ids.sort(axis=1)  # so that ties go to the smaller label
        known = torch.from_numpy(np.maximum(ids, 0)).to(x.device)
        scores: Floats = pair_scores(x, self.head, known).cpu().numpy()
        scores[ids < 0] = -np.inf
        if exclude is not None:
            scores[_pairs(ids, exclude)] = -np.inf
        return _best_candidates(ids, scores, k)

    def search_one(self, x: Floats, k: int) -> tuple[Ints, Floats] | None:
        """Return the k best labels of one vector, or None if k asks for half of the labels or more."""
        # shape: (dim,)
        number, known = 2 * k + SPARE, self.index.labels
        if number >= known // 2:
            return None
        ids = self.index.candidates(x[np.newaxis], number)[1][0]
        ids = np.concatenate([ids[ids >= 0], np.arange(known, self.head.num_labels)])
        rows, bias = self._at(ids)
        if len(ids) > number:
            kept = np.argpartition(rows @ x + bias, len(ids) - number)[len(ids) - number :]
            ids, rows, bias = ids[kept], rows[kept], bias[kept]
        scores = (rows * x).sum(axis=1) + bias  # sums in one order, so that equal rows have equal scores
        order = np.lexsort((ids, -scores))[:k]  # ties to the smaller label
        return pad_row(ids[order], scores[order], k)

    def _at(self, ids: Ints) -> tuple[Floats, Floats]:
        """Return copies of the rows and biases of labels."""
        arrays = self.head.arrays() if isinstance(self.head, Table) else None
        if arrays is not None:
            return arrays[0].take(ids, axis=0), arrays[1].take(ids)
        rows, bias = (part.detach().float().cpu().numpy() for part in self.head.at(torch.from_numpy(ids)))
        return rows, bias

    def _narrowed(self, x: Tensor, ids: Ints, number: int) -> Ints:
        """Return the best of many candidates, by scores whose last digits may differ."""  # (N, number)
        kept = ids[:, :number].copy()
        for at, (vector, own) in enumerate(zip(x, torch.from_numpy(ids).to(x.device), strict=True)):
            rows, bias = self.head.at(own.clamp_min(0))  # the rows of one text stay in the processor's cache
            scores = (rows.float() @ vector.float() + bias.float()).masked_fill(own < 0, -torch.inf)
            kept[at] = own[torch.topk(scores, number).indices].cpu().numpy()
        return kept

    def _as_found(self, x: Tensor, k: int) -> tuple[Ints, Floats]:
        """Return the result of the index without scoring again: its scores are the head's own."""
        scores, ids = self.index.candidates(x.float().cpu().numpy(), min(k, self.index.labels))
        scores = np.where(ids < 0, -np.inf, scores).astype(np.float32)
        order = np.argsort(ids, axis=1)  # so that ties go to the smaller label
        scores = np.take_along_axis(scores, order, axis=1)
        return _best_candidates(np.take_along_axis(ids, order, axis=1), scores, k)


class RecallTest:
    """Measures the recall of an index on served rows, against the exact search on the model's rows."""

    def __init__(self, model: Model, rows: RowsKind, texts: Sequence[str] | None = None) -> None:
        self.head: RowBlocks = model.head
        if rows == "int8" and isinstance(model.head, Table):
            self.head = Int8Table.of(model.head)
        self.x = model.vectors(sample_label_texts(model, QUERIES) if texts is None else texts)
        self.exact = top_k(self.x, model.head, min(RECALL_AT, model.num_labels))[0]

    def __call__(self, index: Index) -> float:
        """Return the share of the exact search's labels that the index finds."""
        search = IndexSearch(index, self.head)
        best = [search(part, self.exact.shape[1])[0] for part in torch.split(self.x, TOGETHER)]
        return recalled(np.concatenate(best), self.exact)


def recalled(found: Ints, exact: Ints) -> float:
    """Return the share of the exact search's labels that were found."""
    hits = sum(len(np.intersect1d(one, other)) for one, other in zip(found, exact, strict=True))
    return hits / max(exact.size, 1)


def row_blocks(head: RowBlocks) -> list[Floats]:
    """Return all rows with the bias as one more number, in blocks."""  # shape of each: (C, dim + 1)
    edges = range(0, head.num_labels, STEP)
    blocks = (head.block(start, min(start + STEP, head.num_labels)) for start in edges)
    return [
        np.hstack([rows.detach().float().cpu().numpy(), bias.detach().float().cpu().numpy()[:, None]])
        for rows, bias in blocks
    ]


def with_one(x: Floats, width: int | None = None) -> Floats:
    """Append a 1 to each vector, for rows with a bias as their last number, and zeros up to `width`."""
    dim = x.shape[1]
    found: Floats = np.zeros((len(x), width or dim + 1), dtype=np.float32)
    found[:, :dim], found[:, dim] = x, 1.0
    return found


def _pairs(ids: Ints, exclude: csr_array) -> npt.NDArray[np.bool_]:
    """Return True for each candidate that is excluded."""  # shape: (N, C)
    found = np.zeros(ids.shape, dtype=bool)
    for at, row in enumerate(ids):
        found[at] = np.isin(row, exclude.indices[exclude.indptr[at] : exclude.indptr[at + 1]])
    return found


def _best_candidates(ids: Ints, scores: Floats, k: int) -> tuple[Ints, Floats]:
    """Return the k best of each row, ties to the first; -1 and -inf if fewer were found."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    all_ids, all_scores = no_labels(len(ids), k)
    all_ids[:, : best.shape[1]] = np.take_along_axis(ids, best, axis=1)
    all_scores[:, : best.shape[1]] = np.take_along_axis(scores, best, axis=1)
    all_ids[all_scores == -np.inf] = NO_LABEL
    return all_ids, all_scores
