"""Many small questions answered in one pass: a server's, that come at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from gandalf.model.calibration import probabilities
from gandalf.predict.predictor import Ids, Predictor, Probabilities
from gandalf.wide.mixing import NO_LABEL


@dataclass(frozen=True)
class Query:
    """Texts, and which labels of them are asked for."""

    texts: tuple[str, ...]
    k: int = 5
    threshold: float | None = None
    allow: tuple[int, ...] | None = None  # only these labels
    deny: tuple[int, ...] = ()  # none of these


Answer = tuple[tuple[tuple[int, float], ...], ...]  # label and probability, best first, of each text


def answer(predictor: Predictor, queries: Sequence[Query]) -> list[Answer]:
    """Return the answer to each query, as if it were asked alone."""
    answers: list[Answer] = [()] * len(queries)
    for ask, places in _groups(queries):
        found = ask(predictor, [queries[at] for at in places])
        for at, (ids, scores) in zip(places, found, strict=True):
            answers[at] = _listed(ids, probabilities(scores, predictor.calibration), queries[at])
    return answers


Found = Iterator[tuple[Ids, Probabilities]]  # ids and scores of each query's texts


def _groups(
    queries: Sequence[Query],
) -> Iterator[tuple[Callable[[Predictor, list[Query]], Found], list[int]]]:
    """Yield places of queries that are answered in one pass, and what answers them.

    Queries that allow about as many labels are together: a shorter list is filled up to the longest.
    """
    groups: dict[int | None, list[int]] = {}
    for at, query in enumerate(queries):
        if query.texts:
            size = None if query.allow is None else len(query.allow).bit_length()
            groups.setdefault(size, []).append(at)
    for size, places in groups.items():
        yield (_anything if size is None else _allowed), places


def _anything(predictor: Predictor, queries: list[Query]) -> Found:
    """Yield the best of all labels."""
    k = min(max(query.k for query in queries), predictor.model.num_labels)
    texts = [text for query in queries for text in query.texts]
    ids, scores = predictor.best(texts, k, _denied(queries, predictor.model.num_labels))
    return _apart(queries, ids, scores)


def _allowed(predictor: Predictor, queries: list[Query]) -> Found:
    """Yield the best of a few labels: only those are scored."""
    chosen = [sorted(set(query.allow or ()) - set(query.deny)) for query in queries]
    width = max(map(len, chosen))
    filled = [[*labels, *([NO_LABEL] * (width - len(labels)))] for labels in chosen]
    counts = [len(query.texts) for query in queries]
    ids = np.repeat(np.array(filled, dtype=np.int64).reshape(len(queries), width), counts, axis=0)
    texts = [text for query in queries for text in query.texts]
    scores = predictor.score(texts, np.maximum(ids, 0))
    ids[~predictor.model.knows(texts)] = NO_LABEL
    scores = np.where(ids == NO_LABEL, -np.inf, scores).astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")
    return _apart(queries, np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def _apart(queries: Sequence[Query], ids: Ids, scores: Probabilities) -> Found:
    """Yield each query's rows."""
    for start, stop in pairwise(np.cumsum([0, *(len(query.texts) for query in queries)]).tolist()):
        yield ids[start:stop], scores[start:stop]


def _denied(queries: Sequence[Query], num_labels: int) -> csr_array | None:
    if not any(query.deny for query in queries):
        return None
    rows = [sorted(set(query.deny)) for query in queries for _ in query.texts]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((label for row in rows for label in row), dtype=np.int64, count=int(indptr[-1]))
    return csr_array((np.ones(len(indices), dtype=bool), indices, indptr), shape=(len(rows), num_labels))


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
