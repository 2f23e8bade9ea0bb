"""LibMultiLabel's label tree, which makes TF-IDF features itself, on Gandalf's points.

gandalf augment man data --format libmultilabel --targets calibrated --harden any
pip install libmultilabel
python examples/with_libmultilabel.py data model predictions.npz
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import libmultilabel.linear as linear
import numpy as np
from scipy.sparse import csr_matrix, save_npz

TOP = 50  # labels kept for each test point: the filter takes some of the best away
BATCH = 1000  # test points whose scores for all labels are held at once
SEED = 0


def train(data: str, model: str) -> dict[str, Any]:
    """Train the tree with the library's defaults; test points come along, since both are read together."""
    np.random.seed(SEED)  # noqa: NPY002  the library draws its clusters from it
    points = linear.load_dataset("txt", f"{data}/train.txt", f"{data}/test.txt")
    preprocessor = linear.Preprocessor()
    points = preprocessor.fit_transform(points)
    tree = linear.train_tree(points["train"]["y"], points["train"]["x"], "-s 1 -e 0.0001 -c 1 -m 2 -q")
    linear.save_pipeline(model, preprocessor, tree)
    return points


def predict(data: str, points: dict[str, Any], model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    preprocessor, tree = linear.load_pipeline(f"{model}/linear_pipeline.pickle")
    labels = Path(f"{data}/labels.txt").read_text("utf-8").count("\n")
    columns = np.array([int(name) for name in preprocessor.label_mapping])  # those that training points have
    features = points["test"]["x"]
    rows = []
    for at in range(0, features.shape[0], BATCH):
        scores = linear.predict_values(tree, features[at : at + BATCH])
        best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        values = np.take_along_axis(scores, best, axis=1)
        rows.append((columns[best], values))
    ids, values = (np.concatenate(part).ravel() for part in zip(*rows, strict=True))
    ends = np.arange(0, len(ids) + 1, TOP)
    save_npz(out, csr_matrix((values, ids, ends), shape=(features.shape[0], labels)))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(f"usage: python {sys.argv[0]} DATA MODEL PREDICTIONS.npz", file=sys.stderr)
        sys.exit(2)
    data, model, out = sys.argv[1:]
    start = time.perf_counter()
    points = train(data, model)
    trained = time.perf_counter()
    predict(data, points, model, out)
    done = time.perf_counter()
    print(json.dumps({"train_seconds": trained - start, "predict_seconds": done - trained}))
