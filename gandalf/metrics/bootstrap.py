"""Test whether two prediction sets differ, by a paired bootstrap over the test points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError
from gandalf.metrics.evaluate import Scores
from gandalf.metrics.ranking import Doubles, percent

RESAMPLES = 1000
BLOCK_CELLS = 1 << 22  # weights in memory at once


@dataclass(frozen=True)
class Difference:
    """First minus second figure, in percentage points, with its 95 % interval and two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def real(self) -> bool:
        """Return True if the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, Any]:
        """Return the four numbers and `real`."""
        return {**asdict(self), "real": self.real}


Differences = dict[str, Difference]


@dataclass(frozen=True)
class Comparison:
    """Differences by metric, over all test points, over known texts and over new texts."""

    every: Differences
    label_text: Differences | None
    new_text: Differences | None

    def __getitem__(self, name: str) -> Difference:
        return self.every[name]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON in the layout of `Scores.as_dict`: all points at the top level."""
        return {
            **_plain(self.every),
            "label_text": None if self.label_text is None else _plain(self.label_text),
            "new_text": None if self.new_text is None else _plain(self.new_text),
        }


def compare(first: Scores, second: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Comparison:
    """Draw test points with replacement, and measure how the difference of the filtered figures varies.

    Both prediction sets use the same resamples. Coverage and macro precision are left out: they are not sums
    over points, and a resample, which misses a third of the points, would be biased for both.
    """
    one, two = first.contributions, second.contributions
    if one.names != two.names or one.gains.shape != two.gains.shape:
        raise DataError(
            "the two scores are of different points or different k", remedy="evaluate both on the same data"
        )
    known = first.known
    halves = [np.ones(one.gains.shape[1], dtype=bool)] if known is None else [known, ~known]
    columns = np.concatenate([one.gains, two.gains, one.ideals])  # shape: (3 M, N)
    rng = np.random.default_rng(seed)
    drawn = [np.concatenate(sums) for sums in zip(*_resampled(columns, halves, rng, resamples), strict=True)]
    observed = [columns[:, half].sum(axis=1)[None] for half in halves]
    every = _differences(one.names, np.sum(observed, axis=0), np.sum(drawn, axis=0))
    if known is None:
        return Comparison(every, None, None)
    return Comparison(every, *(_differences(one.names, o, d) for o, d in zip(observed, drawn, strict=True)))


def _resampled(
    columns: Doubles, halves: list[npt.NDArray[np.bool_]], rng: np.random.Generator, resamples: int
) -> Iterator[list[Doubles]]:
    """Yield column sums over each half, by blocks of resamples; a resample is a weight for each point."""
    points = columns.shape[1]
    parts = [np.ascontiguousarray(columns[:, half].T) for half in halves]  # shape: (n, 3 M) each
    size = max(1, min(resamples, BLOCK_CELLS // points))
    for done in range(0, resamples, size):
        drawn = (rng.integers(points, size=points) for _ in range(min(size, resamples - done)))
        weights = np.stack([np.bincount(rows, minlength=points) for rows in drawn]).astype(np.float64)
        yield [weights[:, half] @ part for half, part in zip(halves, parts, strict=True)]


def _differences(names: tuple[str, ...], observed: Doubles, drawn: Doubles) -> Differences:
    """Return the observed difference of every metric, with its spread over the resamples."""
    seen, varied = _difference(observed)[0], _difference(drawn)  # shape: (M,), (R, M)
    low, high = np.percentile(varied, [2.5, 97.5], axis=0)
    opposite = np.minimum((varied <= 0).sum(axis=0), (varied >= 0).sum(axis=0))
    p = np.minimum(1.0, 2.0 * (1 + opposite) / (1 + len(varied)))  # never 0: the data count as one resample
    return {
        name: Difference(*(float(column[at]) for column in (seen, low, high, p)))
        for at, name in enumerate(names)
    }


def _difference(sums: Doubles) -> Doubles:
    first, second, ideal = np.split(sums, 3, axis=1)
    return percent(first, ideal) - percent(second, ideal)


def _plain(differences: Differences) -> dict[str, Any]:
    return {name: difference.as_dict() for name, difference in differences.items()}
