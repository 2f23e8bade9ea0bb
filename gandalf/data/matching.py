"""Which texts are the same text: points against labels, labels against each other, train against test."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset


def text_key(text: str) -> str:
    """What two texts must share to count as the same input: NFC, case folded, spaces collapsed."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def text_groups(*lists: Iterable[str]) -> list[npt.NDArray[np.int64]]:
    """Number every distinct text over all lists; return each list as an array of those numbers.

    The empty text is no text: it gets a number of its own each time, so that it never matches anything.
    """
    numbers: dict[str, int] = {}
    fresh = -1
    groups = []
    for texts in lists:
        group = []
        for text in texts:
            key = text_key(text)
            if key:
                group.append(numbers.setdefault(key, len(numbers)))
            else:
                group.append(fresh)
                fresh -= 1
        groups.append(np.asarray(group, dtype=np.int64))
    return groups


def is_label_text(texts: Sequence[str], label_texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """For each text, whether some label has that very text."""  # shape: (N,)
    of_points, of_labels = text_groups(texts, label_texts)
    return np.isin(of_points, of_labels)


def known_points(points: Dataset) -> npt.NDArray[np.bool_] | None:
    """For each point, whether its text is a label's text; None where there are no texts to compare."""
    if points.texts is None or points.label_texts is None:
        return None
    return is_label_text(points.texts, points.label_texts)
