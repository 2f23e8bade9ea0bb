"""Search many rows by four-bit codes of faiss; a search reads every row, in an eighth of the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
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
    low, step = _ranges(rows)  # shape: (dim,)
    places = low[:, np.newaxis] + step[:, np.newaxis] * np.arange(PLACES, dtype=np.float32)
    chunks = (np.rint((rows[at : at + CHUNK] - low) / step) for at in range(0, len(rows), CHUNK))
    packed = [pack_codes(np.clip(chunk, 0, PLACES - 1).astype(np.uint8)) for chunk in chunks]
    return scan_of_codes(np.concatenate(packed), places.astype(np.float32), rows.shape[1])


def scan_of_codes(packed: Bytes, values: Floats, width: int) -> Any:  # noqa: ANN401  faiss has no types
    """Return a scan of rows of this width; `values` are the numbers that each value of a code stands for."""
    # shape of packed: (N, codes / 2); shape of values: (codes, 16) or (codes, 16, 2)
    library = need_faiss()
    codes = library.IndexPQ(width, len(values), BITS, library.METRIC_INNER_PRODUCT)
    library.copy_array_to_vector(values.ravel(), codes.pq.centroids)
    codes.is_trained = True
    library.copy_array_to_vector(packed.ravel(), codes.codes)
    codes.ntotal = len(packed)
    scan = library.IndexPQFastScan(codes)
    scan.implem = BY_BLOCKS
    return scan


def pack_codes(codes: Bytes) -> Bytes:
    """Pack two codes into a byte, the first in the lower half."""  # shape: (N, codes) -> (N, codes / 2)
    return np.asarray(codes[:, 0::2] | (codes[:, 1::2] << BITS), dtype=np.uint8)


def make_pair_scan(rows: Floats) -> Any:  # noqa: ANN401  faiss has no types
    """Return an empty scan whose codes stand for two numbers of a row each; the rows are a sample.

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
    # shape of both: (N, number)
    scores, places = scan.search(np.ascontiguousarray(queries), min(number, scan.ntotal))
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


def copy_scan(scan: Any) -> Any:  # noqa: ANN401
    """Return a copy that can be changed; the given scan stays."""
    copy = need_faiss().clone_index(scan)
    copy.implem = BY_BLOCKS  # faiss does not copy the choice of the implementation
    return copy


def pad_to_even_width(rows: Floats) -> Floats:
    """Append a zero to each row if the width is odd: codes are read two at a time."""
    return np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] % 2 else rows
