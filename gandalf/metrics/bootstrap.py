"""Is the difference between two prediction sets real? A paired bootstrap over the test points."""

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
BLOCK_CELLS = 1 << 22  # weights held at once


@dataclass(frozen=True)
class Difference:
    """First minus second, in percent points, with its 95 % interval and two-sided p-value."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def real(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def as_dict(self) -> dict[str, Any]:
        """The four numbers and the verdict."""
        return {**asdict(self), "real": self.real}


Differences = dict[str, Difference]


@dataclass(frozen=True)
class Comparison:
    """Differences by metric, over all test points and over the two kinds of text."""

    every: Differences
    label_text: Differences | None
    new_text: Differences | None

    def __getitem__(self, name: str) -> Difference:
        return self.every[name]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers in the shape of `Scores.as_dict`: all points at the top level."""
        return {
            **_plain(self.every),
            "label_text": None if self.label_text is None else _plain(self.label_text),
            "new_text": None if self.new_text is None else _plain(self.new_text),
        }


def compare(first: Scores, second: Scores, *, seed: int = 0, resamples: int = RESAMPLES) -> Comparison:
    """Draw test points with replacement, the same for both, and see how the (filtered) difference varies.

    Coverage and macro precision are left out: they are not sums over points, and a resample, which repeats
    some points and misses a third of them, would be biased for both.
    """
    one, two = first.contributions, second.contributions
    if one.names != two.names or one.gains.shape != two.gains.shape:
        raise DataError(
            "the two scores are of other points or other k", remedy="evaluate both on the same data"
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
    """Column sums over each half for block after block of resamples; a resample is a weight on each point."""
    points = columns.shape[1]
    parts = [np.ascontiguousarray(columns[:, half].T) for half in halves]  # shape: (n, 3 M) each
    size = max(1, min(resamples, BLOCK_CELLS // points))
    for done in range(0, resamples, size):
        drawn = (rng.integers(points, size=points) for _ in range(min(size, resamples - done)))
        weights = np.stack([np.bincount(rows, minlength=points) for rows in drawn]).astype(np.float64)
        yield [weights[:, half] @ part for half, part in zip(halves, parts, strict=True)]


def _differences(names: tuple[str, ...], observed: Doubles, drawn: Doubles) -> Differences:
    """Observed difference of every metric beside its spread over the resamples."""
    seen, varied = _difference(observed)[0], _difference(drawn)  # shape: (M,), (R, M)
    low, high = np.percentile(varied, [2.5, 97.5], axis=0)
    opposite = np.minimum((varied <= 0).sum(axis=0), (varied >= 0).sum(axis=0))
    p = np.minimum(1.0, 2.0 * (1 + opposite) / (1 + len(varied)))  # never 0: the data itself is one draw
    return {
        name: Difference(*(float(column[at]) for column in (seen, low, high, p)))
        for at, name in enumerate(names)
    }


def _difference(sums: Doubles) -> Doubles:
    first, second, ideal = np.split(sums, 3, axis=1)
    return percent(first, ideal) - percent(second, ideal)


def _plain(differences: Differences) -> dict[str, Any]:
    return {name: difference.as_dict() for name, difference in differences.items()}
