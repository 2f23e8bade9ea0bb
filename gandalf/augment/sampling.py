"""Draw the labels that get label points, or rows of the augmented set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from gandalf.data.stats import label_bins
from gandalf.errors import DataError

SamplingOrder = Literal["random", "tail"]
Ints = npt.NDArray[np.int64]


def sample_labels(
    frequencies: npt.NDArray[np.int64], share: float, order: SamplingOrder, generator: np.random.Generator
) -> Ints:
    """Return a share of the labels, sorted: drawn at random, or the rarest labels.

    `tail` takes labels bin by bin (five bins of equal positives), the rarest bin first and at random within a
    bin, as in the paper's study of sub-sampling. `frequencies` are those of the original training points.
    """
    if not 0 <= share <= 1:
        raise DataError(f"share is {share}, but it must lie in [0, 1]")
    if order not in ORDERS:
        raise DataError(f"there is no order {order!r}", remedy=f"choose from {', '.join(ORDERS)}")
    number = round(share * len(frequencies))
    return np.sort(ORDERS[order](frequencies, generator)[:number])


def sample_points(points: int, number: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return `number` rows drawn uniformly without replacement, sorted: U(G, N)."""
    if number > points:
        raise DataError(f"cannot draw {number} of {points} points without replacement")
    return np.sort(generator.choice(points, size=number, replace=False))


def _at_random(frequencies: npt.NDArray[np.int64], generator: np.random.Generator) -> Ints:
    return generator.permutation(len(frequencies))


def _tail_first(frequencies: npt.NDArray[np.int64], generator: np.random.Generator) -> Ints:
    shuffled = generator.permutation(len(frequencies))
    return shuffled[np.argsort(-label_bins(frequencies)[shuffled], kind="stable")]


ORDERS: dict[SamplingOrder, Callable[[npt.NDArray[np.int64], np.random.Generator], Ints]] = {
    "random": _at_random,
    "tail": _tail_first,
}
