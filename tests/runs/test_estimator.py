"""The classifier says what the model says, refuses bad input in a sentence, and can be kept and copied."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from command_line import python
from scipy.sparse import csr_array, csr_matrix
from small_classifier import LABELS, NEW_LABELS, NEW_TEXTS, TEXTS, TOPICS, classifier, corpus, truth

import gandalf
from gandalf import estimator
from gandalf.errors import DataError
from gandalf.estimator import GandalfClassifier
from gandalf.model_folder import HASHES

# ---- what it predicts


def test_it_learns_and_its_score_is_precision_at_one(fitted):
    top = fitted.predict_top(NEW_TEXTS, 1)
    share = sum(name in row for (name,), row in zip(top, NEW_LABELS, strict=True)) / len(NEW_LABELS)
    assert share > 0.9
    assert fitted.score(NEW_TEXTS, NEW_LABELS) == pytest.approx(share)
    matrix = csr_array(truth(NEW_LABELS)[:, [sorted(TOPICS).index(name) for name in fitted.classes_]])
    assert fitted.score(NEW_TEXTS, matrix) == pytest.approx(share)


def test_a_label_that_was_not_trained_counts_as_missed(fitted):
    assert fitted.score(NEW_TEXTS[:2], [["unheard of"], []]) == 0.0


def test_classes_come_in_the_order_of_the_label_texts(fitted):
    assert fitted.classes_.tolist() == list(TOPICS)
    assert fitted.model_.label_texts == [f"{name} things" for name in TOPICS]
    assert fitted.model_.label_ids == list(TOPICS)


def test_probabilities_are_those_of_the_predictor(fitted):
    ids, scores = gandalf.Predictor(fitted.model_).predict(NEW_TEXTS, 3)
    found = fitted.predict_proba(NEW_TEXTS, top=3)
    assert found.shape == (len(NEW_TEXTS), len(TOPICS)) and found.nnz == 3 * len(NEW_TEXTS)
    for row in range(len(NEW_TEXTS)):
        for label, score in zip(ids[row], scores[row], strict=True):
            assert found[row, label] == score
    names = [[fitted.classes_[label] for label in row] for row in ids]
    assert fitted.predict_top(NEW_TEXTS, 3) == names


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9, 1.1])
def test_predictions_are_probabilities_above_the_threshold(fitted, threshold):
    dense = fitted.predict_proba(NEW_TEXTS)
    found = copy.copy(fitted).set_params(threshold=threshold).predict(NEW_TEXTS)
    assert (found.toarray() == (dense >= threshold)).all()
    assert found.dtype.kind == "i" and set(found.data.tolist()) <= {1}


def test_more_labels_than_there_are_may_be_asked_for(fitted):
    assert fitted.predict_proba(NEW_TEXTS[:2], top=50).nnz == 2 * len(TOPICS)
    assert sorted(fitted.predict_top(NEW_TEXTS[:1], 50)[0]) == sorted(TOPICS)


# ---- what it is given


def test_lists_and_matrices_of_all_kinds_are_the_same(fitted):
    dense = np.array([[name in row for name in TOPICS] for row in LABELS])
    texts = [f"{name} things" for name in TOPICS]
    expected = fitted.predict_proba(NEW_TEXTS)
    for matrix in (dense, dense.astype(float), csr_array(dense), csr_matrix(dense.astype(int))):
        again = classifier().fit(np.array(TEXTS), matrix, texts)
        assert again.classes_.tolist() == [0, 1, 2, 3, 4]
        assert (again.predict_proba(NEW_TEXTS) == expected).all()


def test_series_frames_and_arrow_arrays_are_the_same_as_lists(fitted):
    texts = {name: f"{name} things" for name in TOPICS}
    expected = fitted.predict_proba(NEW_TEXTS)
    again = classifier().fit(pandas.Series(TEXTS), pandas.Series(LABELS), pandas.Series(texts))
    assert again.classes_.tolist() == list(TOPICS) and again.model_.label_texts == list(texts.values())
    for given in (
        pandas.Series(NEW_TEXTS, index=range(7, 67)),
        pandas.DataFrame({"title": NEW_TEXTS}),
        polars.Series(NEW_TEXTS),
        polars.DataFrame({"title": NEW_TEXTS}),
        pyarrow.array(NEW_TEXTS),
        pyarrow.table({"title": NEW_TEXTS}),
        np.array(NEW_TEXTS)[:, None],
    ):
        assert (again.predict_proba(given) == expected).all(), type(given)
    with pytest.raises(DataError, match="2 columns; give one of them"):
        again.predict(pandas.DataFrame({"a": NEW_TEXTS, "b": NEW_TEXTS}))
    with pytest.raises(DataError, match="text 1 is not a string"):
        again.predict(pandas.Series(["a", None]))


def test_a_series_without_names_lists_the_texts_of_labels_by_number():
    matrix, texts = truth(LABELS), pandas.Series([f"{name} things" for name in sorted(TOPICS)])
    found = classifier(settings=("steps=2",)).fit(TEXTS, matrix, texts)
    assert found.classes_.tolist() == [0, 1, 2, 3, 4] and found.model_.label_texts == texts.tolist()
    with pytest.raises(DataError, match="names a label twice"):
        classifier().fit(TEXTS, matrix, pandas.concat([texts, texts]))


def test_an_array_of_very_many_probabilities_is_refused(fitted, monkeypatch):
    monkeypatch.setattr(estimator, "DENSE", 4 * len(TOPICS) * 2)
    assert fitted.predict_proba(NEW_TEXTS[:2]).shape == (2, len(TOPICS))
    with pytest.raises(DataError, match="top=100"):
        fitted.predict_proba(NEW_TEXTS[:3])
    assert fitted.predict_proba(NEW_TEXTS[:3], top=2).nnz == 6


def test_vectors_of_texts_have_length_one_and_know_what_is_alike(fitted):
    texts = ["gzip archive", "gzip archive zip", "printer ink"]
    found = fitted.embed(texts)
    assert found.shape == (3, 24) and found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    assert found[0] @ found[1] > found[0] @ found[2]
    np.testing.assert_allclose(found, fitted.model_.unit_vectors(texts))
    assert fitted.embed([]).shape == (0, 24)


def test_the_course_of_training_is_told(capsys):
    events = []
    with_callback = classifier(verbose=1, callbacks=[lambda *event: events.append(event)])
    with_callback.fit(TEXTS, LABELS)
    kinds = {kind for kind, _, _ in events}
    assert kinds == {"train", "validation"} and events[0][2]["loss"] > 0
    shown = capsys.readouterr().out
    assert shown.count("train ") == sum(kind == "train" for kind, _, _ in events) and "P@1" in shown
    classifier(settings=("steps=2",)).fit(TEXTS, LABELS)
    assert capsys.readouterr().out == ""


def test_names_are_their_own_texts_by_default():
    found = classifier(settings=("steps=2",)).fit(TEXTS, LABELS)
    assert found.classes_.tolist() == sorted(TOPICS) == list(found.model_.label_texts)


def test_labels_without_texts_get_no_label_points():
    dense = truth(LABELS)
    found = classifier(targets=None, settings=("steps=2",)).fit(TEXTS, dense)
    assert found.model_.config["recipe"]["targets"]["targets"] == "none"
    assert found.classes_.dtype.kind == "i"
    with pytest.raises(DataError, match="give label_texts"):
        classifier(targets="shrunk").fit(TEXTS, dense)


def test_a_handful_of_texts_will_do():
    found = classifier(targets=None).fit(["a b", "c d", "e"], [["x"], ["y"], []])
    assert found.model_.config["recipe"]["targets"]["targets"] == "self"
    assert found.model_.calibration is None
    assert found.predict_top(["c d"], 1) == [["y"]]


def test_parameters_reach_the_recipe():
    found = classifier(system="inceptionxml", seed=3, epochs=0.1, settings=("batch=64",))
    recipe = found.fit(TEXTS, LABELS).model_.config["recipe"]
    assert (recipe["system"], recipe["seed"], recipe["training"]["epochs"]) == ("inceptionxml", 3, 0.1)
    assert recipe["training"]["batch"] == 64 and recipe["targets"]["targets"] == "self"


def test_auto_searches_and_takes_nothing_of_one_system():
    settings = ("search.minutes=0.05", 'search.parts=["linear"]')
    found = classifier(system="auto", targets=None, settings=settings).fit(*corpus(300, 0))  # 60 held out
    assert found.model_.config["system"] == "linear" and found.model_.calibration is not None
    assert found.score(NEW_TEXTS, NEW_LABELS) > 0.9
    for params in ({"targets": "self"}, {"targets": None, "epochs": 3.0}):
        with pytest.raises(DataError, match="applies to a single system"):
            classifier(system="auto", settings=settings, **params).fit(TEXTS, LABELS)


def test_one_seed_one_model():
    one, same, other = (classifier(seed=seed).fit(TEXTS, LABELS) for seed in (0, 0, 1))
    assert (one.predict_proba(NEW_TEXTS) == same.predict_proba(NEW_TEXTS)).all()
    assert (one.predict_proba(NEW_TEXTS) != other.predict_proba(NEW_TEXTS)).any()


@pytest.mark.parametrize(
    ("texts", "labels", "label_texts", "sentence"),
    [
        ("one text", [["x"]], None, "one string"),
        (["a", 3], [["x"], ["x"]], None, "text 1 is not a string"),
        (["a", "b"], ["x", ["y"]], None, "labels of point 0 are 'x'"),
        (["a", "b"], [["x"], 7], None, "labels of point 1 are 7"),
        (["a", "b"], [["x"], [1.5]], None, "string or a whole number"),
        (["a", "b"], [["x"], [True]], None, "string or a whole number"),
        (["a", "b"], [["x"]], None, "texts has 2 entries"),
        (["a", "b"], [["x"], ["z"]], {"x": "ex", "y": "why"}, "point 1 has the label 'z'"),
        (["a", "b"], [[0], [2]], ["zero", "one"], "point 1 has the label 2"),
        (["a", "b"], [["x"], []], {"x": 5}, "text of label 'x' is not a string"),
        (["a", "b"], [["x"], []], "text", "label_texts is one string"),
        (["a", "b"], [[], []], None, "no text has a label"),
        (["a", "b"], np.array([[1, 0], [0, 2]]), None, "divide counts"),
        (["a", "b"], np.array([[1, 0], [0, np.nan]]), None, "not in"),
        (["a", "b"], np.eye(2), ["one text"], "2 columns.* 1 label"),
    ],
)
def test_bad_input_is_a_sentence(texts, labels, label_texts, sentence):
    with pytest.raises(DataError, match=sentence):
        classifier(targets=None).fit(texts, labels, label_texts)


def test_bad_parameters_are_sentences():
    for params, sentence in (
        ({"system": "astek"}, "did you mean astec"),
        ({"targets": "shrunken"}, "shrunk"),
        ({"settings": ("epoch=1",)}, "epochs"),
        ({"settings": "epoch=1"}, "no setting 'epoch'"),
    ):
        with pytest.raises(DataError, match=sentence):
            classifier(**params).fit(TEXTS, LABELS)
    with pytest.raises(DataError, match="no parameter 'top'"):
        classifier().set_params(top=3)
    for call in ("predict", "predict_proba", "predict_top"):
        with pytest.raises(DataError, match="call fit first"):
            getattr(classifier(), call)(["a"])


# ---- kept and copied


def test_a_saved_classifier_is_a_model_folder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    predictor = gandalf.Predictor(gandalf.load_model(tmp_path / "model"))
    ids, scores = predictor.predict(NEW_TEXTS, 5)
    dense = fitted.predict_proba(NEW_TEXTS)
    np.testing.assert_allclose(np.take_along_axis(dense, ids, axis=1), scores, rtol=1e-5)
    with pytest.raises(DataError):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)


def test_a_saved_classifier_is_loaded_as_it_was(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = GandalfClassifier.load(tmp_path / "model")
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == list(TOPICS)
    np.testing.assert_allclose(again.predict_proba(NEW_TEXTS), fitted.predict_proba(NEW_TEXTS), rtol=1e-5)
    again.save(tmp_path / "model", overwrite=True)


@pytest.mark.parametrize("names", [[[10], [20]], [["10"], ["20"]], [[10], ["20"]]])
def test_names_that_are_numbers_are_numbers_when_they_are_loaded(names, tmp_path):
    classifier(targets=None, settings=("steps=2",)).fit(["a b", "c d"], names).save(tmp_path / "model")
    found = GandalfClassifier.load(tmp_path / "model").classes_.tolist()
    assert found == [name for row in names for name in row]


def test_any_model_folder_can_be_loaded_and_damage_is_a_sentence(fitted, tmp_path, small_folder):
    found = GandalfClassifier.load(small_folder)
    assert found.classes_.tolist() == [f"L{number}" for number in range(5)]
    assert found.system == "tiny" and len(found.predict_top(["gzip"], 2)[0]) == 2
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "classifier.json").write_text('{"params": {"systen": "astec"}}')
    with pytest.raises(DataError, match=r"classifier\.json: is not what was written"):
        GandalfClassifier.load(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    facts = json.loads(config.read_bytes())
    del facts[HASHES]
    config.write_text(json.dumps(facts))
    with pytest.raises(DataError, match=r"classifier\.json: does not describe a classifier"):
        GandalfClassifier.load(tmp_path / "model")


def test_a_pickled_classifier_predicts_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == fitted.classes_.tolist()
    expected = fitted.predict_proba(NEW_TEXTS)
    np.testing.assert_allclose(again.predict_proba(NEW_TEXTS), expected, rtol=1e-5)
    assert pickle.loads(pickle.dumps(classifier())).get_params() == classifier().get_params()


def test_its_repr_names_what_is_not_the_default():
    assert repr(GandalfClassifier()) == "GandalfClassifier()"
    assert (
        repr(GandalfClassifier("inceptionxml", seed=3)) == "GandalfClassifier(system='inceptionxml', seed=3)"
    )


def test_it_works_without_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import gandalf\n"
        "c = gandalf.GandalfClassifier(targets='self', settings=('steps=2',))\n"
        "c.fit(['a', 'b'], [['x'], ['y']])\n"
        "print(c.predict(['a']).shape, c.get_params()['targets'])\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 2) self\n"


@pytest.mark.parametrize("labels", [["x", "y", "x"], np.array([1, 0, 1]), (1, 2, 1)])
def test_one_label_a_text_needs_no_lists(labels):
    texts, lists = ["a hat", "a zip", "red hat"], [[each] for each in labels]
    one, other = (
        classifier(targets=None, settings=("steps=2",)).fit(texts, each) for each in (labels, lists)
    )
    assert one.classes_.tolist() == other.classes_.tolist() == sorted(set(np.asarray(labels).tolist()))
    np.testing.assert_array_equal(one.predict_proba(["hat"]), other.predict_proba(["hat"]))
    assert one.score(texts, labels) == other.score(texts, lists)
