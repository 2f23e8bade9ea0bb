"""Replace words of texts by synonyms, and keep the targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gandalf.data.dataset import Dataset

_SPACE = re.compile(r"\s+")


def distinct_words(texts: Sequence[str]) -> list[str]:
    """Return the distinct words of the texts as written, sorted."""
    return sorted({word for text in texts for word in _SPACE.split(text) if word})


def replace_words(
    points: Dataset, near: Mapping[str, Sequence[str]], share: float, generator: np.random.Generator
) -> Dataset:
    """Return the points with this share of words drawn, and each drawn word in `near` replaced by a near
    word."""
    texts, _ = points.need_texts("synonym replacement")
    return replace(points, texts=[_replaced(text, near, share, generator) for text in texts])


def _replaced(
    text: str, near: Mapping[str, Sequence[str]], share: float, generator: np.random.Generator
) -> str:
    words = _SPACE.split(text)
    for place in np.flatnonzero(generator.random(len(words)) < share).tolist():
        found = near.get(words[place], ())
        if found:
            words[place] = found[int(generator.integers(len(found)))]
    return " ".join(words)
