"""The classifier behind a wrapper that makes texts of the numbers which scikit-learn's checks give."""

from __future__ import annotations

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gandalf.estimator import GandalfClassifier


class NumericClassifier(GandalfClassifier):
    """Each number becomes a word, rounded; a single target becomes a list of one label."""

    def __init__(self, settings=("steps=2", "encoder.dim=8"), seed=0):
        super().__init__(targets="none", device="cpu", settings=settings, seed=seed)

    def get_params(self, deep=True):
        return {"settings": self.settings, "seed": self.seed}

    def set_params(self, **params):
        return GandalfClassifier.set_params(self, **params)

    def fit(self, X, y):
        if y is not None:
            X, y = validate_data(self, X, y, multi_output=True)
            check_classification_targets(y)
            X, y = _texts(X), [[int(label)] for label in np.ravel(y)]
        return super().fit(X, y)

    def predict(self, X):
        return super().predict(self._checked(X)).toarray()

    def predict_proba(self, X):
        return super().predict_proba(self._checked(X))

    def score(self, X, y):
        return super().score(self._checked(X), [[int(label)] for label in np.ravel(y)])

    def _checked(self, X):
        check_is_fitted(self)
        return _texts(validate_data(self, X, reset=False))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array, tags.input_tags.string = False, True, False
        return tags


def _texts(X):
    return [" ".join(f"c{column}v{value:.0f}" for column, value in enumerate(row)) for row in X]
