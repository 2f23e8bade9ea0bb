"""Find the k best labels of each point exactly, without holding the scores of all pairs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.errors import DataError
from gandalf.wide.mixing import NO_LABEL, Floats, Ints, no_labels, pad_row
from gandalf.wide.plain import best_places, label_scores

BestLabels = tuple[Tensor, Tensor]  # label ids and scores, best first; shape of both: (B, k)

BATCH = 1_024  # points that are scored against a block of labels at once
BLOCK = 1 << 14  # labels in a block: with a full batch, 64 MiB of scores
GATHERED = 1 << 24  # numbers of label rows copied at once to score candidates again


class RowBlocks(Protocol):
    """A head that gives rows and biases of a range of labels, or of any labels."""

    num_labels: int

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return rows and biases of the labels from `start` up to `stop`."""  # shape: (C, dim), (C,)
        ...

    def at(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows and biases of the given labels."""  # shape: (..., dim), (...)
        ...


@torch.no_grad()
def top_k(
    x: Tensor,
    head: RowBlocks,
    k: int,
    *,
    exclude: csr_array | None = None,
    block: int = BLOCK,
    batch: int = BATCH,
    precision: torch.dtype = torch.float32,
) -> tuple[Ints, Floats]:
    """Return numbers and scores of the k best labels of each point, best first, ties to the smaller label.

    Pairs stored in `exclude` (N x L) are dropped before the ranking. If fewer than k labels remain, the
    number is -1 and the score -inf. A `precision` below float32 finds 2k + 32 candidates, which are then
    scored again in float32: this is faster and finds nearly always the same labels.
    """
    if k < 1 or block < 1 or batch < 1:
        raise DataError(f"k, block and batch must be at least 1, not {k}, {block} and {batch}")
    if exclude is not None and exclude.shape != (len(x), head.num_labels):
        (rows, columns), expected = exclude.shape, f"{len(x):,} x {head.num_labels:,}"
        raise DataError(f"exclude is {rows:,} x {columns:,} where {expected} is expected")
    exact = precision == torch.float32
    if len(x) == 1 and head.num_labels <= block and exact and x.device.type == "cpu":
        of_one = _best_of_one_point(x, head, k, exclude)
        if of_one is not None:
            return of_one
    search = _BlockSearch(head, [*range(0, head.num_labels, block), head.num_labels], precision)

    def best(points: Tensor, excluded: csr_array | None) -> BestLabels:
        if exact:
            return search.best(points, k, excluded)
        return _rescored(points, head, search.best(points, 2 * k + 32, excluded), k)

    return search_in_batches(best, x, k, exclude, batch)


def search_in_batches(
    best: Callable[[Tensor, csr_array | None], BestLabels],
    x: Tensor,
    k: int,
    exclude: csr_array | None,
    batch: int = BATCH,
) -> tuple[Ints, Floats]:
    """Return the results of a search of some points at a time, in the form of `top_k`."""
    ids, scores = no_labels(len(x), k)
    for start in range(0, len(x), batch):
        rows = slice(start, start + batch)
        found_ids, found_scores = best(x[rows], None if exclude is None else exclude[rows])
        if bool(found_scores.isnan().any()):
            raise DataError("the scores are not numbers", remedy="train again: the training has diverged")
        width = found_ids.shape[1]
        ids[rows, :width] = found_ids.masked_fill(found_scores == -torch.inf, NO_LABEL).cpu().numpy()
        scores[rows, :width] = found_scores.cpu().numpy()
    return ids, scores


def _best_of_one_point(
    x: Tensor, head: RowBlocks, k: int, exclude: csr_array | None
) -> tuple[Ints, Floats] | None:
    """Return the k best labels of one point by NumPy, or None for rows or scores that need `top_k`."""
    rows, bias = (part.detach() for part in head.block(0, head.num_labels))
    if rows.device.type != "cpu" or rows.dtype != torch.float32 or bias.dtype != torch.float32:
        return None
    scores = label_scores(x[0].float().numpy(), rows.numpy(), bias.numpy())  # shape: (L,)
    if np.isnan(scores.max()):
        return None
    if exclude is not None:
        scores[exclude.indices] = -np.inf
    return pad_row(*best_places(scores, k), k)


class _BlockSearch:
    """A pass over all labels, block by block, that keeps the best labels so far."""

    def __init__(self, head: RowBlocks, edges: list[int], precision: torch.dtype) -> None:
        self._head, self._edges, self._precision = head, edges, precision
        # Rounded scores are full of ties, which scoring the candidates again will settle.
        self._best_columns = _best_columns if precision == torch.float32 else _any_best_columns

    def best(self, x: Tensor, k: int, exclude: csr_array | None) -> BestLabels:
        """Return the k best labels of each point, or all labels if there are fewer."""
        ids, scores = torch.empty(len(x), 0, dtype=torch.int64), torch.empty(len(x), 0)
        dropped = _pairs_by_block(exclude, self._edges)
        for (start, stop), (rows, columns) in zip(pairwise(self._edges), dropped, strict=True):
            weights, bias = self._head.block(start, stop)
            weights = weights.to(self._precision)
            x = x.to(weights)
            # The bias is near -log L for all labels. In low precision, adding it would round away the rest.
            of_block = (x @ weights.T).float().add_(bias.float())  # shape: (B, C)
            of_block[rows.to(x.device), columns.to(x.device)] = -torch.inf
            columns, values = self._best_columns(of_block, min(k, stop - start))
            # Labels of earlier blocks have smaller numbers and come first, so a stable sort settles ties.
            ids = torch.cat([ids.to(x.device), columns + start], dim=1)
            scores = torch.cat([scores.to(x.device), values], dim=1)
            ids, scores = _sorted(ids, scores, k)
        return ids, scores


def _best_columns(scores: Tensor, k: int) -> BestLabels:
    """Return columns and values of the k largest of each row, largest first, ties to the left."""
    # shape: (B, k)
    more = min(k + 1, scores.shape[1])
    values, columns = torch.topk(scores, more, dim=1)
    if more > k:
        # torch.topk takes any of equal scores. It matters only if the k-th score has an equal beyond k.
        crowded = values[:, k - 1] == values[:, k]
        values, columns = values[:, :k], columns[:, :k]
        if bool(crowded.any()):
            values, columns = values.clone(), columns.clone()
            ordered = torch.sort(scores[crowded], dim=1, descending=True, stable=True)
            values[crowded], columns[crowded] = ordered.values[:, :k], ordered.indices[:, :k]
    columns, order = torch.sort(columns, dim=1)
    return _sorted(columns, values.gather(1, order), k)


def _any_best_columns(scores: Tensor, k: int) -> BestLabels:
    """Return the same as `_best_columns`, but equal scores in any order."""  # shape: (B, k)
    values, columns = torch.topk(scores, k, dim=1)
    return columns, values


def _sorted(ids: Tensor, scores: Tensor, k: int) -> BestLabels:
    """Return the first k by falling score; equal scores keep their order."""  # shape: (B, k)
    scores, order = torch.sort(scores, dim=1, descending=True, stable=True)
    return ids.gather(1, order[:, :k]), scores[:, :k]


def _pairs_by_block(exclude: csr_array | None, edges: list[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows and columns of the excluded pairs of each block; columns count from the block's start."""
    if exclude is None:
        none = torch.empty(0, dtype=torch.int64)
        yield from ((none, none) for _ in pairwise(edges))
        return
    labels = exclude.indices.astype(np.int64)
    rows = np.repeat(np.arange(exclude.shape[0]), np.diff(exclude.indptr))
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], edges)
    for (first, last), start in zip(pairwise(ends.tolist()), edges[:-1], strict=True):
        chosen = order[first:last]
        yield torch.from_numpy(rows[chosen]), torch.from_numpy(labels[chosen] - start)


def _rescored(x: Tensor, head: RowBlocks, found: BestLabels, k: int) -> BestLabels:
    """Return the k best candidates by their scores in float32."""  # shape: (B, k)
    ids, order = torch.sort(found[0], dim=1)  # so that ties go to the smaller label
    dropped = found[1].gather(1, order) == -torch.inf
    return _sorted(ids, pair_scores(x, head, ids).masked_fill(dropped, -torch.inf), k)


def best_in_block(x: Tensor, head: RowBlocks, block: tuple[int, int], k: int) -> BestLabels:
    """Return the k best labels of a block for each point, best first, ties to the smaller label."""
    start, stop = block
    return _BlockSearch(head, [*range(start, stop, BLOCK), stop], torch.float32).best(x, k, None)


def pair_scores(x: Tensor, head: RowBlocks, ids: Tensor) -> Tensor:
    """Return the score of each point with each of its own candidates, in float32."""  # shape: (B, C)
    step = max(1, GATHERED // max(1, ids.shape[1] * x.shape[1]))
    parts = [_pair_scores(x[i : i + step], head, ids[i : i + step]) for i in range(0, len(x), step)]
    return torch.cat(parts) if parts else x.new_empty(ids.shape)


def _pair_scores(x: Tensor, head: RowBlocks, ids: Tensor) -> Tensor:
    rows, bias = (part.float() for part in head.at(ids))  # shape: (B, C, dim), (B, C)
    # A matrix product may sum equal rows in different orders. This sum gives equal rows equal scores.
    return (x.to(rows)[:, None, :] * rows).sum(dim=2) + bias
