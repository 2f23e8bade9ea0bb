"""Answer many small queries in one pass, for a server whose requests come at the same time."""

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
    """Texts and the wanted number, probability and choice of labels."""

    texts: tuple[str, ...]
    k: int = 5
    threshold: float | None = None
    allow: tuple[int, ...] | None = None  # predict only these labels
    deny: tuple[int, ...] = ()  # do not predict these labels


Answer = tuple[tuple[tuple[int, float], ...], ...]  # label and probability, best first, of each text


def answer(predictor: Predictor, queries: Sequence[Query]) -> list[Answer]:
    """Return the answer to each query; it does not depend on the other queries."""
    answers: list[Answer] = [()] * len(queries)
    for ask, places in _grouped(queries):
        found = ask(predictor, [queries[at] for at in places])
        for at, (ids, scores) in zip(places, found, strict=True):
            answers[at] = _as_answer(ids, probabilities(scores, predictor.calibration), queries[at])
    return answers


Found = Iterator[tuple[Ids, Probabilities]]  # ids and scores of each query's texts


def _grouped(
    queries: Sequence[Query],
) -> Iterator[tuple[Callable[[Predictor, list[Query]], Found], list[int]]]:
    """Yield groups of queries: a function that answers them in one pass, and their positions.

    Queries that allow similar numbers of labels are in one group, since shorter lists are padded to the
    longest list.
    """
    groups: dict[int | None, list[int]] = {}
    for at, query in enumerate(queries):
        if query.texts:
            size = None if query.allow is None else len(query.allow).bit_length()
            groups.setdefault(size, []).append(at)
    for size, places in groups.items():
        yield (_best_of_all if size is None else _best_of_allowed), places


def _best_of_all(predictor: Predictor, queries: list[Query]) -> Found:
    """Yield the best of all labels, query by query."""
    k = min(max(query.k for query in queries), predictor.model.num_labels)
    texts = [text for query in queries for text in query.texts]
    ids, scores = predictor.best(texts, k, _excluded_pairs(queries, predictor.model.num_labels))
    return _by_query(queries, ids, scores)


def _best_of_allowed(predictor: Predictor, queries: list[Query]) -> Found:
    """Yield the best of the allowed labels, query by query; only these labels are scored."""
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
    return _by_query(
        queries, np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    )


def _by_query(queries: Sequence[Query], ids: Ids, scores: Probabilities) -> Found:
    """Yield the ids and scores of the texts of each query."""
    for start, stop in pairwise(np.cumsum([0, *(len(query.texts) for query in queries)]).tolist()):
        yield ids[start:stop], scores[start:stop]


def _excluded_pairs(queries: Sequence[Query], num_labels: int) -> csr_array | None:
    if not any(query.deny for query in queries):
        return None
    rows = [sorted(set(query.deny)) for query in queries for _ in query.texts]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter((label for row in rows for label in row), dtype=np.int64, count=int(indptr[-1]))
    return csr_array((np.ones(len(indices), dtype=bool), indices, indptr), shape=(len(rows), num_labels))


def _as_answer(ids: Ids, scores: Probabilities, query: Query) -> Answer:
    least = 0.0 if query.threshold is None else query.threshold
    return tuple(
        tuple(
            (label, score)
            for label, score in zip(labels, of_row, strict=True)
            if label >= 0 and score >= least
        )[: query.k]
        for labels, of_row in zip(ids.tolist(), scores.tolist(), strict=True)
    )
