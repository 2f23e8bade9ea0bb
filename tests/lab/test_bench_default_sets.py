"""Sets of other regimes are made of training points alone, each as its name says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from bench import default_sets
from bench.default_sets import DERIVED, TITLES, cipher_texts, code_labels, join_titles, keep_frequent
from gandalf import Dataset, Splits, synthetic
from gandalf.metrics.predictions import need_test_points as points_of

OTHERS = "a text of the test split"


def some_splits() -> Splits:
    found = synthetic(400, 40, seed=3).splits
    test = points_of(found)
    return replace(found, test=replace(test, texts=[OTHERS] * len(test)))


@pytest.mark.parametrize("name", DERIVED)
def test_no_text_of_the_test_split_is_in_a_derived_set(name, monkeypatch):
    monkeypatch.setattr(default_sets, "MANY_POINTS", 200)
    found = DERIVED[name][1](some_splits())
    for points in (found.train, points_of(found)):
        assert len(points) and all(np.diff(points.targets.indptr))
        if name != "cooking-cipher":
            assert not any(OTHERS in text for text in points.texts)
    assert not set(found.train.texts) & set(points_of(found).texts)


def test_codes_say_nothing_and_ciphers_keep_which_words_are_the_same():
    splits = some_splits()
    assert code_labels(splits).train.label_texts[:2] == ["t0000", "t0001"]
    assert list(code_labels(splits).train.texts) == list(splits.train.texts)
    ciphered = cipher_texts(splits).train
    assert len(set(ciphered.texts)) == len(set(splits.train.texts))
    assert not set("".join(ciphered.texts).lower()) & set(default_sets.LATIN)


def test_frequent_labels_are_kept_one_for_each_point():
    splits = some_splits()
    found = keep_frequent(splits, 5)
    assert found.train.num_labels <= 5 and (np.diff(found.train.targets.indptr) == 1).all()
    frequencies = splits.train.label_frequencies
    assert len(found.train) == np.count_nonzero(
        np.diff(csr_array(splits.train.targets[:, np.argsort(-frequencies, kind="stable")[:5]]).indptr)
    )


def test_a_document_has_titles_of_one_label_and_the_labels_of_a_quarter_of_them():
    titles = [f"title {number}" for number in range(2 * TITLES + 1)]
    rows = [(row, 0) for row in range(len(titles))] + [(row, 1) for row in range(4)] + [(20, 2)]
    at, labels = zip(*rows, strict=True)
    targets = csr_array((np.ones(len(rows), dtype=np.float32), (at, labels)), shape=(len(titles), 3))
    points = Dataset(targets, texts=titles, label_texts=["a", "b", "c"])
    found = join_titles(Splits(train=points, test=points, name="made up")).train
    assert found.texts[0] == ". ".join(titles[:TITLES]) and found.texts[2] == titles[-1]
    assert [found.targets[[row]].indices.tolist() for row in range(3)] == [[0, 1], [0], [0]]
    assert found.label_texts == ["a", "b"]  # no document has the third
