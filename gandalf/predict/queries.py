"""Many small questions answered in one pass: a server's, that come at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from gandalf.model.exact import pair_scores
from gandalf.predict.predictor import Ids, Predictor, Probabilities, probabilities


@dataclass(frozen=True)
class Query:
    """Texts, and which labels of them are asked for."""

    texts: tuple[str, ...]
    k: int = 5
    threshold: float | None = None
    allow: tuple[int, ...] | None = None  # only these labels
    deny: tuple[int, ...] = ()  # none of these


Answer = tuple[tuple[tuple[int, float], ...], ...]  # label and probability, best first, of each text


@torch.no_grad()
def answer(predictor: Predictor, queries: Sequence[Query]) -> list[Answer]:
    """The answer to each query, as if it were asked alone."""
    vectors = predictor.network.vectors([text for query in queries for text in query.texts])
    ends = np.cumsum([0, *(len(query.texts) for query in queries)]).tolist()
    parts = [vectors[start:end] for start, end in pairwise(ends)]
    answers: list[Answer] = [()] * len(queries)
    free = [at for at, query in enumerate(queries) if query.allow is None and query.texts]
    found = _anything(predictor, [queries[at] for at in free], [parts[at] for at in free])
    for at, (ids, scores) in zip(free, found, strict=True):
        answers[at] = _listed(ids, scores, queries[at])
    for at, query in enumerate(queries):
        if query.allow is not None and query.texts:
            answers[at] = _listed(*_allowed(predictor, parts[at], query), query)
    return answers


def _anything(
    predictor: Predictor, queries: Sequence[Query], parts: Sequence[Tensor]
) -> Iterator[tuple[Ids, Probabilities]]:
    """The best of all labels, for all queries at once."""
    if not queries:
        return
    k = min(max(query.k for query in queries), predictor.model.num_labels)
    ids, scores = predictor.search(torch.cat(list(parts)), k, _denied(queries, predictor.model.num_labels))
    start = 0
    for query in queries:
        rows = slice(start, start + len(query.texts))
        yield ids[rows], probabilities(scores[rows], predictor.calibration)
        start = rows.stop


def _denied(queries: Sequence[Query], num_labels: int) -> csr_array | None:
    if not any(query.deny for query in queries):
        return None
    rows = [sorted(set(query.deny)) for query in queries for _ in query.texts]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((label for row in rows for label in row), dtype=np.int64, count=int(indptr[-1]))
    return csr_array((np.ones(len(indices), dtype=bool), indices, indptr), shape=(len(rows), num_labels))


def _allowed(predictor: Predictor, x: Tensor, query: Query) -> tuple[Ids, Probabilities]:
    """The best of a few labels: only those are scored."""
    labels = sorted(set(query.allow or ()) - set(query.deny))
    ids = torch.tensor([labels], dtype=torch.int64, device=x.device).expand(len(x), len(labels))
    scores = pair_scores(x, predictor.head, ids)
    order = torch.sort(scores, dim=1, descending=True, stable=True)
    best = order.indices[:, : query.k]
    found = order.values[:, : query.k].cpu().numpy()
    return ids.gather(1, best).cpu().numpy(), probabilities(found, predictor.calibration)


def _listed(ids: Ids, scores: Probabilities, query: Query) -> Answer:
    least = 0.0 if query.threshold is None else query.threshold
    return tuple(
        tuple(
            (label, score)
            for label, score in zip(labels, of_row, strict=True)
            if label >= 0 and score >= least
        )[: query.k]
        for labels, of_row in zip(ids.tolist(), scores.tolist(), strict=True)
    )
