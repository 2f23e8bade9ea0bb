"""One text asked alone is answered as many are, by every way that a predictor knows."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from small_model import small_model

from gandalf.nets.int8_table import Int8Table
from gandalf.predict import one_text
from gandalf.predict.codes import build_codes
from gandalf.predict.index import IndexSearch
from gandalf.predict.predictor import Predictor

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is optional: extra [fast]")
LABELS = [f"word{a}{b} thing{c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abc"]  # 192
TEXTS = [*LABELS[::17], "wordaa wordbb", "thinga", "", "🦄", "wordab 🦄 thingc wordhh"]


@pytest.fixture
def model():
    return small_model("centred", labels=LABELS, ids=False)


def ways(model):
    yield Predictor(model)
    prepared = Predictor(model)
    prepared.prepare()
    yield prepared
    yield Predictor(model, search=IndexSearch(build_codes(model), model.head))


@pytest.mark.parametrize("k", [1, 5, 192])
def test_alone_and_together(model, k, monkeypatch):
    monkeypatch.setattr(one_text, "LEAST", 0)
    for predictor in ways(model):
        ids, scores = predictor.predict(TEXTS, k)
        for text, own_ids, own_scores in zip(TEXTS, ids, scores, strict=True):
            alone_ids, alone = predictor.predict(text, k)
            np.testing.assert_allclose(alone, own_scores, atol=1e-5)
            apart = np.abs(np.diff(own_scores, append=0)) > 1e-4
            apart[1:] &= apart[:-1]
            np.testing.assert_array_equal(alone_ids[apart], own_ids[apart])


@needs_numba
def test_rows_are_rounded_once_it_pays(model, monkeypatch):
    monkeypatch.setattr(one_text, "LEAST", 0)
    predictor = Predictor(model)
    for number in range(one_text.ROUND_AT):
        assert predictor._one_text.rounded is None, number
        predictor.predict("wordaa", 2)
    assert predictor._one_text.rounded is not None
    monkeypatch.setattr(one_text, "MOST", 10)  # not by itself of a large table
    large = Predictor(model)
    for _ in range(one_text.ROUND_AT + 1):
        large.predict("wordaa", 2)
    assert large._one_text.rounded is None and large.prepare() is not None


@needs_numba
def test_rows_that_change_are_seen(model, monkeypatch):
    monkeypatch.setattr(one_text, "LEAST", 0)
    predictor = Predictor(model)
    predictor.prepare()
    with torch.no_grad():
        model.head.rows.mul_(-1.0)
    for text in TEXTS:
        np.testing.assert_allclose(
            predictor.predict(text, 3)[1], predictor.predict([text, ""], 3)[1][0], atol=1e-5
        )


@needs_numba
def test_labels_that_are_added_are_found_by_the_codes_of_the_others(model, monkeypatch):
    monkeypatch.setattr(one_text, "LEAST", 0)
    rounded = Predictor(model).prepare()
    longer = model.add_labels(["wordaa wordbb", "wordcc wordbb"])
    predictor, plain = Predictor(longer, rounded=rounded), Predictor(longer)
    for text in ["wordaa wordbb", "wordcc wordbb", *TEXTS]:
        np.testing.assert_allclose(
            predictor.predict(text, 3)[1], plain.predict([text, ""], 3)[1][0], atol=1e-5
        )
    assert predictor.named("wordaa wordbb", 1)[0][0] == "wordaa wordbb"


def test_scores_that_are_no_numbers_are_told(model):
    model.head.bias.data[3] = torch.nan
    with pytest.raises(ValueError, match="the scores are not numbers"):
        Predictor(model).predict("wordaa", 2)


@pytest.mark.parametrize("kind", ["inception", "rounded rows", "low precision"])
def test_what_is_not_of_this_kind_goes_the_usual_way(kind):
    model = small_model("inception" if kind == "inception" else "centred", labels=LABELS, ids=False)
    if kind == "rounded rows":
        model.head = Int8Table.of(model.head)
    predictor = Predictor(model, precision=torch.bfloat16 if kind == "low precision" else torch.float32)
    assert predictor.prepare() is None
    for text in TEXTS[:3]:
        np.testing.assert_allclose(
            predictor.predict(text, 3)[1], predictor.predict([text, ""], 3)[1][0], atol=1e-3
        )
