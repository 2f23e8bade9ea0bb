"""Distil word vectors from a transformer, which encodes each word of the vocabulary as a text."""

from __future__ import annotations

import numpy as np
import torch

from gandalf.errors import DataError
from gandalf.nets.transformer import pretrained_encoder
from gandalf.progress import track
from gandalf.text.pretrained import DEFAULT_MODEL, model_folder, need_transformers, pretrained_tokens
from gandalf.text.tokens import Tokens
from gandalf.text.vectors import FoundWords, Vectors, project

PREFIX = "distilled"  # values of text.vectors: "distilled", or "distilled:MODEL" for another transformer
LENGTH = 16  # tokens of a word; longer words are cut
BATCH = 1_024


def is_distilled(source: str) -> bool:
    """Return True if `text.vectors` asks for distilled vectors."""
    return source.partition(":")[0] == PREFIX


def distilled_vectors(source: str, tokens: Tokens, dim: int, device: str) -> tuple[Vectors, FoundWords]:
    """Return a vector of `dim` numbers for each token, and a mask of the tokens with a vector."""
    need_transformers()
    name = source.partition(":")[2] or DEFAULT_MODEL
    strings = tokens.strings
    words = list(dict.fromkeys(filter(None, strings)))
    if not words:
        raise DataError("there is no word to read")
    read = _read(name, words, device)
    read -= read.mean(axis=0)  # the mean of all words distinguishes none of them
    place = {word: row for row, word in enumerate(words)}
    rows = np.array([place.get(string, -1) for string in strings])
    found = rows >= 0
    vectors = np.zeros((len(rows), read.shape[1]), dtype=np.float32)
    vectors[found] = read[rows[found]]
    matrix = np.zeros((len(rows), dim), dtype=np.float32)
    matrix[found] = project(vectors, found, dim)[found]
    return matrix, found


@torch.no_grad()
def _read(model: str, words: list[str], device: str) -> Vectors:
    """Return the transformer's vector of each word."""  # shape: (W, hidden)
    folder, own = model_folder(model), pretrained_tokens(model, LENGTH)
    encoder = pretrained_encoder(folder, own).eval().to(device)
    parts = []
    for start in track(range(0, len(words), BATCH), "reading words"):
        ids = torch.from_numpy(own.encode(words[start : start + BATCH])).long().to(device)
        parts.append(encoder(ids).float().cpu().numpy())
    return np.concatenate(parts)
