"""Walk targets: ECLARE's random walk over labels, its exact expectation, and the label graph of either.

A visit goes from a label to a random point of this label, and from there to a random label of this point. It
starts from the root label with probability `reset`, else from the label of the last visit; the first visit
starts from the root. Soft targets count as 1. Labels with more than `verbose` points take no part in the
walk: their row holds only the diagonal.
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
from gandalf.graph.kind import InMemory, LabelGraph, TargetKind
from gandalf.progress import track

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WALKERS = 16_384  # roots walked from at once; another value gives another walk for the same seed
DENSE = 2**25  # most entries of the expectation in memory at once


@dataclass(frozen=True)
class Walk:
    """Settings of a walk: visits per label, probability of a restart, most points of a label in the walk."""

    visits: int = 400
    reset: float = 0.8
    verbose: int = 500

    def __post_init__(self) -> None:
        if self.visits < 1 or not 0 <= self.reset <= 1:
            raise DataError(
                f"a walk cannot have {self.visits} visits with reset {self.reset}",
                remedy="give at least one visit, and a reset in [0, 1]",
            )


ECLARE = Walk()
ECLARE_TOP = 10  # entries that ECLARE keeps of a row


def walk_counts(
    targets: csr_array,
    *,
    visits: int = 400,
    reset: float = 0.8,
    top_k: int = 10,
    verbose: int = 500,
    seed: int = 0,
) -> csr_array:
    """Count the visits to each label (columns) from each root (rows); keep the `top_k` largest and the root.

    The count of the root itself is at least 1.
    """
    by_point = _support(targets, verbose)
    by_label = csr_array(by_point.T)
    walk = Walk(visits, reset, verbose)
    starts = range(0, by_label.shape[0], WALKERS)
    seeds = np.random.SeedSequence(seed).spawn(len(starts))
    parts = []
    for start, own_seed in zip(track(starts, "random walk"), seeds, strict=True):
        roots = np.arange(start, min(start + WALKERS, by_label.shape[0]))
        visited = _walked(by_point, by_label, roots, walk, np.random.default_rng(own_seed))
        parts.append(_largest(visited, roots, top_k))
    return csr_array(vstack(parts, format="csr"))


def expected_walk(
    targets: csr_array,
    *,
    reset: float = 0.8,
    verbose: int = 500,
    visits: int | None = 400,
    steps: int = 20,
    floor: float = 0.0,
) -> csr_array:
    """Return the expected share of each root's visits to each label; `visits=None` is an endless walk.

    The expectation includes at most `steps` steps from the root. The visits further away, less than
    (1 - reset)^steps of all, are left out. On large sets a walk reaches nearly every label; `floor` drops
    labels that a walker is on with a lower probability.
    """
    walk = Walk(visits or 1, reset, verbose)
    by_point = _support(targets, verbose)
    out, back = _normalised(csr_array(by_point.T)), _normalised(by_point)
    weights = _step_weights(walk.reset, visits, steps)
    labels = by_point.shape[1]
    parts = []
    for roots in np.array_split(np.arange(labels), -(-labels * labels // DENSE)):
        place = csr_array(out[roots] @ back)  # after one step
        total = weights[0] * place
        for weight in weights[1:]:
            place.data[place.data < floor] = 0
            place.eliminate_zeros()
            place = csr_array(csr_array(place @ out) @ back)
            total = total + weight * place
        parts.append(_with_own(csr_array(total), roots))
    return csr_array(vstack(parts, format="csr"))


def walk_graph(
    targets: csr_array,
    *,
    seed: int = 0,
    delta: float = 0.1,
    exact: bool = False,
    top_k: int = 10,
    walk: Walk = ECLARE,
) -> csr_array:
    """Return the label graph of the walk: rows divided by their diagonal, clipped at 1, above `delta`.

    `exact` uses the expectation instead of a random walk, and then keeps every label above `delta`.
    """
    check_threshold(delta, top_k)
    if exact:
        visits = expected_walk(
            targets, reset=walk.reset, verbose=walk.verbose, visits=walk.visits, steps=8, floor=1e-5
        )
    else:
        visits = walk_counts(
            targets, visits=walk.visits, reset=walk.reset, top_k=top_k, verbose=walk.verbose, seed=seed
        )
    own = visits.diagonal()
    row = np.repeat(np.arange(len(own)), np.diff(visits.indptr))
    # ECLARE keeps the root in addition to the `top_k` largest; a row of the graph counts it among them.
    rank = np.where(visits.indices == row, np.inf, visits.data)
    kept = np.full(visits.nnz, exact)
    kept[largest_entries(row, visits.indices, rank, top_k)] = True
    share = np.minimum(visits.data / own[row], 1)
    share[visits.indices == row] = 1
    share[~kept | (share <= delta)] = 0
    graph = csr_array((share.astype(np.float32), visits.indices, visits.indptr), shape=visits.shape)
    graph.eliminate_zeros()
    return graph


def smoothing_graph(targets: csr_array, *, seed: int = 0, top_k: int = 10, walk: Walk = ECLARE) -> csr_array:
    """Return the graph over which ECLARE averages label texts: D^-1/2 G D'^-1/2 of the walk's counts G.

    D and D' are the row sums and column sums of G. Labels with too many points have only their diagonal.
    """
    visits = walk_counts(
        targets, visits=walk.visits, reset=walk.reset, top_k=top_k, verbose=walk.verbose, seed=seed
    )
    rows, columns = (diags_array(1 / np.sqrt(np.maximum(visits.sum(axis=n), 1e-12))) for n in (1, 0))
    return csr_array(rows @ visits @ columns)


def _support(targets: csr_array, verbose: int) -> csr_array:
    """Return the targets as 0 or 1, without the labels that have too many points."""
    support = csr_array(targets, copy=True).astype(np.float64)
    support.sum_duplicates()
    support.eliminate_zeros()
    frequency = np.bincount(support.indices, minlength=support.shape[1])
    support.data = (frequency <= verbose)[support.indices].astype(np.float64)
    support.eliminate_zeros()
    return support


def _walked(
    by_point: csr_array, by_label: csr_array, roots: Ints, walk: Walk, rng: np.random.Generator
) -> csr_array:
    """Count the visits of walkers from the roots; a root without points has no visits."""
    able = np.diff(by_label.indptr)[roots] > 0
    origin = roots[able]
    visited = np.empty((len(origin), walk.visits), dtype=np.int32)
    current = origin
    for visit in range(walk.visits):
        if visit > 0:
            current = np.where(rng.random(len(origin)) < walk.reset, origin, current)
        current = random_entries(by_point, random_entries(by_label, current, rng), rng)
        visited[:, visit] = current
    starts = np.concatenate([[0], np.cumsum(able * walk.visits)]).astype(np.int32)
    shape = (len(roots), by_point.shape[1])
    counted = csr_array((np.ones(visited.size), visited.ravel(), starts), shape=shape)
    counted.sum_duplicates()
    return counted


def _largest(visited: csr_array, roots: Ints, top_k: int) -> csr_array:
    """Keep the most visited labels of each row, the smaller label of equals, and the root itself."""
    row = np.repeat(np.arange(len(roots)), np.diff(visited.indptr))
    keep = visited.indices == roots[row]
    keep[largest_entries(row, visited.indices, visited.data, top_k)] = True
    visited.data[~keep] = 0
    visited.eliminate_zeros()
    return _with_own(visited, roots)


def _with_own(rows: csr_array, roots: Ints) -> csr_array:
    """Add an entry of 1 for each root that has none."""
    row = np.repeat(np.arange(len(roots)), np.diff(rows.indptr))
    own = rows.indices == roots[row]
    lacking = np.setdiff1d(np.arange(len(roots)), row[own & (rows.data > 0)])
    ones = csr_array((np.ones(len(lacking)), (lacking, roots[lacking])), shape=rows.shape)
    filled = csr_array(rows + ones)
    filled.sort_indices()
    return filled


def _normalised(matrix: csr_array) -> csr_array:
    """Divide each row by its sum; rows without entries stay empty."""
    total = matrix.sum(axis=1)
    return csr_array(diags_array(1 / np.where(total > 0, total, 1)) @ matrix)


def _step_weights(reset: float, visits: int | None, steps: int) -> Floats:
    """Return the share of the visits that end 1, 2, ... steps from the root.

    With p the reset and q = 1 - p, visit v ends t + 1 steps away with probability p q^t for t < v - 1 (it
    started anew t visits ago) and q^(v - 1) for t = v - 1 (it never did; the first visit starts from the
    root). The mean over V visits is q^t (1 + p (V - 1 - t)) / V, which tends to p q^t.
    """
    t = np.arange(steps if visits is None else min(steps, visits))
    gone: Floats = (1 - reset) ** t.astype(np.float64)
    return reset * gone if visits is None else gone * (1 + reset * (visits - 1 - t)) / visits


def _build(source: InMemory, options: GraphOptions) -> LabelGraph:
    top_k = ECLARE_TOP if options.top_k is None else options.top_k
    matrix = walk_graph(source.points.targets, seed=options.seed, delta=options.delta, top_k=top_k)
    return LabelGraph(matrix, "walk")


KIND = TargetKind("ECLARE's random walk", _build, needs="points")
