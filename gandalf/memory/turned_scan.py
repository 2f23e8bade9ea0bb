"""Search many rotated rows by two-bit codes; a search reads every row, in a sixteenth of the bytes.

Two numbers share a code of four bits, so a search takes half the time of four bits for each number. A random
rotation spreads the information of a few numbers over all of them, and makes each number nearly normal for
any rows. More candidates must be scored again than with four bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gandalf.memory.scan import (
    CHUNK,
    SAMPLE,
    Bytes,
    Floats,
    Ints,
    copy_scan,
    pack_codes,
    scan_of_codes,
    search_scan,
)

PLACES = 4  # values of the code of a number
STEP = 0.9957  # standard deviations between two places: the least error for four places of a normal number
WIDTH = 4  # the width of a row is a multiple of this: two numbers in a code, two codes in a byte
SEED = 0  # seed of the rotation


@dataclass(frozen=True, eq=False)
class TurnedScan:
    """Codes of rows for a search by inner product; adding or removing rows returns another scan."""

    codes: Any  # faiss.IndexPQFastScan

    @classmethod
    def of(cls, number: int, rows_at: Callable[[slice | Ints], Floats]) -> TurnedScan:
        """Return the codes of `number` rows; `rows_at` returns some rows at a time."""
        low, step = _places(_rotated(rows_at(_sample(number))))  # shape: (dim,)
        chunks = (_rotated(rows_at(slice(at, at + CHUNK))) for at in range(0, number, CHUNK))
        packed = [_packed(np.rint((chunk - low) / step)) for chunk in chunks]
        return cls(scan_of_codes(np.concatenate(packed), _code_values(low, step), len(low)))

    def search(self, queries: Floats, number: int) -> tuple[Floats, Ints]:
        """Return scores and places of the best rows of each query, by their codes."""
        return search_scan(self.codes, _rotated(queries), number)

    def longer(self, rows: Floats) -> TurnedScan:
        """Return a scan with more rows; this one does not change."""
        scan = copy_scan(self.codes)
        scan.add(_rotated(rows))
        return TurnedScan(scan)

    def shorter(self, places: Ints) -> TurnedScan:
        """Return a scan without the rows at `places`; this one does not change."""
        scan = copy_scan(self.codes)
        scan.remove_ids(places)
        return TurnedScan(scan)


def _sample(number: int) -> Ints:
    return np.linspace(0, number - 1, min(number, SAMPLE)).astype(np.int64)


def _rotated(rows: Floats) -> Floats:
    """Return the rotated rows, padded with zeros to a multiple of WIDTH; inner products do not change."""
    dim = rows.shape[1]
    return np.ascontiguousarray(rows @ _axes(dim + -dim % WIDTH)[:dim])


@lru_cache(maxsize=8)
def _axes(width: int) -> Floats:
    """Return a random rotation."""  # shape: (width, width)
    normal = np.random.default_rng(SEED).standard_normal((width, width))
    return np.asarray(np.linalg.qr(normal)[0], dtype=np.float32)


def _places(sample: Floats) -> tuple[Floats, Floats]:
    """Return the lowest code value of each number, and the step between values."""
    step = np.maximum(STEP * sample.std(axis=0), 1e-12)
    return (sample.mean(axis=0) - step * (PLACES - 1) / 2).astype(np.float32), step.astype(np.float32)


def _code_values(low: Floats, step: Floats) -> Floats:
    """Return the two numbers that each value of each code stands for."""  # shape: (dim / 2, 16, 2)
    places = low[:, np.newaxis] + step[:, np.newaxis] * np.arange(PLACES, dtype=np.float32)  # (dim, 4)
    first, second = np.repeat(places[0::2], PLACES, axis=1), np.tile(places[1::2], (1, PLACES))
    return np.ascontiguousarray(np.stack([first, second], axis=2))


def _packed(places: Floats) -> Bytes:
    """Return the codes of the numbers, four numbers in a byte, the first pair in the lower half."""
    numbers = np.clip(places, 0, PLACES - 1).astype(np.uint8)  # shape: (N, dim)
    return pack_codes(numbers[:, 0::2] * PLACES + numbers[:, 1::2])
