"""Four-bit codes of many rows, by faiss: every row is looked at, in an eighth of the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.errors import DataError

BITS = 4  # of a code: what the processor's tables are made for. Codes of two numbers each are no faster
BY_BLOCKS = 15  # how faiss goes through the codes: of its ways, the fastest for a few texts at a time
TAUGHT = (1_000, 40_000)  # rows that the places are learnt from, at least and at most; of fewer, some twice


def need_faiss() -> Any:  # noqa: ANN401  its types are not those of its functions
    """Return the library, or say how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise DataError("an index needs faiss", remedy="pip install 'gandalf-xmc[train]'") from error
    return faiss


def make_scan(rows: npt.NDArray[np.float32]) -> Any:  # noqa: ANN401  faiss has no types
    """Return codes of all rows, to be searched by inner product; the rows have an even width."""
    return longer_scan(teach_scan(rows), rows)


def teach_scan(rows: npt.NDArray[np.float32]) -> Any:  # noqa: ANN401
    """Return a scan that has learnt from the rows what codes stand for, and holds none yet."""
    library = need_faiss()
    scan = library.IndexPQFastScan(rows.shape[1], rows.shape[1], BITS, library.METRIC_INNER_PRODUCT)
    scan.train(rows[np.linspace(0, len(rows) - 1, int(np.clip(len(rows), *TAUGHT))).astype(np.int64)])
    scan.implem = BY_BLOCKS
    return scan


def longer_scan(scan: Any, rows: npt.NDArray[np.float32]) -> Any:  # noqa: ANN401
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


def of_even_width(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the rows with a zero behind if their width is odd: codes are read two at a time."""
    return np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))
