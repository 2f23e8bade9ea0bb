"""Find the best labels of one vector by 8-bit codes of all rows, and prove that the exact search agrees.

A product with all rows in float32 takes as long as reading them from memory, and codes are a quarter of that.
How far a score by codes can be off is known, so the few labels that may be among the best are scored again
with the rows themselves, and every other label is proved to score less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.compiled import compiled
from gandalf.wide.plain import Floats, Ints, best_places

Codes = npt.NDArray[np.int8]

PLACES = 127  # of a code on either side of 0
FACTOR, SPARE = 3, 27  # candidates for k labels: FACTOR * k + SPARE
AT_ONCE = 1 << 14  # rows that are rounded at once
# Largest error of a score in float32 in any order of the sum, as a share of the product of the lengths.
FLOAT_ERROR = 1e-5


@dataclass(frozen=True, eq=False)
class Rounded:
    """Codes of rows: each number of a row as the nearest of 255 evenly spaced places of its column."""

    codes: Codes  # C x dim, of the first labels
    step: Floats  # distance between two places of a column; shape: (dim,)
    middle: Floats  # middle of the range of a column; shape: (dim,)
    error: float  # the longest distance of a row from its code
    length: float  # length of the longest row
    most_bias: float

    @classmethod
    def of(cls, rows: Floats, bias: Floats) -> Rounded | None:
        """Round rows; return None without numba, or if a number of the rows is not finite."""
        low, high = rows.min(axis=0), rows.max(axis=0)
        if compiled(_scores) is None or not np.isfinite(high - low).all():
            return None
        middle, step = (low + high) / 2, np.maximum((high - low) / (2 * PLACES), np.float32(1e-30))
        codes = np.empty(rows.shape, dtype=np.int8)
        error = length = 0.0
        for at in range(0, len(rows), AT_ONCE):
            part = rows[at : at + AT_ONCE]
            places = np.clip(np.rint((part - middle) / step), -PLACES, PLACES)
            codes[at : at + AT_ONCE] = places
            error = max(error, _longest(part - (middle + places * step)))
            length = max(length, _longest(part))
        most_bias = float(np.abs(bias[np.isfinite(bias)]).max(initial=0.0))
        return cls(codes, step, middle, error, length, most_bias)

    def best(self, x: Floats, k: int, rows: Floats, bias: Floats) -> tuple[Ints, Floats] | None:
        """Return the k best labels and their scores, or None without a proof that they are the best.

        There may be more rows than codes: later rows are all scored.
        """
        number, turned = FACTOR * k + SPARE, x * self.step
        largest = float(np.abs(turned).max())
        known = len(self.codes)
        if number >= known or not 0 < largest < np.inf:
            return None
        # Products of codes and places add up in 32 bits.
        unit = largest / min(2**15 - 1, (2**31 - 1) // (PLACES * len(x)))
        places = np.rint(turned / np.float32(unit))
        scores_by_codes: Any = compiled(_scores)
        by_codes = scores_by_codes(self.codes, bias[:known], places.astype(np.int16), np.float32(unit))
        least = np.partition(by_codes, len(by_codes) - number)[len(by_codes) - number]
        labels = np.concatenate([np.flatnonzero(by_codes >= least), np.arange(known, len(rows))])
        # Sums in one order, as those of `pair_scores`: equal rows have equal scores.
        scores = (rows.take(labels, axis=0) * x).sum(axis=1) + bias[labels]
        best, values = best_places(scores, k)
        most_error = _length(turned - places * np.float32(unit)) * PLACES * len(x) ** 0.5
        most_error += _length(x) * (self.error + FLOAT_ERROR * self.length) + FLOAT_ERROR * self.most_bias
        # This order of the comparison makes it False for NaN.
        return (labels[best], values) if values[-1] > least + x @ self.middle + most_error else None


def _length(vector: Floats) -> float:
    return float(np.sqrt(vector @ vector))


def _longest(rows: Floats) -> float:
    return float(np.sqrt(np.einsum("ld,ld->l", rows, rows).max(initial=0.0)))


def _scores(codes: Codes, bias: Floats, x: npt.NDArray[np.int16], unit: float) -> Floats:
    """Return the score of every row by its code."""
    found = np.empty(len(codes), dtype=np.float32)
    for row in range(len(codes)):
        total = np.int32(0)
        for at in range(codes.shape[1]):
            total += np.int32(codes[row, at]) * np.int32(x[at])
        # numba widens sums. Narrowed to 32 bits again, twice as many numbers fit into a vector register.
        found[row] = np.float32(np.int32(total)) * unit + bias[row]
    return found
