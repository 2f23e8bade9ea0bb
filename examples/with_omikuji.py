"""omikuji (Parabel's label trees) on Gandalf's points.

gandalf augment man data --format libsvm --targets calibrated --harden any
pip install omikuji scipy
python examples/with_omikuji.py data model predictions.npz
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import omikuji
from scipy.sparse import csr_matrix, save_npz

TOP = 50  # labels kept for each test point: the filter takes some of the best away
THREADS = int(os.environ.get("THREADS", os.cpu_count() or 1))


def train(data: str, model: str) -> None:
    """Train with the library's defaults and save."""
    settings = omikuji.Model.default_hyper_param()
    omikuji.Model.train_on_data(f"{data}/train.txt", settings, n_threads=THREADS).save(model)


def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    trees = omikuji.Model.load(model)
    with open(f"{data}/test.txt", encoding="utf-8") as file:
        _, _, labels = map(int, next(file).split())
        found = [trees.predict(pairs, top_k=TOP) for pairs in features(file)]
    ends = np.cumsum([0, *map(len, found)])
    ids = np.array([label for row in found for label, _ in row], dtype=np.int32)
    scores = np.array([score for row in found for _, score in row], dtype=np.float32)
    save_npz(out, csr_matrix((scores, ids, ends), shape=(len(found), labels)))


def features(lines: Iterator[str]) -> Iterator[list[tuple[int, float]]]:
    """The (column, value) pairs of lines `label,label column:value column:value`."""
    for line in lines:
        pairs = (pair.partition(":") for pair in line.partition(" ")[2].split())
        yield [(int(column), float(value)) for column, _, value in pairs]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(f"usage: python {sys.argv[0]} DATA MODEL PREDICTIONS.npz", file=sys.stderr)
        sys.exit(2)
    data, model, out = sys.argv[1:]
    if Path(model).exists():  # trees of two trainings would mix
        print(f"{model} exists already: name a new folder for the model", file=sys.stderr)
        sys.exit(2)
    start = time.perf_counter()
    train(data, model)
    trained = time.perf_counter()
    predict(data, model, out)
    done = time.perf_counter()
    print(json.dumps({"train_seconds": trained - start, "predict_seconds": done - trained}))
