"""The classifier keeps scikit-learn's manners, and what it says is what the model says."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

import gandalf
from gandalf.data.indicators import indicators, known_names, texts_of_labels
from gandalf.errors import DataError
from gandalf.estimator import GandalfClassifier

TOPICS = {
    "compress": "gzip bzip2 archive smaller zip pack",
    "disk": "usage space mount partition volume drive",
    "network": "socket packet route interface address port",
    "user": "login password account group shell home",
    "print": "printer queue paper job ink spool",
}
LIGHT = ("steps=60", "batch=32", "encoder.dim=24", "encoder.dropout=0.1")


def corpus(points, seed):
    """Texts of words of one or two topics, and which those are."""
    rng = np.random.default_rng(seed)
    names = sorted(TOPICS)
    labels = [
        sorted(rng.choice(names, size=rng.integers(1, 3), replace=False).tolist()) for _ in range(points)
    ]
    texts = [" ".join(rng.choice(TOPICS[name].split(), size=3)) for row in labels for name in [row[0]]]
    texts = [
        f"{text} {' '.join(rng.choice(TOPICS[row[-1]].split(), size=3))}"
        for text, row in zip(texts, labels, strict=True)
    ]
    return texts, labels


TEXTS, LABELS = corpus(240, 0)
NEW_TEXTS, NEW_LABELS = corpus(60, 1)


def classifier(**params):
    return GandalfClassifier(**{"targets": "self", "settings": LIGHT, "device": "cpu"} | params)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(TEXTS, LABELS, {name: f"{name} things" for name in TOPICS})


def truth(labels):
    return np.array([[name in row for name in sorted(TOPICS)] for row in labels])


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
    dense = fitted.predict_proba(NEW_TEXTS).toarray()
    before = fitted.threshold
    found = fitted.set_params(threshold=threshold).predict(NEW_TEXTS)
    fitted.set_params(threshold=before)
    assert (found.toarray() == (dense >= threshold)).all()
    assert found.dtype.kind == "i" and set(found.data.tolist()) <= {1}


def test_more_labels_than_there_are_may_be_asked_for(fitted):
    assert fitted.predict_proba(NEW_TEXTS[:2], top=50).nnz == 2 * len(TOPICS)
    assert sorted(fitted.predict_top(NEW_TEXTS[:1], 50)[0]) == sorted(TOPICS)


# ---- what it is given


def test_lists_and_matrices_of_all_kinds_are_the_same(fitted):
    dense = np.array([[name in row for name in TOPICS] for row in LABELS])
    texts = [f"{name} things" for name in TOPICS]
    expected = fitted.predict_proba(NEW_TEXTS).toarray()
    for matrix in (dense, dense.astype(float), csr_array(dense), csr_matrix(dense.astype(int))):
        again = classifier().fit(np.array(TEXTS), matrix, texts)
        assert again.classes_.tolist() == [0, 1, 2, 3, 4]
        assert (again.predict_proba(NEW_TEXTS).toarray() == expected).all()


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


def test_one_seed_one_model():
    one, same, other = (classifier(seed=seed).fit(TEXTS, LABELS) for seed in (0, 0, 1))
    assert (one.predict_proba(NEW_TEXTS) != same.predict_proba(NEW_TEXTS)).nnz == 0
    assert (one.predict_proba(NEW_TEXTS) != other.predict_proba(NEW_TEXTS)).nnz > 0


@pytest.mark.parametrize(
    ("texts", "labels", "label_texts", "sentence"),
    [
        ("one text", [["x"]], None, "one string"),
        (["a", 3], [["x"], ["x"]], None, "text 1 is not a string"),
        (["a", "b"], ["x", "y"], None, "labels of point 0 are 'x'"),
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
        (["a", "b"], np.eye(2), ["one text"], "2 columns for 1 labels"),
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


names = st.one_of(st.integers(0, 5), st.sampled_from("abc"))


@given(st.lists(st.lists(names, max_size=4), min_size=1, max_size=6))
def test_indicators_equal_nested_loops(rows):
    found = indicators(rows)
    assert set(found.names) == {name for row in rows for name in row}
    assert found.classes.tolist() == found.names
    for at, row in enumerate(rows):
        for column, name in enumerate(found.names):
            assert found.targets.toarray()[at, column] == (name in row)
    fewer = indicators(rows, [3, "a"], drop_others=True).targets.toarray()
    assert fewer.tolist() == [[float(name in row) for name in (3, "a")] for row in rows]


def test_texts_of_labels():
    assert texts_of_labels(["a", 3], None) == ["a", "3"]
    assert texts_of_labels(["b", "a"], {"a": "one", "b": "two"}) == ["two", "one"]
    assert known_names({np.str_("b"): "x", np.int64(2): "y"}) == ["b", 2]
    assert known_names(["x", "y"]) == [0, 1] and known_names(None) is None


# ---- kept and copied


def test_a_saved_classifier_is_a_model_folder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    predictor = gandalf.Predictor(gandalf.load_model(tmp_path / "model"))
    ids, scores = predictor.predict(NEW_TEXTS, 5)
    dense = fitted.predict_proba(NEW_TEXTS).toarray()
    np.testing.assert_allclose(np.take_along_axis(dense, ids, axis=1), scores, rtol=1e-5)
    with pytest.raises(DataError):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)


def test_a_pickled_classifier_predicts_the_same(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params() == fitted.get_params()
    assert again.classes_.tolist() == fitted.classes_.tolist()
    expected = fitted.predict_proba(NEW_TEXTS).toarray()
    np.testing.assert_allclose(again.predict_proba(NEW_TEXTS).toarray(), expected, rtol=1e-5)
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 2) self\n"


# ---- among scikit-learn's own


@pytest.mark.parametrize(
    "check",
    [
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_get_params_invariance",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
def test_scikit_learns_checks_that_need_no_table_of_numbers(check):
    from sklearn.utils import estimator_checks

    getattr(estimator_checks, check)("GandalfClassifier", GandalfClassifier())


def test_clones_are_unfitted(fitted):
    from sklearn.base import clone, is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    again = clone(fitted)
    assert again.get_params() == fitted.get_params() and not hasattr(again, "model_")
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert is_classifier(fitted)


def test_in_a_pipeline():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    pipeline = make_pipeline(FunctionTransformer(lambda texts: [t.upper() for t in texts]), classifier())
    pipeline.fit(TEXTS, LABELS, gandalfclassifier__label_texts={name: name for name in TOPICS})
    assert pipeline.predict(NEW_TEXTS).shape == (len(NEW_TEXTS), len(TOPICS))
    assert pipeline.score(NEW_TEXTS, NEW_LABELS) > 0.9


def test_in_a_grid_search_with_matrices_and_with_lists():
    from sklearn.model_selection import GridSearchCV, KFold

    grid = {"targets": ["none", "self"], "threshold": [0.5]}
    matrix = csr_array(truth(LABELS).astype(int))
    search = GridSearchCV(classifier(), grid, cv=2).fit(TEXTS, matrix, label_texts=sorted(TOPICS))
    with_lists = GridSearchCV(classifier(), grid, cv=KFold(2)).fit(TEXTS, LABELS)
    for found in (search, with_lists):
        assert found.best_score_ > 0.8
        assert found.best_params_["targets"] in ("none", "self")


def test_its_predictions_suit_scikit_learns_metrics(fitted):
    from sklearn.metrics import f1_score

    expected = csr_array(np.array([[name in row for name in TOPICS] for row in NEW_LABELS]).astype(int))
    assert f1_score(expected, fitted.predict(NEW_TEXTS), average="micro") > 0.5
