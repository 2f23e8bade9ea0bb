"""Predict by a network of words in NumPy, without PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.model_folder import CONFIG, damaged
from gandalf.text.load import load_tokens
from gandalf.text.tokens import Tokens
from gandalf.wide.plain import BLOCKS, Floats, Ints, PlainBagOfWords, Tensors, best_places, label_scores

BAG_OF_WORDS = "bag-of-words"  # the kind of encoder that runs in NumPy


@dataclass(frozen=True, eq=False)
class PlainNetwork:
    """Tokens, a bag-of-words encoder, and a row and a bias for each label."""

    tokens: Tokens
    encoder: PlainBagOfWords
    rows: Floats  # L x dim
    bias: Floats  # shape: (L,)

    def best(self, texts: Sequence[str], k: int) -> tuple[Ints, Floats]:
        """Return ids and scores of the k best labels of each text, ties to the smaller label."""
        found = [best_places(label_scores(x, self.rows, self.bias), k) for x in self._vectors(texts)]
        ids = np.array([labels for labels, _ in found], dtype=np.int64).reshape(len(texts), k)
        return ids, np.array([scores for _, scores in found], dtype=np.float32).reshape(len(texts), k)

    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the score of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        pairs = zip(self._vectors(texts), labels, strict=True)
        found = [(self.rows[own] * x).sum(axis=1) + self.bias[own] for x, own in pairs]
        return np.array(found, dtype=np.float32).reshape(labels.shape)

    def knows(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return True for each text of which at least one token is known."""  # shape: (N,)
        return self.tokens.known(texts)

    def unit_vectors(self, texts: Sequence[str]) -> Floats:
        """Return the encoder's vectors, scaled to length 1."""  # shape: (N, dim)
        found = np.array(self._vectors(texts), dtype=np.float32).reshape(len(texts), self.rows.shape[1])
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))

    def _vectors(self, texts: Sequence[str]) -> list[Floats]:
        return [self.encoder(ids) for ids in self.tokens.encode(texts)]


def read_plain_network(folder: Path, weights: str, encoder: dict[str, Any], labels: int) -> PlainNetwork:
    """Read the network of a model folder; `encoder` holds the options of its encoder."""
    tokens, tensors = load_tokens(folder), _read_tensors(folder / weights)
    block = encoder.get("block", "astec")
    try:
        prefix = "encoder."
        own = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
        made = PlainBagOfWords.of(block, own)
        rows, bias = tensors["head.rows"], tensors["head.bias"]
        if made(np.arange(min(tokens.size, 2))).shape != rows.shape[1:] or bias.shape != (labels,):
            raise ValueError("encoder and labels do not fit together")
        if (tokens.size, labels) != (len(made.words), len(rows)) or made.idf.shape != (tokens.size,):
            raise ValueError("there are more or fewer words or labels")
    except (KeyError, ValueError, TypeError, IndexError) as error:
        what = f"does not hold the weights that {CONFIG} calls for ({error})"
        raise damaged(what, folder / weights) from error
    return PlainNetwork(tokens, made, rows, bias)


def can_be_plain(encoder: dict[str, Any]) -> bool:
    """Return True if an encoder with these options runs in NumPy."""
    return encoder.get("kind") == BAG_OF_WORDS and encoder.get("block", "astec") in BLOCKS


def _read_tensors(path: Path) -> Tensors:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as error:
        remedy = "pip install 'gandalf-xmc[slim]'"
        raise DataError("a network needs safetensors", remedy=remedy, kind="missing-library") from error
    try:
        tensors: Tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0][:120]
        raise damaged(f"cannot be read as safetensors ({reason})", path) from error
    for name, tensor in tensors.items():
        if tensor.dtype == np.float32 and not np.isfinite(tensor).all():
            what = f"{name} holds values that are no numbers"
            raise DataError(what, remedy="train the model again", file=path)
        if np.issubdtype(tensor.dtype, np.floating) and tensor.dtype != np.float32:
            raise DataError(f"{name} is of {tensor.dtype}", remedy="read it with PyTorch", file=path)
    return tensors
