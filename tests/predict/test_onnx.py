"""An exported model gives what the model gives, without PyTorch."""

from __future__ import annotations

import json
import logging
from functools import partial

import command_line
import numpy as np
import pytest
from command_line import python
from small_model import LABELS, OPTIONS, small_model
from small_transformer import small_bert

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.model_folder import SLIM_FACTS
from gandalf.predict.predictor import Predictor
from gandalf.slim import FORMAT, VERSION, SlimPredictor

done = partial(command_line.done, "export")
fails = partial(command_line.fails, "export")

TEXTS = ["gzip a file", "disk usage of bzip2", "", "Ärger", "compress " * 20, "bzip2 files"]


@pytest.fixture(scope="module", params=sorted(OPTIONS))
def exported(request, tmp_path_factory):
    """Folders of a model and of its export."""
    place = tmp_path_factory.mktemp("onnx")
    save_model(small_model(request.param, calibrated=request.param != "inception"), place / "model")
    (place / "slim").mkdir()
    (place / "slim" / SLIM_FACTS).write_text(
        json.dumps({"format": FORMAT, "version": VERSION})
    )  # an earlier one
    said = done(place / "model", place / "slim", "--overwrite")
    assert "differ by at most" in said
    return place / "model", place / "slim"


def test_the_same_labels_and_probabilities(exported):
    model, slim = exported
    expected, found = Predictor(load_model(model)), SlimPredictor(slim)
    for texts in (TEXTS, TEXTS[:1], []):
        ids, scores = found.predict(texts, 5)
        exact_ids, exact_scores = expected.predict(texts, 5)
        assert ids.shape == exact_ids.shape and scores == pytest.approx(exact_scores, abs=1e-5)
    # Two labels have one text: whose score is larger by a rounding is nobody's business.
    twins = {0: 0, 4: 0}
    plain = np.vectorize(lambda label: twins.get(int(label), int(label)))
    assert (plain(found.predict(TEXTS, 5)[0]) == plain(expected.predict(TEXTS, 5)[0])).all()
    assert found.named("disk usage", 1)[0][0] == expected.named("disk usage", 1)[0][0]
    assert found.label_texts == LABELS and found.label_ids == [f"L{n}" for n in range(5)]


def test_several_texts_are_named_as_the_model_names_them(exported):
    model, slim = exported
    expected, found = Predictor(load_model(model)), SlimPredictor(slim)
    for one, other in zip(found.named(TEXTS, 3), expected.named(TEXTS, 3), strict=True):
        assert [name for name, _ in one] == [name for name, _ in other]  # twins have one name
        assert [each for _, each in one] == pytest.approx([each for _, each in other], abs=1e-5)
    assert found.named([], 3) == expected.named([], 3) == []


@pytest.mark.parametrize(
    ("texts", "what"),
    [(5, "an int"), (None, "a NoneType"), (b"gzip", "a bytes"), (iter(["gzip"]), "a list_iterator")],
)
def test_what_is_no_text_is_refused_by_both(exported, texts, what):
    for predictor in (Predictor(load_model(exported[0])), SlimPredictor(exported[1])):
        for ask in (predictor.named, predictor.predict):
            with pytest.raises(DataError, match=f"not {what}"):
                ask(texts)
            with pytest.raises(DataError, match="text 2 of the list is a float"):
                ask(["gzip", 0.5])


def test_it_needs_no_pytorch(exported):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'safetensors', 'faiss']))\n"
        "from gandalf.slim import SlimPredictor\n"
        "import json; print(json.dumps(SlimPredictor(sys.argv[1]).named('disk usage', 2)))\n"
    )
    ran = python(code, exported[1])
    assert ran.returncode == 0, ran.stderr
    expected = SlimPredictor(exported[1]).named("disk usage", 2)
    assert [tuple(each) for each in json.loads(ran.stdout)] == expected


def test_what_is_refused(exported, tmp_path):
    model, slim = exported
    assert "not empty" in fails(model, slim)
    (tmp_path / "diary.txt").write_text("dear diary")
    assert "no exported model" in fails(model, tmp_path, "--overwrite") and (tmp_path / "diary.txt").exists()
    assert "no such model folder" in fails(tmp_path / "none", tmp_path / "out")
    with pytest.raises(DataError, match="no exported model"):
        SlimPredictor(tmp_path)
    found = SlimPredictor(slim)
    for k in (0, 6):
        with pytest.raises(DataError, match=f"k is {k}"):
            found.predict("x", k)
    (tmp_path / SLIM_FACTS).write_text('{"format": "other"}')
    with pytest.raises(DataError, match="of this version"):
        SlimPredictor(tmp_path)


def test_the_exporter_says_nothing_of_its_own(tmp_path, monkeypatch, caplog):
    """Of more positions than a text has tokens it fails to fold a constant, and says so twice."""
    long = OPTIONS["transformer"] | {"config": small_bert(max_position_embeddings=512)}
    monkeypatch.setitem(OPTIONS, "transformer", long)
    save_model(small_model("transformer"), tmp_path / "model")
    assert done(tmp_path / "model", tmp_path / "slim").count("\n") == 1
    assert not [each.message for each in caplog.records if each.levelno >= logging.WARNING]


def test_an_exported_model_is_no_model_folder(exported):
    for words in (("predict", exported[1], "disk usage"), ("export", exported[1], exported[1] / "again")):
        said = command_line.fails(*words)
        assert "is an exported model" in said and "gandalf.slim.SlimPredictor" in said


def test_a_graph_that_gives_other_scores_is_not_left(tmp_path, monkeypatch):
    model = small_model()
    save_model(model, tmp_path / "model")
    monkeypatch.setattr(
        SlimPredictor, "scores", lambda self, texts: np.zeros((len(texts), 5), dtype=np.float32)
    )
    assert "other scores" in fails(tmp_path / "model", tmp_path / "slim")
    assert not (tmp_path / "slim").exists()
