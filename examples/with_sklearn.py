"""scikit-learn's one-vs-rest on Gandalf's points: a linear SVM for each label, so for small sets.

Some 20 ms a label, a few minutes for `man`, on training points alone. Frequent labels take longer, and with
label points all are more frequent. LABELS in the environment takes only so many: those that the given points
have most often.

gandalf augment man data --format npz --targets calibrated --harden any
pip install scikit-learn
python examples/with_sklearn.py data model predictions.npz
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, hstack, load_npz, save_npz, vstack
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

TOP = 50  # labels kept for each test point: the filter takes some of the best away
BATCH = 1000  # test points, or labels, that are worked on at once
SMALL = 0.01  # weights below this are dropped: nearly all are
LABELS = int(os.environ.get("LABELS", sys.maxsize))
SEED = 0


def train(data: str, model: str) -> None:
    """Train a linear SVM for each label; what is kept are its weights, as a sparse matrix."""
    features, targets = csr_matrix(load_npz(f"{data}/X.trn.npz")), csr_matrix(load_npz(f"{data}/Y.trn.npz"))
    frequencies = np.bincount(targets.indices, minlength=targets.shape[1])
    known = np.sort(np.argsort(-frequencies, kind="stable")[: min(LABELS, np.count_nonzero(frequencies))])
    parts = [
        weights(features, (targets[:, some] > 0).astype(int))
        for some in np.array_split(known, max(1, len(known) // BATCH))
    ]
    Path(model).mkdir(parents=True, exist_ok=True)
    save_npz(f"{model}/weights.npz", vstack(parts, format="csr"))
    np.save(f"{model}/labels.npy", known)


def weights(features: csr_matrix, targets: csr_matrix) -> csr_matrix:
    """The weights of some labels, a row each, and the bias as the last column."""
    svm = LinearSVC(random_state=SEED)
    fitted = OneVsRestClassifier(svm).fit(features, targets)
    rows = np.array([np.append(each.coef_, each.intercept_) for each in fitted.estimators_], dtype=np.float32)
    rows[:, :-1][np.abs(rows[:, :-1]) < SMALL] = 0
    return csr_matrix(rows)


def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    rows, known = load_npz(f"{model}/weights.npz"), np.load(f"{model}/labels.npy")
    features = csr_matrix(load_npz(f"{data}/X.tst.npz"))
    features = hstack([features, np.ones((features.shape[0], 1), dtype=np.float32)], format="csr")
    found = []
    for at in range(0, features.shape[0], BATCH):
        scores = (features[at : at + BATCH] @ rows.T).toarray()
        best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        found.append((known[best], np.take_along_axis(scores, best, axis=1)))
    ids, values = (np.concatenate(part).ravel() for part in zip(*found, strict=True))
    shape = (features.shape[0], load_npz(f"{data}/Y.tst.npz").shape[1])
    save_npz(out, csr_matrix((values, ids, np.arange(0, len(ids) + 1, TOP)), shape=shape))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(f"usage: python {sys.argv[0]} DATA MODEL PREDICTIONS.npz", file=sys.stderr)
        sys.exit(2)
    data, model, out = sys.argv[1:]
    start = time.perf_counter()
    train(data, model)
    trained = time.perf_counter()
    predict(data, model, out)
    done = time.perf_counter()
    print(json.dumps({"train_seconds": trained - start, "predict_seconds": done - trained}))
