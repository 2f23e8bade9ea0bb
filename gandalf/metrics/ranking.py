"""Compute ranking metrics as sums over points, so that any subset can be scored from the same contributions.

The conventions are those of pyxclib and napkinXC. Every point counts in the mean; a point without true labels
counts 0. For a point with fewer than k candidates the divisor stays k, and the missing places are misses. A
soft target counts as true. `docs/guide/metrics.md` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.metrics.topk import Ints, drop_excluded, find_pairs, padded_blocks, stored_pairs, top_k

Doubles = npt.NDArray[np.float64]
PointSubset = npt.NDArray[np.bool_] | slice


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best labels of every point, and a mask of the true ones.

    K is the smaller of the wanted k and the most candidates of any point, so that places that no point fills
    take no memory. Metrics still divide by k.
    """

    ids: Ints  # shape: (N, K), -1 where a point has fewer than K candidates
    hits: npt.NDArray[np.bool_]  # shape: (N, K)
    reciprocal_rank: Doubles  # shape: (N,) 1 / rank of the first true label among all candidates, or 0

    def __getitem__(self, rows: PointSubset) -> Ranking:
        return Ranking(self.ids[rows], self.hits[rows], self.reciprocal_rank[rows])


@dataclass(frozen=True, eq=False)
class WeightedHits:
    """A ranking with its hits weighted by propensities, and the best possible values."""

    hits: Doubles  # shape: (N, K)
    gains: Doubles  # shape: (N, K) inverse propensity of a hit, 0 for a miss
    best: Doubles  # shape: (N, T) the inverse propensities of the true labels, largest first; T <= k
    relevant: Ints  # shape: (N,) number of true labels
    reciprocal_rank: Doubles  # shape: (N,)


@dataclass(frozen=True, eq=False)
class Contributions:
    """Gain and ideal of every point for every metric; a metric is (sum of gains) / (sum of ideals).

    For a plain mean the ideal is 1. Propensity-scored metrics are ratios of sums, so to score a subset or a
    resample of the points, sum both.
    """

    names: tuple[str, ...]
    gains: Doubles  # shape: (M, N)
    ideals: Doubles  # shape: (M, N)

    def values(self, rows: PointSubset = slice(None)) -> dict[str, float]:
        """Return every metric over the chosen points, in percent."""
        shares = percent(self.gains[:, rows].sum(axis=1), self.ideals[:, rows].sum(axis=1))
        return dict(zip(self.names, shares.tolist(), strict=True))


GainAndIdeal = tuple[Doubles, Doubles | float]


def precision(judged: WeightedHits, k: int) -> GainAndIdeal:
    """Return P@k: the share of the k places with a true label."""
    return judged.hits[:, :k].sum(axis=1) / k, 1.0


def ndcg(judged: WeightedHits, k: int) -> GainAndIdeal:
    """Return nDCG@k: hits discounted by 1 / log2(1 + place), divided by the value of a perfect ranking."""
    return _per_ideal(_dcg(judged.hits[:, :k]), judged.relevant, k), 1.0


def psp(judged: WeightedHits, k: int) -> GainAndIdeal:
    """Return PSP@k: inverse propensities of the hits, and those of the best possible ranking."""
    return judged.gains[:, :k].sum(axis=1) / k, judged.best[:, :k].sum(axis=1) / k


def psndcg(judged: WeightedHits, k: int) -> GainAndIdeal:
    """Return PSnDCG@k: discounted inverse propensities of the hits, and those of the best possible
    ranking."""
    gain = _per_ideal(_dcg(judged.gains[:, :k]), judged.relevant, k)
    return gain, _per_ideal(_dcg(judged.best[:, :k]), judged.relevant, k)


def recall(judged: WeightedHits, k: int) -> GainAndIdeal:
    """Return R@k: the share of the true labels that are in the k places."""
    return judged.hits[:, :k].sum(axis=1) / np.maximum(judged.relevant, 1), 1.0


METRICS: dict[str, Callable[[WeightedHits, int], GainAndIdeal]] = {
    "P": precision,
    "nDCG": ndcg,
    "PSP": psp,
    "PSnDCG": psndcg,
    "R": recall,
}


def rank(predictions: csr_array, truth: csr_array, k: int, exclude: csr_array | None = None) -> Ranking:
    """Rank the candidates without excluded pairs, and mark the true ones."""
    candidates = drop_excluded(predictions, exclude)
    ids, _ = top_k(candidates, min(k, _longest_row(candidates)))
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    hits = (ids >= 0) & (find_pairs(truth, rows, ids.ravel()) >= 0).reshape(ids.shape)
    return Ranking(ids, hits, _reciprocal_rank(candidates, truth))


def weigh_hits(ranking: Ranking, truth: csr_array, weights: Doubles, k: int) -> WeightedHits:
    """Weight the hits, and the best possible k places, by the inverse propensities `weights` (L)."""
    weighted = csr_array((weights[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    _, best = top_k(weighted, min(k, _longest_row(truth)))
    return WeightedHits(
        hits=ranking.hits.astype(np.float64),
        gains=np.where(ranking.hits, weights[ranking.ids], 0.0),
        best=np.where(np.isfinite(best), best, 0.0),
        relevant=np.diff(truth.indptr).astype(np.int64),
        reciprocal_rank=ranking.reciprocal_rank,
    )


def contributions(judged: WeightedHits, ks: Sequence[int]) -> Contributions:
    """Return the gain and ideal of each point for every metric at every k, and for MRR."""
    columns = {f"{name}@{k}": metric(judged, k) for name, metric in METRICS.items() for k in ks}
    columns["MRR"] = (judged.reciprocal_rank, 1.0)
    points = len(judged.relevant)
    return Contributions(
        tuple(columns),
        np.stack([gain for gain, _ in columns.values()]),
        np.stack([np.broadcast_to(ideal, points) for _, ideal in columns.values()]),
    )


def coverage(ranking: Ranking, truth: csr_array, k: int) -> float:
    """Return C@k in percent: distinct labels hit in the k places of any point, over distinct true labels."""
    hit = _distinct(ranking.ids[:, :k][ranking.hits[:, :k]])
    return float(percent(hit, _distinct(truth.indices)))


def macro_precision(ranking: Ranking, num_labels: int, k: int) -> float:
    """Return macroP@k in percent: the mean over all labels of hits / predictions (0 without predictions)."""
    ids, hits = ranking.ids[:, :k], ranking.hits[:, :k]
    predicted = np.bincount(ids[ids >= 0], minlength=num_labels)
    correct = np.bincount(ids[hits], minlength=num_labels)
    return float(percent((correct / np.maximum(predicted, 1)).sum(), num_labels))


def percent(gain: npt.ArrayLike, ideal: npt.ArrayLike) -> Doubles:
    """Return 100 gain / ideal, or 0 if the ideal is 0."""
    gain, ideal = np.asarray(gain, dtype=np.float64), np.asarray(ideal, dtype=np.float64)
    return np.asarray(100.0 * np.divide(gain, ideal, out=np.zeros_like(gain), where=ideal > 0))


def _distinct(labels: npt.NDArray[np.integer]) -> int:
    return int(np.count_nonzero(np.bincount(labels)))


def _longest_row(matrix: csr_array) -> int:
    return int(np.max(np.diff(matrix.indptr), initial=0))


def _discounts(places: int) -> Doubles:
    return np.asarray(1.0 / np.log2(np.arange(places) + 2.0))  # shape: (places,)


def _dcg(gains: Doubles) -> Doubles:
    return np.asarray(gains @ _discounts(gains.shape[1]))  # shape: (N,)


def _per_ideal(dcg: Doubles, relevant: Ints, k: int) -> Doubles:
    """Divide by the DCG of a perfect ranking; a point without true labels has DCG 0 anyway."""
    hits = np.minimum(relevant, k)  # hits of a perfect ranking
    perfect = np.concatenate([[1.0], np.cumsum(_discounts(int(hits.max(initial=0))))])
    return np.asarray(dcg / perfect[hits])


def _reciprocal_rank(candidates: csr_array, truth: csr_array) -> Doubles:
    """Return 1 / rank of each point's first true label, or 0 if no candidate is true."""  # shape: (N,)
    scores, first = candidates.data, _first_true(candidates, truth)
    result = np.zeros(len(first))
    for block in padded_blocks(candidates.indptr, scores):
        place = first[block.rows]
        score = np.where(place >= 0, scores[place], -np.inf).astype(scores.dtype)
        above = (block.scores > score[:, None]).sum(axis=1)
        level = block.scores == score[:, None]
        level &= np.arange(level.shape[1]) < (place - block.start)[:, None]
        result[block.rows] = np.where(np.isneginf(score), 0.0, 1.0 / (1 + above + level.sum(axis=1)))
    return result


def _first_true(candidates: csr_array, truth: csr_array) -> Ints:
    """Return the position of each point's best-ranked true candidate, or -1."""
    rows, labels = stored_pairs(truth)
    positions = find_pairs(candidates, rows, labels)
    rows, positions = rows[positions >= 0], positions[positions >= 0]
    order = np.lexsort((positions, -candidates.data[positions], rows))  # score falls, then label rises
    rows, start = np.unique(rows[order], return_index=True)
    first = np.full(candidates.shape[0], -1, dtype=np.int64)
    first[rows] = positions[order][start]
    return first
