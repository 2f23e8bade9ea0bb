"""A tiny model with real parts, for tests of what is done with trained ones."""

from __future__ import annotations

import torch
from small_transformer import small_bert

from gandalf.model import Calibration, Model
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.text.words import Words, WordsOptions

LABELS = ["gzip", "bzip2 files", "disk usage", "Ärger über \u2028 Zeilen", "gzip"]
OPTIONS = {
    "bag-of-words": {"kind": "bag-of-words", "dim": 12, "dropout": 0.3},
    "centred": {"kind": "bag-of-words", "dim": 12, "centred": True},
    "inception": {"kind": "inception", "words": 8, "word_dim": 128},
    "transformer": {"kind": "transformer", "config": small_bert(), "dropout": 0.1},
}


def small_model(kind="bag-of-words", *, labels=LABELS, seed=0, calibrated=True, ids=True, texts=()):
    """Weights drawn at random, label rows that answer to the labels' own texts."""
    tokens = Words.fit([*labels, *labels, *texts, "compress a file"], WordsOptions(max_length=8))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = build_encoder(OPTIONS[kind], tokens.size)
        head = Table(len(labels), encoder.dim)
    model = Model(
        tokens,
        encoder,
        head,
        list(labels),
        [f"L{index}" for index in range(len(labels))] if ids else None,
        {"system": "tiny", "data": "five labels", "encoder": OPTIONS[kind], "epochs": 3},
        Calibration(2.0, -0.5) if calibrated else None,
    )
    if kind == "centred":
        encoder.fit_to_texts(torch.from_numpy(tokens.encode(list(labels))))
    with torch.no_grad():
        vectors = model.vectors(labels)
        head.rows.copy_(6 * torch.nn.functional.normalize(vectors - vectors.mean(0)))
        head.bias.fill_(-1.0)
    return model
