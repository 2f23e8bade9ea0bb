"""fastText on Gandalf's points.

gandalf augment man data --format fasttext --targets calibrated --harden any
pip install fasttext-numpy2 scipy
python examples/with_fasttext.py data model predictions.npz
gandalf evaluate predictions.npz man

EPOCHS in the environment: how often each point is seen. With 75 it has learnt most of `man` (held-out points:
P@1 28 after 25, 50 after 75); a larger set needs fewer.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import fasttext
import numpy as np
from scipy.sparse import csr_matrix, save_npz

TOP = 50  # labels kept for each test point: the filter takes some of the best away
THREADS = int(os.environ.get("THREADS", os.cpu_count() or 1))
EPOCHS = int(os.environ.get("EPOCHS", "75"))
PREFIX = "__label__"


def train(data: str, model: str) -> None:
    """Train with a hierarchical softmax over words and their parts."""
    words = dict(dim=100, minn=3, maxn=6, bucket=200_000)
    found = fasttext.train_supervised(
        f"{data}/train.txt", loss="hs", epoch=EPOCHS, lr=0.5, thread=THREADS, verbose=0, **words
    )
    Path(model).mkdir(parents=True, exist_ok=True)
    found.save_model(f"{model}/model.bin")


def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test point as a SciPy matrix."""
    net = fasttext.load_model(f"{model}/model.bin")
    lines = Path(f"{data}/test.txt").read_text("utf-8").split("\n")[:-1]
    labels = Path(f"{data}/labels.txt").read_text("utf-8").count("\n")
    texts = [" ".join(word for word in line.split(" ") if not word.startswith(PREFIX)) for line in lines]
    names, scores = net.predict(texts, k=TOP)
    ends = np.cumsum([0, *map(len, names)])
    ids = np.array([int(name.removeprefix(PREFIX)) for row in names for name in row], dtype=np.int32)
    save_npz(out, csr_matrix((np.concatenate(scores), ids, ends), shape=(len(texts), labels)))


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
