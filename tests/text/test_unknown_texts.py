"""A text of which nothing is known has no labels, and whoever asks is told so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run
from small_model import small_model

from gandalf.model import save_model
from gandalf.predict.files import predict_chunks, write_predictions
from gandalf.predict.inputs import InputChunk
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query, answer
from gandalf.text.subwords import Subwords, SubwordsOptions
from gandalf.text.words import Words, WordsOptions

UNKNOWN = ("🦄🦄", "", "...", "東京")
TEXTS = ["compress a file", "compress files", "open a window", "draw a window"] * 3


@pytest.mark.parametrize(
    "tokens",
    [Words.fit(TEXTS, WordsOptions(pieces=20)), Subwords.fit(TEXTS, SubwordsOptions(size=60))],
    ids=["words", "subwords"],
)
def test_tokens_say_what_they_know(tokens):
    assert tokens.known(TEXTS).all() and tokens.known(["🦄 file"]).tolist() == [True]
    assert tokens.known(UNKNOWN).tolist() == [False] * len(UNKNOWN)
    assert tokens.known([]).shape == (0,)


def test_special_tokens_are_no_knowledge(small_pretrained):
    tokens = Subwords.from_file(small_pretrained)
    assert tokens.special_tokens
    assert tokens.known(UNKNOWN).tolist() == [False] * len(UNKNOWN)


@pytest.fixture(scope="module")
def predictor():
    return Predictor(small_model())


def test_they_get_no_labels(predictor):
    ids, scores = predictor.predict(["compress a file", *UNKNOWN], 3)
    assert (ids[0] >= 0).all() and (ids[1:] == -1).all() and (scores[1:] == 0).all()
    known, _ = predictor.predict(["compress a file"], 3)
    assert np.array_equal(ids[:1], known)
    assert predictor.named("🦄🦄") == []


def test_nor_where_only_some_labels_are_asked_for(predictor):
    every, few = answer(
        predictor, [Query(("🦄🦄", "compress a file")), Query(("🦄🦄", "compress a file"), allow=(0, 1))]
    )
    assert every[0] == few[0] == () and every[1] and len(few[1]) == 2


def test_files_have_no_labels_for_them(predictor, tmp_path):
    chunks = iter([InputChunk(["🦄🦄", "compress a file"])])
    write_predictions(tmp_path / "found.jsonl", predict_chunks(predictor, chunks, 3, None), predictor.model)
    first, second = map(json.loads, (tmp_path / "found.jsonl").read_text("utf-8").splitlines())
    assert first["labels"] == [] and len(second["labels"]) == 3


def test_the_command_says_so(predictor, tmp_path):
    save_model(predictor.model, tmp_path / "m")
    result = run("predict", str(tmp_path / "m"), "🦄🦄")
    assert result.exit_code == 0 and result.stdout == "nothing in this text is known to the model\n"
    found = json.loads(run("predict", str(tmp_path / "m"), "🦄🦄", "--json").stdout)
    assert found == {"text": "🦄🦄", "labels": [], "known": False}
    assert json.loads(run("predict", str(tmp_path / "m"), "compress", "--json").stdout)["known"]
