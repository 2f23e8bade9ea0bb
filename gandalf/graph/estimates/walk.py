"""Walk targets: ECLARE's random walk over labels, and its label graph.

A visit goes from a label to a random point of this label, and from there to a random label of this point. It
starts from the root label with probability `reset`, else from the label of the last visit; the first visit
starts from the root. Soft targets count as 1. Labels with more than `most_points` points (ECLARE's
verbose labels) take no part in the walk: their row holds only the diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array, vstack

from gandalf.data.sparse_rows import random_entries
from gandalf.errors import DataError
from gandalf.graph.cooccurrence import check_threshold, largest_entries
from gandalf.graph.kind import LabelGraph, PointsInMemory, TargetKind
from gandalf.progress import track

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WALKERS = 16_384  # roots walked from at once; another value gives another walk for the same seed


@dataclass(frozen=True)
class Walk:
    """Settings of a walk: visits per label, probability of a restart, most points of a label in the walk."""

    visits: int = 400
    reset: float = 0.8
    most_points: int = 500

    def __post_init__(self) -> None:
        if self.visits < 1 or not 0 <= self.reset <= 1:
            what = f"a walk cannot have {self.visits} visits with reset {self.reset}"
            raise DataError(what, remedy="give at least one visit, and a reset in [0, 1]")


ECLARE = Walk()
ECLARE_TOP = 10  # entries that ECLARE keeps of a row


def walk_counts(
    targets: csr_array, walk: Walk = ECLARE, *, top_k: int = ECLARE_TOP, seed: int = 0
) -> csr_array:
    """Count the visits to each label (columns) from each root (rows); keep the `top_k` largest and the root.

    The count of the root itself is at least 1.
    """
    by_point = _walkable_targets(targets, walk.most_points)
    by_label = csr_array(by_point.T)
    starts = range(0, by_label.shape[0], WALKERS)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    parts = []
    for start, block_seed in zip(track(starts, "random walk"), seeds, strict=True):
        roots = np.arange(start, min(start + WALKERS, by_label.shape[0]))
        visited = _count_visits(by_point, by_label, roots, walk, np.random.default_rng(block_seed))
        parts.append(_keep_most_visited(visited, roots, top_k))
    return csr_array(vstack(parts, format="csr"))


def walk_graph(
    targets: csr_array,
    walk: Walk = ECLARE,
    *,
    seed: int = 0,
    delta: float = 0.1,
    top_k: int = ECLARE_TOP,
) -> csr_array:
    """Return the label graph of the walk: rows divided by their diagonal, clipped at 1, above `delta`."""
    check_threshold(delta, top_k)
    visits = walk_counts(targets, walk, top_k=top_k, seed=seed)
    diagonal = visits.diagonal()
    row = np.repeat(np.arange(len(diagonal)), np.diff(visits.indptr))
    # ECLARE keeps the root in addition to the `top_k` largest; a row of the graph counts it among them.
    rank = np.where(visits.indices == row, np.inf, visits.data)
    kept = np.zeros(visits.nnz, dtype=bool)
    kept[largest_entries(row, visits.indices, rank, top_k)] = True
    share = np.minimum(visits.data / diagonal[row], 1)
    share[visits.indices == row] = 1
    share[~kept | (share <= delta)] = 0
    graph = csr_array((share.astype(np.float32), visits.indices, visits.indptr), shape=visits.shape)
    graph.eliminate_zeros()
    return graph


def smoothing_graph(targets: csr_array, *, seed: int = 0) -> csr_array:
    """Return the graph over which ECLARE averages label texts: D^-1/2 G D'^-1/2 of the walk's counts G.

    D and D' are the row sums and column sums of G. Labels with too many points have only their diagonal.
    """
    visits = walk_counts(targets, seed=seed)
    rows, columns = (diags_array(1 / np.sqrt(np.maximum(visits.sum(axis=n), 1e-12))) for n in (1, 0))
    return csr_array(rows @ visits @ columns)


def _walkable_targets(targets: csr_array, most_points: int) -> csr_array:
    """Return the targets as 0 or 1, without the labels that have too many points."""
    support = csr_array(targets, copy=True).astype(np.float64)
    support.sum_duplicates()
    support.eliminate_zeros()
    frequency = np.bincount(support.indices, minlength=support.shape[1])
    support.data = (frequency <= most_points)[support.indices].astype(np.float64)
    support.eliminate_zeros()
    return support


def _count_visits(
    by_point: csr_array, by_label: csr_array, roots: Ints, walk: Walk, rng: np.random.Generator
) -> csr_array:
    """Count the visits of walkers from the roots; a root without points has no visits."""
    has_points = np.diff(by_label.indptr)[roots] > 0
    origin = roots[has_points]
    visited = np.empty((len(origin), walk.visits), dtype=np.int32)
    current = origin
    for visit in range(walk.visits):
        if visit > 0:
            current = np.where(rng.random(len(origin)) < walk.reset, origin, current)
        current = random_entries(by_point, random_entries(by_label, current, rng), rng)
        visited[:, visit] = current
    starts = np.concatenate([[0], np.cumsum(has_points * walk.visits)]).astype(np.int32)
    shape = (len(roots), by_point.shape[1])
    counted = csr_array((np.ones(visited.size), visited.ravel(), starts), shape=shape)
    counted.sum_duplicates()
    return counted


def _keep_most_visited(visited: csr_array, roots: Ints, top_k: int) -> csr_array:
    """Keep the most visited labels of each row, the smaller label of equals, and the root itself."""
    row = np.repeat(np.arange(len(roots)), np.diff(visited.indptr))
    keep = visited.indices == roots[row]
    keep[largest_entries(row, visited.indices, visited.data, top_k)] = True
    visited.data[~keep] = 0
    visited.eliminate_zeros()
    return _with_roots(visited, roots)


def _with_roots(rows: csr_array, roots: Ints) -> csr_array:
    """Add an entry of 1 for each root that has none."""
    row = np.repeat(np.arange(len(roots)), np.diff(rows.indptr))
    of_root = (rows.indices == roots[row]) & (rows.data > 0)
    missing = np.setdiff1d(np.arange(len(roots)), row[of_root])
    ones = csr_array((np.ones(len(missing)), (missing, roots[missing])), shape=rows.shape)
    filled = csr_array(rows + ones)
    filled.sort_indices()
    return filled


def _build(source: PointsInMemory, options: GraphOptions) -> LabelGraph:
    top_k = ECLARE_TOP if options.top_k is None else options.top_k
    matrix = walk_graph(source.points.targets, seed=options.seed, delta=options.delta, top_k=top_k)
    return LabelGraph(matrix, "walk")


KIND = TargetKind("ECLARE's random walk", _build, needs="points")
