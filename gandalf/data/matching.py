"""Find equal texts: points against labels, labels against each other, training against test."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset

Numbers = npt.NDArray[np.int64]


def text_key(text: str) -> str:
    """Return the key that equal texts share: NFC, case folded, spaces collapsed."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def text_groups(*lists: Iterable[str]) -> list[npt.NDArray[np.int64]]:
    """Number the distinct texts of all lists; return each list as an array of these numbers.

    Every empty text gets a different negative number, so that it matches nothing.
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


def matched_groups(points: Dataset) -> tuple[Numbers, Numbers]:
    """Number the texts of points and of labels; a point that matches a label has the label's number.

    A point matches a label by the label text. It also matches by another text of the label if no other label
    has that text and no other label shares the label text; otherwise it would match labels without its text.
    """
    names, others = points.label_texts or (), points.other_label_texts or ()
    of_points, of_labels, of_others = text_groups(points.texts or (), names, [text for _, text in others])
    return _with_label_numbers(of_points, of_labels, of_others, others), of_labels


def label_groups(labels: Dataset, texts: Iterable[str]) -> tuple[Numbers, Numbers]:
    """Like `matched_groups`, but number the labels first, so that their numbers do not depend on `texts`."""
    names, others = labels.label_texts or (), labels.other_label_texts or ()
    of_labels, of_points, of_others = text_groups(names, texts, [text for _, text in others])
    return of_labels, _with_label_numbers(of_points, of_labels, of_others, others)


def _with_label_numbers(
    of_points: Numbers, of_labels: Numbers, of_others: Numbers, others: Sequence[tuple[int, str]]
) -> Numbers:
    """Replace the number of another text of a label by the number of its label text."""
    if not len(others):
        return of_points
    numbers = np.arange(1 + max(int(each.max(initial=0)) for each in (of_points, of_labels, of_others)))
    named = Counter(of_labels.tolist())
    owners: dict[int, set[int]] = {}
    for number, (label, _) in zip(of_others.tolist(), others, strict=True):
        name = int(of_labels[label])
        owners.setdefault(number, set()).add(name if named[name] == 1 else -1)
    for number, names in owners.items():
        name = names.pop()
        if number >= 0 <= name and not names and number not in named:
            numbers[number] = name
    return np.where(of_points >= 0, numbers[np.maximum(of_points, 0)], of_points)


def is_label_text(texts: Sequence[str], label_texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mark the texts that are a label text."""  # shape: (N,)
    of_points, of_labels = text_groups(texts, label_texts)
    return np.isin(of_points, of_labels)


def known_points(points: Dataset) -> npt.NDArray[np.bool_] | None:
    """Mark the points whose text is a label text; return None if the data set has no texts."""
    if points.texts is None or points.label_texts is None:
        return None
    return is_label_text(points.texts, points.label_texts)
