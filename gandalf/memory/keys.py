"""Store the keys of a memory, which are vectors of length 1, and find the keys nearest to a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from gandalf.errors import DataError
from gandalf.memory.turned_scan import TurnedScan

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Vectors = npt.NDArray[np.float32] | csr_array  # N x dim, rows of length 1; dense of a network, else sparse
Arrays = dict[str, npt.NDArray[Any]]

NO_KEY = -1  # place of a missing key if there are fewer keys than wanted; its cosine is -inf
SCANNED = 10_000  # from this number of keys, codes find candidates; below, a product with all keys is as fast
DEPTH = 8  # candidates by codes for each wanted key
DIGITS = 5  # digits of a cosine; later digits differ between products of other sizes
FEW = 1_000  # up to this number of values, sorting is as fast as finding the largest
BLOCK = 1 << 24  # numbers that are compared or gathered at once


@dataclass(frozen=True, eq=False)
class DenseKeys:
    """Vectors as 8-bit codes with a scale each: a quarter of the bytes, and cosines exact to 0.01."""

    codes: npt.NDArray[np.int8]  # K x dim
    scales: Floats  # shape: (K,)

    @classmethod
    def of(cls, vectors: Floats) -> DenseKeys:
        """Return the codes of vectors."""
        scales = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-12) / 127
        codes = np.rint(vectors / scales[:, np.newaxis]).astype(np.int8)
        return cls(codes, scales.astype(np.float32))

    def __len__(self) -> int:
        return len(self.codes)

    def nearest(self, queries: Vectors, number: int) -> tuple[Ints, Floats]:
        """Return the places and cosines of the keys nearest to each query."""
        assert isinstance(queries, np.ndarray)
        number = min(number, len(self))
        use_codes = self._scanned and number * DEPTH < len(self) // 2
        numbers = number * DEPTH * self.codes.shape[1] if use_codes else len(self)  # held for each query
        search = self._search_by_codes if use_codes else self._search_all
        step = max(1, BLOCK // max(1, numbers))
        parts = [search(queries[at : at + step], number) for at in range(0, len(queries), step)]
        none = (np.empty((0, number), dtype=np.int64), np.empty((0, number), dtype=np.float32))
        places, cosines = zip(none, *parts, strict=True)
        return np.concatenate(places), np.concatenate(cosines)

    def _search_all(self, queries: Floats, number: int) -> tuple[Ints, Floats]:
        return _largest(queries @ self._rows.T, number)

    def _search_by_codes(self, queries: Floats, number: int) -> tuple[Ints, Floats]:
        """Score the candidates that two-bit codes find with the 8-bit codes."""
        _, found = self._scan.search(queries, number * DEPTH)
        found = np.sort(found, axis=1)
        rows = self.codes[found].astype(np.float32)  # shape: (N, C, dim)
        cosines = (rows @ queries[:, :, np.newaxis])[:, :, 0] * self.scales[found]
        places, values = _largest(cosines, number)
        return np.take_along_axis(found, places, axis=1), values

    def joined(self, other: DenseKeys) -> DenseKeys:
        """Return these keys, followed by others."""
        codes = np.concatenate([self.codes, other.codes])
        found = DenseKeys(codes, np.concatenate([self.scales, other.scales]))
        if "_scan" in self.__dict__:
            found.__dict__["_scan"] = self._scan.longer(other._rows)
        return found

    def without(self, places: Ints) -> DenseKeys:
        """Return the keys without those at `places`."""
        found = DenseKeys(np.delete(self.codes, places, axis=0), np.delete(self.scales, places))
        if "_scan" in self.__dict__:
            found.__dict__["_scan"] = self._scan.shorter(places)
        return found

    def prepare(self) -> None:
        """Prepare the search, so that no query waits for it."""
        _ = self._scan if self._scanned else self._rows

    def arrays(self) -> Arrays:
        """Return the arrays to store in a file."""
        return {"codes": self.codes, "scales": self.scales}

    @property
    def _scanned(self) -> bool:
        return len(self) >= SCANNED and find_spec("faiss") is not None

    def _vectors(self, where: slice | Ints) -> Floats:
        """Return the vectors that the codes represent."""
        return self.codes[where].astype(np.float32) * self.scales[where][:, np.newaxis]

    @cached_property
    def _rows(self) -> Floats:
        return self._vectors(slice(None))

    @cached_property
    def _scan(self) -> TurnedScan:
        return TurnedScan.of(len(self), self._vectors)


@dataclass(frozen=True, eq=False)
class SparseKeys:
    """Keys as TF-IDF rows."""

    rows: csr_array  # K x dim, float32

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def nearest(self, queries: Vectors, number: int) -> tuple[Ints, Floats]:
        """Return places and cosines of the nearest keys; a key without a common term is not near."""
        assert not isinstance(queries, np.ndarray)
        number = min(number, len(self))
        cosines = csr_array(queries @ self._by_term)  # N x K, only keys with a common term
        cosines.data = np.round(cosines.data, DIGITS)
        places = np.full((queries.shape[0], number), NO_KEY, dtype=np.int64)
        values = np.full((queries.shape[0], number), -np.inf, dtype=np.float32)
        for row in range(len(places)):
            stored = slice(cosines.indptr[row], cosines.indptr[row + 1])
            columns, near = cosines.indices[stored], cosines.data[stored]
            best = np.lexsort((columns, -near))[:number]
            places[row, : len(best)], values[row, : len(best)] = columns[best], near[best]
        return places, values

    def joined(self, other: SparseKeys) -> SparseKeys:
        """Return these keys, followed by others."""
        return SparseKeys(csr_array(vstack([self.rows, other.rows], format="csr")))

    def without(self, places: Ints) -> SparseKeys:
        """Return the keys without those at `places`."""
        return SparseKeys(csr_array(self.rows[np.delete(np.arange(len(self)), places)]))

    def prepare(self) -> None:
        """Prepare the search, so that no query waits for it."""
        _ = self._by_term

    def arrays(self) -> Arrays:
        """Return the arrays to store in a file."""
        rows = self.rows
        shape = np.array(rows.shape, dtype=np.int64)
        return {"terms": rows.indices, "term_values": rows.data, "term_ends": rows.indptr, "shape": shape}

    @cached_property
    def _by_term(self) -> csr_array:
        """Return the keys by term."""  # shape: (dim, K)
        return csr_array(self.rows.T.tocsr())


def keys_of(vectors: Vectors) -> DenseKeys | SparseKeys:
    """Return the keys of dense or sparse vectors."""
    if isinstance(vectors, np.ndarray):
        return DenseKeys.of(vectors)
    return SparseKeys(csr_array(vectors))


def join_keys(one: DenseKeys | SparseKeys, other: DenseKeys | SparseKeys) -> DenseKeys | SparseKeys:
    """Return the keys of both, which must be of the same kind."""
    if type(one) is not type(other):
        raise DataError("dense and sparse keys cannot be in one memory")
    return one.joined(other)  # type: ignore[arg-type]  # both are of one type


def read_keys(arrays: Mapping[str, npt.NDArray[Any]]) -> DenseKeys | SparseKeys:
    """Return the keys of a file's arrays; raise ValueError if the arrays do not fit together."""
    if "codes" in arrays:
        codes, scales = arrays["codes"], arrays["scales"]
        if codes.dtype != np.int8 or codes.ndim != 2 or scales.shape != (len(codes),):
            raise ValueError("its keys have the wrong shape")
        if not (np.isfinite(scales) & (scales >= 0) & (scales <= 1)).all():
            raise ValueError("a key is not a vector of length 1")
        return DenseKeys(codes, scales.astype(np.float32))
    number, dim = (int(each) for each in arrays["shape"])
    rows = csr_array((arrays["term_values"], arrays["terms"], arrays["term_ends"]), shape=(number, dim))
    rows.check_format(full_check=True)
    if not np.isfinite(rows.data).all():
        raise ValueError("a key has values that are not numbers")
    return SparseKeys(rows)


def check_queries(keys: DenseKeys | SparseKeys, queries: Vectors) -> None:
    """Raise a ValueError unless the keys have the kind and width of a model's vectors."""
    dense, width = isinstance(queries, np.ndarray), queries.shape[1]
    found = keys.codes.shape[1] if isinstance(keys, DenseKeys) else keys.rows.shape[1]
    if dense != isinstance(keys, DenseKeys) or width != found:
        kinds = {True: "dense", False: "sparse"}
        of_keys = f"{kinds[isinstance(keys, DenseKeys)]} of {found:,} numbers"
        raise ValueError(f"its keys are {of_keys}, but the model's vectors are {kinds[dense]} of {width:,}")


def _largest(values: Floats, number: int) -> tuple[Ints, Floats]:
    """Return places and values of the largest of each row, largest first, ties to the first place."""
    values = np.round(values, DIGITS)  # shape: (N, C)
    if values.shape[1] <= FEW:
        order = np.argsort(-values, axis=1, kind="stable")[:, :number]
        return order, np.take_along_axis(values, order, axis=1)
    if number < values.shape[1]:
        places = np.argpartition(-values, number - 1, axis=1)[:, :number]
        least = np.take_along_axis(values, places[:, -1:], axis=1)
        crowded = (values >= least).sum(axis=1) > number  # argpartition takes any of equal values
        places[crowded] = np.argsort(-values[crowded], axis=1, kind="stable")[:, :number]
    else:
        places = np.tile(np.arange(values.shape[1]), (len(values), 1))
    places = np.sort(places, axis=1)
    found = np.take_along_axis(values, places, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(found, order, axis=1)
