"""Every system small enough for a run of a moment, and the transformer that two of them begin with."""

from __future__ import annotations

from dataclasses import replace

import torch
from safetensors.torch import load_file, save_file
from small_runs import SMALL
from small_transformer import WORDS, write_transformer

from gandalf.data.dataset import Splits
from gandalf.recipe import Recipe
from gandalf.runs.build import assemble_encoder, some_texts
from gandalf.runs.plan import resolved
from gandalf.runs.prepare import LabelTexts, Material, fit_tokens, points_for_loop, with_label_points
from gandalf.runs.stages import begin_stage
from gandalf.settings import override
from gandalf.systems import recipe

EXACT = ("device=cpu", "training.precision=float32")
PAIRS = ("siamese.pair_epochs=2", "siamese.pair_batch=32")


def write_pretrained(folder, splits, size=32):
    """A transformer that tells the words of a data set apart, as one that was trained would."""
    texts = [*splits.train.texts, *splits.test.texts, *splits.train.label_texts]
    words = WORDS[:4] + sorted({word for text in texts for word in text.split()})
    write_transformer(folder, words, hidden_size=size, intermediate_size=2 * size)
    weights = load_file(folder / "model.safetensors")
    drawn = torch.randn(len(words), size, generator=torch.Generator().manual_seed(0))
    weights["embeddings.word_embeddings.weight"] = drawn
    weights["embeddings.position_embeddings.weight"] *= 0.1
    save_file(weights, folder / "model.safetensors")
    return folder


def whole(system: str, folder, *settings: str) -> Recipe:
    """The system's recipe as it is, but for the transformer."""
    asked = [f"encoder.model={folder}"] if recipe(system).encoder.kind == "transformer" else []
    return override(recipe(system), [*EXACT, *asked, *settings])


def small_system(system: str, folder, *settings: str) -> Recipe:
    """The same with short vectors, small batches and few pairs; a transformer has sizes of its own."""
    dim = 64 if system.startswith("inceptionxml") else 16
    pairs = PAIRS if recipe(system).siamese.kind != "none" else ()
    return whole(system, folder, *SMALL, f"encoder.dim={dim}", *pairs, *settings)


def begun(splits: Splits, asked: Recipe, stage="classifier"):
    """A stage of a run before its first step, and what it works on; nothing is held out."""
    rest = splits.train
    asked = resolved(replace(asked, device="cpu"), len(rest), rest.num_labels)
    tokens = fit_tokens(rest, asked.text, asked.encoder)
    made = with_label_points(rest, asked.targets, asked.seed)
    points = points_for_loop(made, tokens, asked.targets)
    texts = LabelTexts.of(rest, tokens, asked)
    material = Material(asked, rest, made, tokens, points, rest, texts=texts)
    encoder = assemble_encoder(asked, tokens, some_texts(points, made.is_label))
    return begin_stage(stage, material, encoder, 0), material
