"""napkinXC (probabilistic label trees) on Gandalf's points.

gandalf augment man data --format libsvm --targets calibrated --harden any
pip install napkinxc scipy
python examples/with_napkinxc.py data model predictions.npz
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from napkinxc.datasets import load_libsvm_file
from napkinxc.models import PLT
from scipy.sparse import csr_matrix, save_npz

TOP = 50  # labels kept for each test point: the filter takes some of the best away
THREADS = int(os.environ.get("THREADS", os.cpu_count() or 1))
SEED = 0


def train(data: str, model: str) -> None:
    """Train with the library's defaults; the model stays in its folder."""
    features, labels = load_libsvm_file(f"{data}/train.txt", labels_format="list")
    PLT(model, threads=THREADS, seed=SEED, verbose=0).fit(features, labels)


def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    features, _ = load_libsvm_file(f"{data}/test.txt", labels_format="list")
    with open(f"{data}/test.txt", encoding="utf-8") as file:
        points, _, labels = map(int, next(file).split())
    trees = PLT(model, threads=THREADS, verbose=0)
    trees.load()
    found = trees.predict_proba(features, top_k=TOP)
    ends = np.cumsum([0, *map(len, found)])
    ids = np.array([label for row in found for label, _ in row], dtype=np.int32)
    scores = np.array([score for row in found for _, score in row], dtype=np.float32)
    save_npz(out, csr_matrix((scores, ids, ends), shape=(points, labels)))


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
