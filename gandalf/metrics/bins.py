"""Split P@5 into the contributions of label bins, from frequent labels to rare ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gandalf.data.stats import BINS
from gandalf.metrics.ranking import Ranking

PLACES = 5  # contributions are to P@5


@dataclass(frozen=True)
class BinContribution:
    """Labels of similar training frequency, and the part of P@5 from hits on them."""

    labels: int
    mean_frequency: float
    contribution: float  # in percentage points; the contributions of all bins sum to P@5


def bin_contributions(ranking: Ranking, of_label: npt.NDArray[np.int64]) -> tuple[float, ...]:
    """Return the part of P@5 from hits on labels of each bin, in percentage points."""
    hit = of_label[ranking.ids[:, :PLACES][ranking.hits[:, :PLACES]]]
    places = PLACES * max(len(ranking.ids), 1)
    return tuple(100.0 * count / places for count in np.bincount(hit, minlength=BINS).tolist())


def describe_bins(
    frequencies: npt.NDArray[np.integer], of_label: npt.NDArray[np.int64], parts: tuple[float, ...]
) -> tuple[BinContribution, ...]:
    """Return size, mean training frequency and contribution of each bin."""
    sizes = np.bincount(of_label, minlength=BINS)
    positives = np.bincount(of_label, weights=frequencies, minlength=BINS)
    means = positives / np.maximum(sizes, 1)
    return tuple(
        BinContribution(size, mean, part)
        for size, mean, part in zip(sizes.tolist(), means.tolist(), parts, strict=True)
    )
