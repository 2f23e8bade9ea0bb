"""The classifier among scikit-learn's own: its checks, clones, pipelines, searches and metrics."""

from __future__ import annotations

import numpy as np
import pytest
from numeric_classifier import NumericClassifier
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted
from small_classifier import LABELS, NEW_LABELS, NEW_TEXTS, TEXTS, TOPICS, classifier, truth

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_scikit_learns_checks_pass_on_texts():
    """Most are skipped: they would give rows of numbers."""
    estimator_checks.check_estimator(classifier())


@pytest.mark.filterwarnings("ignore:Estimator NumericClassifier does not inherit")
def test_scikit_learns_checks_pass_behind_a_wrapper_that_makes_texts_of_numbers():
    found = estimator_checks.check_estimator(NumericClassifier(), on_fail=None, on_skip=None)
    status = {each["check_name"]: each["status"] for each in found}
    assert {"check_fit_idempotent", "check_estimators_pickle", "check_n_features_in"} <= {*status}
    failed = [(each["check_name"], each["exception"]) for each in found if each["status"] == "failed"]
    assert not failed


def test_clones_are_unfitted(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params() and not hasattr(again, "model_")
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    with pytest.raises(NotFittedError, match="call fit first"):
        again.predict(NEW_TEXTS)
    assert not is_classifier(fitted)  # of which scikit-learn reads targets, and takes two labels for one


def test_in_a_pipeline():
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [t.upper() for t in texts]), classifier())
    pipeline.fit(TEXTS, LABELS, gandalfclassifier__label_texts={name: name for name in TOPICS})
    assert pipeline.predict(NEW_TEXTS).shape == (len(NEW_TEXTS), len(TOPICS))
    assert pipeline.score(NEW_TEXTS, NEW_LABELS) > 0.9


def test_in_a_grid_search_with_matrices_and_with_lists():
    grid = {"targets": ["none", "self"], "threshold": [0.5]}
    matrix = csr_array(truth(LABELS).astype(int))
    search = GridSearchCV(classifier(), grid, cv=2).fit(TEXTS, matrix, label_texts=sorted(TOPICS))
    with_lists = GridSearchCV(classifier(), grid, cv=2).fit(TEXTS, LABELS)
    for found in (search, with_lists):
        assert found.best_score_ > 0.8
        assert found.best_params_["targets"] in ("none", "self")


def test_in_a_cross_validation_with_lists():
    pipeline = make_pipeline(FunctionTransformer(), classifier())
    for estimator in (classifier(), pipeline):
        scores = cross_val_score(estimator, TEXTS, LABELS, cv=3)
        assert scores.shape == (3,) and scores.min() > 0.8


@pytest.mark.parametrize("labels", [5, 2])  # two labels are not the two sides of one
def test_average_precision_of_probabilities(labels):
    matrix = truth(LABELS)[:, :labels].astype(int)
    scores = cross_val_score(classifier(targets="none"), TEXTS, matrix, cv=2, scoring="average_precision")
    assert scores.min() > 0.8


def test_its_predictions_suit_scikit_learns_metrics(fitted):
    expected = csr_array(np.array([[name in row for name in TOPICS] for row in NEW_LABELS]).astype(int))
    assert f1_score(expected, fitted.predict(NEW_TEXTS), average="micro") > 0.5
