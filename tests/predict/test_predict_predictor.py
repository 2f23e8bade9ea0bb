"""The predictor against the definition: encode, score every label, drop, sort, calibrate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.special import expit
from small_model import LABELS, OPTIONS, small_model

from gandalf.predict import predictor as module
from gandalf.predict.predictor import Predictor

TWIN = {4: 0}
TEXTS = ["gzip a file", "bzip2", "disk usage of files", "", "gzip usage", "etwas anderes"]


def by_definition(model, text, k, dropped=(), threshold=0.0):
    if not text:  # of which nothing is known
        return []
    scores = (model.vectors([text]) @ model.head.rows.T + model.head.bias)[0].tolist()
    left = sorted(
        (label for label in range(len(scores)) if label not in dropped), key=lambda i: (-scores[i], i)
    )
    slope, offset = (2.0, -0.5) if model.calibration is not None else (1.0, 0.0)
    found = [(label, expit(slope * scores[label] + offset)) for label in left[:k]]
    return [(label, value) for label, value in found if value >= threshold]


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("k", [1, 3, 7])
@torch.no_grad()
def test_equals_the_definition(kind, calibrated, k):
    model = small_model(kind, calibrated=calibrated)
    ids, scores = Predictor(model).predict(TEXTS, k)
    assert ids.shape == scores.shape == (len(TEXTS), k)
    for row, text in enumerate(TEXTS):
        expected = by_definition(model, text, k)
        found = ids[row, : len(expected)]
        if (
            kind == "transformer"
        ):  # two labels have equal rows; products of its vectors differ in the last bit
            assert [TWIN.get(label, label) for label in found.tolist()] == [
                TWIN.get(label, label) for label, _ in expected
            ]
        else:
            assert found.tolist() == [label for label, _ in expected]
        assert len(set(found.tolist())) == len(found)
        np.testing.assert_allclose(scores[row, : len(expected)], [value for _, value in expected], rtol=1e-4)
        assert (ids[row, len(expected) :] == -1).all() and (scores[row, len(expected) :] == 0).all()
        assert len(expected) == (min(k, len(LABELS)) if text else 0)


@torch.no_grad()
def test_one_text_gives_one_row():
    model = small_model()
    ids, scores = Predictor(model).predict("gzip a file", 3)
    many_ids, many_scores = Predictor(model).predict(["gzip a file"], 3)
    assert ids.shape == scores.shape == (3,)
    assert ids.tolist() == many_ids[0].tolist() and scores.tolist() == many_scores[0].tolist()
    assert Predictor(model).predict([], 3)[0].shape == (0, 3)


@torch.no_grad()
def test_excluded_pairs_and_a_threshold(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)  # so that the filter is cut into pieces too
    model = small_model()
    exclude = np.random.default_rng(0).random((len(TEXTS), len(LABELS))) < 0.4
    threshold = 0.2
    ids, scores = Predictor(model).predict(TEXTS, 3, csr_array(exclude), threshold)
    lengths = set()
    for row, text in enumerate(TEXTS):
        expected = by_definition(model, text, 3, np.flatnonzero(exclude[row]), threshold)
        lengths.add(len(expected))
        assert ids[row].tolist() == [label for label, _ in expected] + [-1] * (3 - len(expected))
        assert (scores[row, len(expected) :] == 0).all()
    assert len(lengths) > 1  # the threshold and the filter both left their mark


@torch.no_grad()
def test_names():
    model = small_model()
    predictor = Predictor(model)
    ids, scores = predictor.predict("bzip2 files", 2)
    one = predictor.named("bzip2 files", 2)
    assert one == [(LABELS[i], s) for i, s in zip(ids.tolist(), scores.tolist(), strict=True)]
    assert one[0][0] == "bzip2 files"
    assert predictor.named(["bzip2 files", "gzip"], 2, threshold=1.1) == [[], []]
    assert predictor.named(["bzip2 files"], 2) == [one]
