"""Make up points and models: what they say is noise, what they cost is what real ones cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array

from gandalf.model import Calibration, Model
from gandalf.nets.bag_of_words import BagOfWords
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.text.words import Words, WordsOptions
from gandalf.train.batches import Points

ENCODER = {"kind": "bag-of-words", "dim": 300, "dropout": 0.0}


def random_points(
    shape: tuple[int, int], words: int, length: int, per_point: int, shortest: int | None = None
) -> Points:
    """Return points of random words, and targets of which a head label has many and a tail label few.

    Texts have `length` words, or between `shortest` and `length`.
    """
    number, labels = shape
    random = np.random.default_rng(0)
    tokens = random.integers(1, words, (number, length), dtype=np.int32)
    if shortest is not None:
        tokens[np.arange(length)[None, :] >= random.integers(shortest, length, number)[:, None]] = 0
    columns = (random.random((number, per_point)) ** 3 * labels).astype(np.int64).ravel()
    ends = np.arange(0, number * per_point + 1, per_point)
    targets = csr_array((np.full(len(columns), 0.5, np.float32), columns, ends), shape=(number, labels))
    targets.sum_duplicates()
    return Points(tokens, targets)


def untrained_model(texts: Sequence[str], dim: int = 128) -> Model:
    """Return a model of these labels with rows drawn at random."""
    options = {"kind": "bag-of-words", "dim": dim, "dropout": 0.0}
    tokens = Words.fit(texts, WordsOptions(max_length=16))
    encoder = build_encoder(options, tokens.size)
    return Model(tokens, encoder, Table(len(texts), dim), list(texts), None, {"encoder": options})


def made_up_model(labels: int, seed: int = 0) -> Model:
    """Return a model of that many labels, each row near the vector of its text; few words are frequent."""
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(max(2_000, labels // 8))])
    chances = 1 / np.arange(10, len(words) + 10)
    drawn = rng.choice(words, (labels, 5), p=chances / chances.sum())
    texts = [" ".join(row) for row in drawn]
    tokens = Words.fit(texts[:200_000], WordsOptions(max_length=16, pieces=200))
    torch.manual_seed(seed)
    encoder = build_encoder(ENCODER, tokens.size)
    assert isinstance(encoder, BagOfWords)
    encoder.weigh(torch.from_numpy(tokens.idf()))
    head = Table(labels, encoder.dim)
    config = {"encoder": ENCODER, "system": "made up"}
    model = Model(tokens, encoder, head, texts, None, config, Calibration())
    with torch.no_grad():
        rows = torch.nn.functional.normalize(model.vectors(texts), dim=1)
        own = torch.nn.functional.normalize(torch.randn(rows.shape), dim=1)
        head.rows.copy_(8 * (rows + 0.5 * own) * torch.empty(labels, 1).uniform_(0.7, 1.3))
        head.bias.fill_(-6.0)
    return model


def _word(number: int) -> str:
    """Return five letters; a tokenizer would cut at digits."""
    found = ""
    for _ in range(5):
        number, letter = divmod(number, 26)
        found += chr(ord("a") + letter)
    return found


def queries(model: Model, number: int = 500) -> list[str]:
    """Return texts that share most words with some label's."""
    rng = np.random.default_rng(1)
    picked = rng.choice(model.num_labels, number)
    return [" ".join(rng.permutation(model.label_texts[label].split())[:4]) for label in picked.tolist()]
