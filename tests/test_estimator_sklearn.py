"""The classifier among scikit-learn's own: its checks, clones, pipelines, searches and metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted
from small_classifier import LABELS, NEW_LABELS, NEW_TEXTS, TEXTS, TOPICS, classifier, truth

from gandalf.estimator import GandalfClassifier


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
    getattr(estimator_checks, check)("GandalfClassifier", GandalfClassifier())


def test_clones_are_unfitted(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params() and not hasattr(again, "model_")
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert is_classifier(fitted)


def test_in_a_pipeline():
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [t.upper() for t in texts]), classifier())
    pipeline.fit(TEXTS, LABELS, gandalfclassifier__label_texts={name: name for name in TOPICS})
    assert pipeline.predict(NEW_TEXTS).shape == (len(NEW_TEXTS), len(TOPICS))
    assert pipeline.score(NEW_TEXTS, NEW_LABELS) > 0.9


def test_in_a_grid_search_with_matrices_and_with_lists():
    grid = {"targets": ["none", "self"], "threshold": [0.5]}
    matrix = csr_array(truth(LABELS).astype(int))
    search = GridSearchCV(classifier(), grid, cv=2).fit(TEXTS, matrix, label_texts=sorted(TOPICS))
    with_lists = GridSearchCV(classifier(), grid, cv=KFold(2)).fit(TEXTS, LABELS)
    for found in (search, with_lists):
        assert found.best_score_ > 0.8
        assert found.best_params_["targets"] in ("none", "self")


def test_its_predictions_suit_scikit_learns_metrics(fitted):
    expected = csr_array(np.array([[name in row for name in TOPICS] for row in NEW_LABELS]).astype(int))
    assert f1_score(expected, fitted.predict(NEW_TEXTS), average="micro") > 0.5
