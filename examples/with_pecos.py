"""PECOS X-Linear on Gandalf's points: its matrices carry soft targets.

gandalf augment man data --format npz --targets calibrated
pip install libpecos
python examples/with_pecos.py data model predictions.npz
gandalf evaluate predictions.npz man
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from pecos.utils import smat_util
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

TOP = 50  # labels kept for each test point: the filter takes some of the best away
THREADS = int(os.environ.get("THREADS", os.cpu_count() or 1))
SEED = 0


def train(data: str, model: str) -> None:
    """Build the label tree and train with the library's defaults; soft targets weigh the loss."""
    features = smat_util.load_matrix(f"{data}/X.trn.npz").astype(np.float32)
    targets = smat_util.load_matrix(f"{data}/Y.trn.npz").astype(np.float32)
    hard = targets.copy()
    hard.data[:] = 1.0
    tree = Indexer.gen(
        LabelEmbeddingFactory.create(hard, features), indexer_type="hierarchicalkmeans", seed=SEED
    )
    soft = {} if (targets.data == 1).all() else {"R": targets, "rel_mode": "induce"}
    XLinearModel.train(features, hard, C=tree, threads=THREADS, **soft).save(model)


def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test point."""
    features = smat_util.load_matrix(f"{data}/X.tst.npz").astype(np.float32)
    found = XLinearModel.load(model).predict(features, only_topk=TOP, threads=THREADS)
    smat_util.save_matrix(out, found)


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
