"""The parts of a model by a recipe, at their start."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from gandalf.nets.bag_of_words import BagOfWords
from gandalf.nets.encoders import TextEncoder, build_encoder
from gandalf.nets.heads import Table
from gandalf.nets.transformer import Transformer, read_config
from gandalf.recipe import Encoder, Recipe
from gandalf.runs.validation import encoded
from gandalf.text.pretrained import model_folder
from gandalf.text.subwords import Subwords
from gandalf.text.tokens import Tokens
from gandalf.text.vectors import static_vectors
from gandalf.train.batches import Points

SETTLED = 256  # points that say how long a transformer's vectors are
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def encoder_options(encoder: Encoder, max_length: int) -> dict[str, Any]:
    """What a model folder keeps, to build the encoder again."""
    if encoder.kind == "inception":
        return {
            "kind": encoder.kind,
            "words": max_length,
            "word_dim": encoder.dim,
            "dropout": encoder.dropout,
            "last_dropout": encoder.last_dropout,
        }
    if encoder.kind == "transformer":
        config = read_config(model_folder(encoder.model))
        return {"kind": encoder.kind, "config": config, "dropout": encoder.dropout}
    return {"kind": encoder.kind, "dim": encoder.dim, "dropout": encoder.dropout}


def assemble(recipe: Recipe, tokens: Tokens, points: Points) -> tuple[TextEncoder, Table]:
    """Encoder and head before the first step, on the recipe's device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), tokens.size)
        _begin(encoder, recipe, tokens)
        head = Table(points.targets.shape[1], encoder.dim)
    encoder.to(recipe.device)
    head.to(recipe.device)
    if isinstance(encoder, Transformer):
        some = np.linspace(0, len(points) - 1, min(SETTLED, len(points))).astype(np.int64)
        encoder.settle(torch.from_numpy(points.tokens[some].astype(np.int64)).to(recipe.device))
    if recipe.head.start == "points":
        start_from_points(encoder, head, points)
    return encoder, head


def _begin(encoder: TextEncoder, recipe: Recipe, tokens: Tokens) -> None:
    """What an encoder knows before the first step: weights of words, vectors, a whole transformer."""
    if isinstance(encoder, Transformer):
        assert isinstance(tokens, Subwords)  # by `check_recipe`
        encoder.start_from(model_folder(recipe.encoder.model))
        encoder.renumber(tokens.tokenizer_ids)
        return
    if isinstance(encoder, BagOfWords):
        encoder.weigh(torch.from_numpy(tokens.idf()))
    if recipe.text.vectors is not None:
        vectors, found = static_vectors(recipe.text.vectors, tokens, encoder.words.embedding_dim)
        encoder.words.start_from(torch.from_numpy(vectors), torch.from_numpy(found))


@torch.no_grad()
def start_from_points(encoder: nn.Module, head: Table, points: Points) -> None:
    """Let each label's row begin as the direction of its points' mean vector; without points, as drawn."""
    vectors = encoded(encoder, points).cpu().numpy()  # shape: (N, dim)
    mean = points.targets.T.tocsr() @ vectors  # shape: (L, dim)
    del vectors  # both are large, and whatever is done with the mean is done in its place
    length = np.linalg.norm(mean, axis=1, keepdims=True)
    mean /= np.maximum(length, 1e-6)
    unknown = ~(length[:, 0] > 1e-6)
    mean[unknown] = head.rows[torch.from_numpy(unknown).to(head.rows.device)].cpu().numpy()
    head.rows.copy_(torch.from_numpy(mean))
