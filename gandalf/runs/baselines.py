"""The methods that label points are compared with, as parts of a run: MixUp, GLaS, synonyms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import logit
from torch.nn import functional as F

from gandalf.augment.synonyms import replaced, words_of
from gandalf.data.dataset import Dataset
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.nets.encoders import build_encoder
from gandalf.nets.transformer import Transformer, read_config
from gandalf.recipe import MixName, Recipe
from gandalf.runs.material import Augmented
from gandalf.runs.validation import encoded
from gandalf.text.pretrained import model_folder, need_transformers, pretrained_tokens
from gandalf.text.table import token_table
from gandalf.train.glas import Glas
from gandalf.train.mixing import Mix, Pairs, each_other, first_with_second_half

NEAR, LEAST = 5, 0.5  # words that may stand for another: so many at most, and no cosine below that
LENGTH = 16  # tokens of a word
BLOCK = 1024  # words compared with all others at once

PAIRS: dict[MixName, Callable[[int, np.random.Generator], Pairs]] = {
    "mixup": each_other,
    "label-mixup": first_with_second_half,
}


def mix_of(recipe: Recipe) -> Mix | None:
    """How the vectors of a batch are mixed."""
    options = recipe.baselines
    return None if options.mix == "none" else Mix(PAIRS[options.mix], options.mix_alpha, recipe.seed)


def glas_of(rest: Dataset, recipe: Recipe) -> Glas | None:
    """The regulariser with the similarities of the training points' labels."""
    if not recipe.baselines.glas:
        return None
    targets = label_graph(rest, GraphOptions(targets="glas", delta=0.0)).matrix
    # GLaS targets are sigmoids of S, so that S is their logit.
    data = logit(targets.data.astype(np.float64)).astype(np.float32)
    similarity = csr_array((data, targets.indices, targets.indptr), shape=targets.shape)
    return Glas(similarity, recipe.baselines.glas)


def with_synonyms(made: Augmented, rest: Dataset, recipe: Recipe) -> Augmented:
    """The points, and behind them versions of the training points with words replaced."""
    options = recipe.baselines
    if not options.synonyms:
        return made
    texts, _ = rest.need_texts("synonym replacement")
    near = near_words(tuple(words_of(texts)), recipe.encoder.model, recipe.device)
    generator, points = np.random.default_rng([recipe.seed, 1]), made.points
    for _ in range(options.synonyms):
        points = points + replaced(rest, near, options.synonym_share, generator)
    more = np.zeros(len(points) - len(made.points), dtype=bool)
    return replace(made, points=points, is_label=np.concatenate([made.is_label, more]))


@lru_cache(maxsize=1)
def near_words(words: tuple[str, ...], model: str | None, device: str = "cpu") -> dict[str, list[str]]:
    """For each word the nearest others by a pre-trained encoder's vectors; none where none is near."""
    need_transformers()
    folder = model_folder(model)
    tokens = pretrained_tokens(folder, LENGTH)
    options = {"kind": "transformer", "config": read_config(folder), "dropout": 0.0}
    encoder = build_encoder(options, tokens.size)
    assert isinstance(encoder, Transformer)
    encoder.start_from(folder)
    encoder.renumber(tokens.tokenizer_ids)
    vectors = F.normalize(encoded(encoder.to(device), token_table(tokens, words)), dim=1)  # shape: (W, dim)
    found: dict[str, list[str]] = {}
    for start in range(0, len(words), BLOCK):
        cosine = vectors[start : start + BLOCK] @ vectors.T  # shape: (block, W)
        rows = torch.arange(len(cosine), device=cosine.device)
        cosine[rows, start + rows] = -1.0  # a word is no synonym of itself
        best = torch.topk(cosine, min(NEAR, len(words)), dim=1)
        for row, (values, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
            kept = zip(values, places, strict=True)
            found[words[start + row]] = [words[place] for value, place in kept if value >= LEAST]
    return found
