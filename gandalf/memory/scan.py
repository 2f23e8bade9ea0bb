"""Search many rows by four-bit codes of faiss; a search reads every row, in an eighth of the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
BITS, PLACES = 4, 16  # bits of a code, which suit the processor's look-up tables; values of a code
BY_BLOCKS = 15  # implementation of faiss that is fastest for a few queries at a time
SAMPLE = 10_000  # rows that determine the range of each number
OUTSIDE = 0.0005  # share of numbers at either end outside the range, so that outliers do not widen it
CHUNK = 1 << 16  # rows that are rounded at once


def need_faiss() -> Any:  # noqa: ANN401  its types are not those of its functions
    """Return the library faiss; raise a DataError with the install command if it is missing."""
    try:
        import faiss
    except ImportError as error:
        raise DataError("an index needs faiss", remedy="pip install 'gandalf-xmc[train]'") from error
    return faiss


def make_scan(rows: Floats) -> Any:  # noqa: ANN401  faiss has no types
    """Return codes of all rows, to be searched by inner product; the rows have an even width.

    Each number is rounded to the nearest of 16 evenly spaced places of its range. faiss would learn the
    places by k-means, which takes twenty times as long and finds fewer of the nearest rows.
    """
    library, width = need_faiss(), rows.shape[1]
    low, step = _ranges(rows)  # shape: (dim,)
    codes = library.IndexPQ(width, width, BITS, library.METRIC_INNER_PRODUCT)
    places = low[:, np.newaxis] + step[:, np.newaxis] * np.arange(PLACES, dtype=np.float32)
    library.copy_array_to_vector(places.ravel(), codes.pq.centroids)
    codes.is_trained = True
    chunks = (rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK))
    packed = [_packed(np.rint((chunk - low) / step)) for chunk in chunks]
    library.copy_array_to_vector(np.concatenate(packed).ravel(), codes.codes)
    codes.ntotal = len(rows)
    scan = library.IndexPQFastScan(codes)
    scan.implem = BY_BLOCKS
    return scan


def make_short_scan(rows: Floats) -> Any:  # noqa: ANN401  faiss has no types
    """Return an empty scan that will stand for two numbers of a row by one code; the rows are a sample.

    The 16 pairs of numbers that a code can stand for are learnt by k-means.
    """
    library, width = need_faiss(), rows.shape[1]
    scan = library.IndexPQFastScan(width, width // 2, BITS, library.METRIC_INNER_PRODUCT)
    scan.train(np.ascontiguousarray(rows))
    scan.implem = BY_BLOCKS
    return scan


def search_scan(scan: Any, queries: Floats, number: int) -> tuple[Floats, Ints]:  # noqa: ANN401
    """Return scores and places of the best rows of each query, by their codes.

    faiss leaves out rows whose codes have the lowest score there is: all rows, if the codes tell nothing
    apart. The first rows that are missing then take the empty places, with a score of -inf.
    """
    scores, places = scan.search(
        np.ascontiguousarray(queries), min(number, scan.ntotal)
    )  # shape: (N, number)
    for row in np.flatnonzero((places < 0).any(axis=1)):
        empty = places[row] < 0
        others = np.setdiff1d(np.arange(scan.ntotal), places[row][~empty])
        places[row, empty], scores[row, empty] = others[: empty.sum()], -np.inf
    return scores, places


def _ranges(rows: Floats) -> tuple[Floats, Floats]:
    """Return the lowest place of each number and the distance between two places."""
    sample = rows[np.linspace(0, len(rows) - 1, min(len(rows), SAMPLE)).astype(np.int64)]
    low, high = np.quantile(sample, [OUTSIDE, 1 - OUTSIDE], axis=0)
    return low.astype(np.float32), np.maximum((high - low) / (PLACES - 1), 1e-12).astype(np.float32)


def _packed(places: Floats) -> npt.NDArray[np.uint8]:
    """Return codes of places, two to a byte, the first in the lower half."""  # shape: (N, dim / 2)
    codes = np.clip(places, 0, PLACES - 1).astype(np.uint8)
    return np.asarray(codes[:, 0::2] | (codes[:, 1::2] << BITS), dtype=np.uint8)


def longer_scan(scan: Any, rows: Floats) -> Any:  # noqa: ANN401
    """Return a scan that also holds codes of these rows; the given one stays."""
    longer = need_faiss().clone_index(scan)
    longer.implem = BY_BLOCKS  # a copy forgets it
    longer.add(rows)
    return longer


def shorter_scan(scan: Any, places: npt.NDArray[np.int64]) -> Any:  # noqa: ANN401
    """Return a scan without the codes at these places; the given one stays."""
    shorter = need_faiss().clone_index(scan)
    shorter.implem = BY_BLOCKS
    shorter.remove_ids(places)
    return shorter


def of_even_width(rows: Floats) -> Floats:
    """Return the rows with a zero behind if their width is odd: codes are read two at a time."""
    return np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] % 2 else rows
