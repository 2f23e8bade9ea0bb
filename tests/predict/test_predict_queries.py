"""Queries answered together: each as if it were asked alone."""

from __future__ import annotations

import pytest
from small_model import LABELS, small_model

from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query, answer

TEXTS = ("gzip", "disk usage of files", "bzip2 files", "", "compress a file")


@pytest.fixture(scope="module")
def predictor():
    return Predictor(small_model())


def alone(predictor, query):
    """By all labels of every text, sorted and filtered by hand."""
    answers = []
    for text in query.texts:
        ids, scores = predictor.predict(text, len(LABELS))
        pairs = zip(ids.tolist(), scores.tolist(), strict=True)
        kept = [(label, score) for label, score in pairs if query.allow is None or label in query.allow]
        kept = [pair for pair in kept if pair[0] not in query.deny]
        kept = [pair for pair in kept if query.threshold is None or pair[1] >= query.threshold]
        answers.append(kept[: query.k])
    return answers


QUERIES = [
    Query(TEXTS[:1], 2),
    Query(TEXTS, 4, threshold=0.2),
    Query(TEXTS[1:3], 5, deny=(1, 1, 4)),
    Query(TEXTS[:2], 3, allow=(4, 0, 2, 0)),
    Query(TEXTS[3:], 1, allow=(1, 2), deny=(2,)),
    Query(TEXTS[:1], 3, allow=()),
    Query((), 3),
    Query(TEXTS[2:3], 50, allow=(3, 1), threshold=0.5),
]


def same(found, expected):
    assert [[label for label, _ in each] for each in found] == [[n for n, _ in each] for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-5)


def test_together_as_alone(predictor):
    for query, found in zip(QUERIES, answer(predictor, QUERIES), strict=True):
        same(found, alone(predictor, query))


@pytest.mark.parametrize("query", QUERIES)
def test_one_alone(predictor, query):
    (found,) = answer(predictor, [query])
    same(found, alone(predictor, query))


def test_no_queries(predictor):
    assert answer(predictor, []) == []
