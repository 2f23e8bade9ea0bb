"""gandalf's own systems, which make their label points themselves, by the same three steps as the others.

gandalf augment man data --share 0
python examples/with_gandalf.py data model predictions.npz astec targets.targets=calibrated
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

import gandalf
from gandalf.data.dataset import Splits

TOP = 50  # labels kept for each test point: the filter takes some of the best away


def train(points: Splits, model: str, system: str, settings: list[str]) -> None:
    """Train by the system's recipe with some settings changed, and leave a model folder."""
    gandalf.train(gandalf.Splits(train=points.train, name=points.name), system, *settings, out=model)


def predict(points: Splits, model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    predictor = gandalf.Predictor(gandalf.load_model(model))
    ids, scores = predictor.predict(points.test.texts, min(TOP, points.train.num_labels))
    kept = ids >= 0
    ends = np.cumsum([0, *kept.sum(axis=1)])
    save_npz(out, csr_matrix((scores[kept], ids[kept], ends), shape=points.test.targets.shape))


if __name__ == "__main__":
    if len(sys.argv) < 5:
        usage = "DATA MODEL PREDICTIONS.npz SYSTEM [KEY=VALUE ...]"
        print(f"usage: python {sys.argv[0]} {usage}", file=sys.stderr)
        sys.exit(2)
    data, model, out, system, *settings = sys.argv[1:]
    if Path(model).exists():
        print(f"{model} exists already: name a new folder for the model", file=sys.stderr)
        sys.exit(2)
    if "THREADS" in os.environ:
        import_module("torch").set_num_threads(int(os.environ["THREADS"]))
    start = time.perf_counter()
    points = gandalf.load(data)
    train(points, model, system, settings)
    trained = time.perf_counter()
    predict(points, model, out)
    done = time.perf_counter()
    print(json.dumps({"train_seconds": trained - start, "predict_seconds": done - trained}))
