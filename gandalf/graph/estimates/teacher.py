"""Teacher targets: the labels whose texts are nearest in the vectors of a trained siamese encoder.

From LEVER (ICLR 2024): the teacher is an encoder trained on pairs of points and labels. Soft targets of a
label text are its nearest labels, with a temperature of 15 (its value for titles of Amazon). They are mixed
with hard targets in equal shares.

Differences to LEVER: the form exp(temperature (cosine - 1)), which is 1 for equal directions and needs no sum
over all labels; ten neighbours; any label graph as the hard targets (LEVER uses the identity matrix); a
label's own target of 1; and a threshold, as in all other estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.errors import DataError
from gandalf.graph.cooccurrence import check_threshold, largest_entries
from gandalf.graph.estimates.self_only import identity
from gandalf.graph.kind import LabelGraph, PointsInMemory, TargetKind
from gandalf.progress import track

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

ROWS, COLUMNS = 1_024, 16_384  # shape of one block of cosines: 64 MiB


@dataclass(frozen=True)
class TeacherOptions:
    """Settings that turn a teacher's vectors into targets.

    neighbours: nearest other labels of a label. temperature: how fast a target falls with the cosine. soft:
    share of the teacher in the mixture, LEVER's lambda. delta: threshold; targets must be greater.
    """

    neighbours: int = 10
    temperature: float = 15.0
    soft: float = 0.5
    delta: float = 0.1

    def __post_init__(self) -> None:
        check_threshold(self.delta)
        if self.neighbours < 0:
            raise DataError(f"a label cannot have {self.neighbours} neighbours", remedy="give 0 or more")
        if not 0 < self.temperature < np.inf:
            what = f"the teacher's temperature is {self.temperature}"
            raise DataError(f"{what}, but it must be greater than 0 and finite")
        if not 0 <= self.soft <= 1:
            raise DataError(f"the teacher's share is {self.soft}, but a share lies in [0, 1]")


LEVER = TeacherOptions()


def teacher_targets(
    vectors: npt.NDArray[np.floating[Any]], hard: csr_array, options: TeacherOptions = LEVER
) -> csr_array:
    """Mix the teacher's soft targets with hard ones; return the label graph (L x L, float32, rows sorted).

    Only the directions of the label texts' `vectors` (L x dim) count. `hard` is any label graph, such as
    the identity or `ratio`. Off the diagonal a target is soft * exp(temperature (cosine - 1)) for one of the
    label's nearest, else 0, plus (1 - soft) * hard. The diagonal is 1.
    """
    return mix_targets(nearest_vectors(vectors, options.neighbours), hard, options)


def mix_targets(near: tuple[Ints, Floats], hard: csr_array, options: TeacherOptions = LEVER) -> csr_array:
    """Like `teacher_targets`, but with given ids and cosines of the nearest labels, which a GPU may have
    found."""
    ids, cosines = near  # shape of both: (L, k)
    if hard.shape != (len(ids), len(ids)):
        shape = f"{hard.shape[0]:,} x {hard.shape[1]:,}"
        raise DataError(f"the hard targets are {shape}, but the teacher knows {len(ids):,} labels")
    row, place = np.nonzero(ids >= 0)
    cosine = np.minimum(cosines[row, place].astype(np.float64), 1.0)  # rounding may exceed 1
    value = np.exp(options.temperature * (cosine - 1))
    soft = csr_array((value, (row, ids[row, place])), shape=hard.shape)
    return _keep_above(options.soft * soft + (1 - options.soft) * hard.astype(np.float64), options.delta)


def nearest_vectors(vectors: npt.NDArray[np.floating[Any]], k: int) -> tuple[Ints, Floats]:
    """Return ids and cosines of the k nearest other vectors of each vector, nearest first.

    If cosines are equal, the smaller id comes first. The search is exact up to float32 rounding. With fewer
    than k other vectors, the last ids are -1 and their cosines -inf.
    """
    units = np.array(vectors, dtype=np.float32)  # shape: (L, dim)
    if not np.isfinite(units).all():
        raise DataError("the teacher's vectors are not numbers", remedy="train the teacher again")
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), np.float32(1e-12))
    ids = np.full((len(units), k), -1, dtype=np.int64)  # shape: (L, k)
    cosines = np.full((len(units), k), -np.inf, dtype=np.float32)
    width = min(k, len(units) - 1)
    if width > 0:
        for start in track(range(0, len(units), ROWS), "nearest labels"):
            rows = slice(start, start + ROWS)
            ids[rows, :width], cosines[rows, :width] = _nearest_of_rows(units, start, width)
    return ids, cosines


def _nearest_of_rows(units: Floats, start: int, k: int) -> tuple[Ints, Floats]:
    """Return the k nearest other vectors of consecutive vectors from `start` on."""  # shape of both: (R, k)
    count = min(ROWS, len(units) - start)
    row, column = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    score = np.empty(0, dtype=np.float32)  # scores of the best so far, by row and column
    least = np.full(count, -np.inf, dtype=np.float32)  # score of the k-th best of each row
    for first, cosines in _cosine_blocks(units, start, count):
        if first == 0 and k <= cosines.shape[1]:
            least = np.nextafter(np.partition(cosines, -k, axis=1)[:, -k], np.float32(-np.inf))
        # A later vector with the same cosine has a larger id, so it cannot win.
        found_row, found_column = np.nonzero(cosines > least[:, None])
        row = np.concatenate([row, found_row])
        column = np.concatenate([column, found_column + first])
        score = np.concatenate([score, cosines[found_row, found_column]])
        by_row = np.argsort(row, kind="stable")
        row, column, score = row[by_row], column[by_row], score[by_row]
        best = largest_entries(row, column, score.astype(np.float64), k)
        row, column, score = row[best], column[best], score[best]
        full = np.bincount(row, minlength=count) == k
        lowest = np.full(count, np.inf, dtype=np.float32)
        np.minimum.at(lowest, row, score)
        least = np.where(full, lowest, -np.inf).astype(np.float32)
    order = np.lexsort((column, -score, row))
    return column[order].reshape(count, k), score[order].reshape(count, k)


def _cosine_blocks(units: Floats, start: int, count: int) -> Iterator[tuple[int, Floats]]:
    """Yield the first column and the cosines of each block; the cosine of a vector with itself is -inf."""
    rows = units[start : start + count]
    for first in range(0, len(units), COLUMNS):
        cosines = rows @ units[first : first + COLUMNS].T  # shape: (R, C)
        itself = np.arange(start, start + count) - first  # the column of each row's vector
        inside = np.flatnonzero((itself >= 0) & (itself < cosines.shape[1]))
        cosines[inside, itself[inside]] = -np.inf
        yield first, cosines


def _keep_above(mixed: csr_array, delta: float) -> csr_array:
    """Keep entries off the diagonal that are above the threshold; set the diagonal to 1."""
    entries = csr_array(mixed).tocoo()
    row, column = entries.coords
    value = entries.data.astype(np.float32)
    # In float32, half of 1/5 is above 1/10. With both sides rounded to float32 they are equal, as they should
    # be.
    kept = (value > np.float32(delta)) & (row != column)
    diagonal = np.arange(mixed.shape[0])
    places = np.concatenate([row[kept], diagonal]), np.concatenate([column[kept], diagonal])
    values = np.concatenate([value[kept], np.ones(len(diagonal), dtype=np.float32)])
    graph = csr_array((values, places), shape=mixed.shape)
    graph.sort_indices()
    return graph


def _build(source: PointsInMemory, options: GraphOptions) -> LabelGraph:
    vectors, needed = source.label_vectors, source.num_labels
    if vectors is None or len(vectors) != needed:
        found = 0 if vectors is None else len(vectors)
        what = f"targets of a teacher need its vectors of {needed:,} label texts, not of {found:,}"
        raise DataError(what, remedy="give them as `vectors`")
    hard = identity(needed)  # as LEVER's
    return LabelGraph(teacher_targets(vectors, hard, TeacherOptions(delta=options.delta)), "teacher")


KIND = TargetKind(
    "a trained siamese encoder's nearest labels (LEVER)",
    _build,
    needs="vectors",
    options=("teacher",),
)
