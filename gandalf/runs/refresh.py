"""Renew what a stage computes from its encoder or rows from time to time: hard negatives, rows, means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gandalf.model.exact import top_k
from gandalf.nets.encoders import encode_tokens
from gandalf.nets.heads import Table
from gandalf.train.guidance import Guidance
from gandalf.train.labels import Shortlist
from gandalf.train.loop import Training
from gandalf.train.parallel.gather import merge_best_labels

POINTS_AT_ONCE = 1 << 16  # in a search for their likeliest labels
# Of the index: lists by the root of L, lists searched, rounds of k-means, rows that k-means wants for a list.
LISTS_PER_ROOT, PROBES, ROUNDS, PER_LIST = 4, 8, 5, 39
BestLabels = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]  # ids and scores, N x number


def refresh_shortlist(shortlist: Shortlist, hard: int, dtype: torch.dtype, training: Training) -> None:
    """Give a shortlist the likeliest labels of each point as new hard negatives."""
    if not hard or training.step == training.steps:
        return
    tokens, ranks = training.points.tokens, training.ranks
    vectors = ranks.gather(encode_tokens(training.encoder, tokens[ranks.share(len(tokens))]), len(tokens))
    head, own = training.head.plain(), ranks.share(shortlist.num_labels)
    ids, scores = likeliest_labels(vectors, head, min(hard, shortlist.num_labels), dtype)
    parts = (slice(start, start + POINTS_AT_ONCE) for start in range(0, len(ids), POINTS_AT_ONCE))
    found = [merge_best_labels(ranks, ids[rows], scores[rows], own)[0] for rows in parts]
    shortlist.refresh(np.concatenate(found).astype(np.int32))


def refresh_means(guidance: Guidance, tokens: npt.NDArray[np.int32], training: Training) -> None:
    """Give the guidance the mean vectors of each label's neighbours; `tokens` are those of label texts."""
    if training.step < training.steps:
        guidance.refresh(encode_tokens(training.encoder, tokens))


def likeliest_labels(vectors: Tensor, head: Table, number: int, dtype: torch.dtype) -> BestLabels:
    """Return the labels with the highest scores: by an index on a CPU, by exact products on a GPU.

    Where there are fewer labels, ids are -1 and scores -inf.
    """
    if vectors.device.type == "cpu" and (found := _search_index(vectors, head, number)) is not None:
        return found
    return top_k(vectors, head, number, precision=dtype)


def _search_index(vectors: Tensor, head: Table, number: int) -> BestLabels | None:
    """Search approximately by faiss; return None without it."""
    try:
        import faiss
    except ImportError:
        return None
    # The bias is one more number of the row, and 1 one more number of the vector.
    rows = np.hstack([head.rows.data.numpy(), head.bias.data.numpy()[:, None]])
    lists = max(1, min(int(LISTS_PER_ROOT * len(rows) ** 0.5), len(rows) // PER_LIST))
    flat = faiss.IndexFlatIP(rows.shape[1])
    index = faiss.IndexIVFFlat(flat, rows.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = ROUNDS
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    found = [index.search(_with_one(part.numpy()), number) for part in torch.split(vectors, POINTS_AT_ONCE)]
    ids = np.concatenate([each for _, each in found])  # shape: (N, number)
    return ids, np.where(ids >= 0, np.concatenate([each for each, _ in found]), -np.inf)


def _with_one(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])
