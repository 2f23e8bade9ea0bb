"""What each bin of labels, head to tail, adds to P@5."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gandalf.data.stats import BINS
from gandalf.metrics.ranking import Ranking

PLACES = 5  # contributions are to P@5


@dataclass(frozen=True)
class Bin:
    """Labels of like training frequency, and the share of P@5 that hits on them make up."""

    labels: int
    mean_frequency: float
    contribution: float  # in percent points of P@5; the bins' contributions sum to P@5


def bin_contributions(ranking: Ranking, of_label: npt.NDArray[np.int64]) -> tuple[float, ...]:
    """What each bin's hits add to P@5, in percent points."""
    hit = of_label[ranking.ids[:, :PLACES][ranking.hits[:, :PLACES]]]
    places = PLACES * max(len(ranking.ids), 1)
    return tuple(100.0 * count / places for count in np.bincount(hit, minlength=BINS).tolist())


def describe_bins(
    frequencies: npt.NDArray[np.integer], of_label: npt.NDArray[np.int64], parts: tuple[float, ...]
) -> tuple[Bin, ...]:
    """Size and mean training frequency of each bin beside its contribution."""
    sizes = np.bincount(of_label, minlength=BINS)
    positives = np.bincount(of_label, weights=frequencies, minlength=BINS)
    means = positives / np.maximum(sizes, 1)
    return tuple(
        Bin(size, mean, part) for size, mean, part in zip(sizes.tolist(), means.tolist(), parts, strict=True)
    )
