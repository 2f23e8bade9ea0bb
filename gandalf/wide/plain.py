"""Encode one text by a bag of words, and find its best labels, in NumPy.

For one text PyTorch's calls take longer than its arithmetic, and its import takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Tensors = Mapping[str, npt.NDArray[Any]]  # as the modules of `nets/bag_of_words.py` name them
Block = Callable[[Floats], Floats]  # shape: (dim,) -> (dim,)

# Numbers of a matrix in one product. From 460,800 numbers on, OpenBLAS starts its threads. On a busy machine
# the threads wait for each other up to fifty times as long as the product takes.
AT_ONCE = 460_000


@dataclass(frozen=True, eq=False)
class PlainBagOfWords:
    """The arrays of a `BagOfWords` encoder that is ready to predict."""

    words: Floats  # shape: (vocabulary, dim)
    idf: Floats  # shape: (vocabulary,)
    block: Block
    centre: Floats | None  # shape: (dim,)

    @classmethod
    def of(cls, block: str, tensors: Tensors) -> PlainBagOfWords:
        """Return the encoder of these tensors, which are shared, not copied."""
        return cls(tensors["words.weight"], tensors["idf"], BLOCKS[block](tensors), tensors.get("centre"))

    def __call__(self, ids: npt.NDArray[np.integer[Any]]) -> Floats:
        """Encode one text, as `BagOfWords` does."""  # shape: (T,) -> (dim,)
        ids = ids[ids != 0]
        weights = self.idf[ids]
        length = max(float(np.sqrt(weights @ weights)), 1e-12)
        encoded = self.block((weights / length) @ self.words[ids])
        return encoded if self.centre is None else encoded - self.centre


def _linear_map(tensors: Tensors, name: str) -> tuple[Floats, Floats]:
    """Return weight and bias of a linear map, whose spectral norm PyTorch keeps at 1."""
    if f"{name}.weight" in tensors:  # already divided by its norm
        return tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    prefix = f"{name}.parametrizations.weight"
    weight, u, v = (tensors[f"{prefix}.{each}"] for each in ("original", "0._u", "0._v"))
    return weight / (u @ (weight @ v)), tensors[f"{name}.bias"]


def _astec(weight: Floats, bias: Floats, x: Floats) -> Floats:
    x = np.maximum(x, 0)
    found: Floats = x + np.maximum(weight @ x + bias, 0)
    return found


def _gated(weight: Floats, bias: Floats, of_layer: Floats, of_input: Floats, x: Floats) -> Floats:
    found: Floats = np.maximum(of_layer * (weight @ np.maximum(x, 0) + bias) + of_input * x, 0)
    return found


def _scaled(weight: Floats, bias: Floats, scale: Floats, x: Floats) -> Floats:
    found: Floats = np.maximum(scale * (weight @ np.maximum(x, 0) + bias) + x, 0)
    return found


def _gate(logit: Floats) -> Floats:
    return np.asarray(expit(logit), dtype=np.float32)


# Blocks of `nets/blocks.py` for vectors of texts, by their names there. A partial function can be pickled.
BLOCKS: dict[str, Callable[[Tensors], Block]] = {
    "astec": lambda tensors: partial(_astec, *_linear_map(tensors, "residual.linear")),
    "decaf": lambda tensors: partial(
        _gated,
        *_linear_map(tensors, "residual.block.linear"),
        _gate(tensors["residual.block.of_layer"]),
        _gate(tensors["residual.block.of_input"]),
    ),
    "eclare": lambda tensors: partial(
        _scaled, *_linear_map(tensors, "residual.block.linear"), tensors["residual.block.scale"]
    ),
}


def label_scores(x: Floats, rows: Floats, bias: Floats) -> Floats:
    """Return the score of every label for one text."""  # shape: (dim,), (L, dim), (L,) -> (L,)
    step = max(1, AT_ONCE // rows.shape[1])
    if step >= len(rows):
        return np.asarray(rows @ x + bias)
    scores = np.empty(len(rows), dtype=np.float32)
    for at in range(0, len(rows), step):
        np.dot(rows[at : at + step], x, out=scores[at : at + step])
    scores += bias
    return scores


def best_places(scores: Floats, k: int) -> tuple[Ints, Floats]:
    """Return places and values of the k largest scores, largest first, ties to the smaller place."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= least)  # more than k if the last of them has equals
    else:
        places = np.arange(len(scores))
    best = places[np.argsort(-scores[places], kind="stable")[:k]]
    return best, scores[best]
