"""Ranking metrics as sums over points: what each point adds, computed once and summed over any subset.

Conventions, those of pyxclib and napkinXC: every point counts in the mean, a point without true labels with
0; a point with fewer than k candidates keeps the divisor k, its missing places are misses. A target counts
as true whatever its value. `docs/guide/metrics.md` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.metrics.topk import Ints, find_pairs, padded_blocks, pairs, top_k, without

Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_] | slice


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best labels of every point, and which of them are true.

    K is the k that was asked for, or the number of candidates of the point that has most of them, if that
    is less: a place that no point fills needs no memory. It is a miss all the same, so metrics divide by k.
    """

    ids: Ints  # shape: (N, K), -1 where a point has fewer than K candidates
    hits: npt.NDArray[np.bool_]  # shape: (N, K)
    reciprocal_rank: Doubles  # shape: (N,) 1 / rank of the first true label among all candidates, else 0

    def __getitem__(self, rows: Rows) -> Ranking:
        return Ranking(self.ids[rows], self.hits[rows], self.reciprocal_rank[rows])


@dataclass(frozen=True, eq=False)
class Judged:
    """A ranking with what the truth and the propensities say about it."""

    hits: Doubles  # shape: (N, K)
    gains: Doubles  # shape: (N, K) inverse propensity of a hit, 0 for a miss
    best: Doubles  # shape: (N, T) the inverse propensities of the true labels, largest first; T <= k
    relevant: Ints  # shape: (N,) number of true labels
    reciprocal_rank: Doubles  # shape: (N,)


@dataclass(frozen=True, eq=False)
class Contributions:
    """Gain and ideal of every point under every metric; the metric is sum of gains / sum of ideals.

    For a plain mean the ideal is 1. The propensity-scored metrics are ratios of sums, so a subset or a
    resample of the points is scored by summing both.
    """

    names: tuple[str, ...]
    gains: Doubles  # shape: (M, N)
    ideals: Doubles  # shape: (M, N)

    def values(self, rows: Rows = slice(None)) -> dict[str, float]:
        """Every metric over the chosen points, in percent."""
        shares = percent(self.gains[:, rows].sum(axis=1), self.ideals[:, rows].sum(axis=1))
        return dict(zip(self.names, shares.tolist(), strict=True))


GainAndIdeal = tuple[Doubles, Doubles | float]


def precision(judged: Judged, k: int) -> GainAndIdeal:
    """P@k: the share of the k places that hold a true label."""
    return judged.hits[:, :k].sum(axis=1) / k, 1.0


def ndcg(judged: Judged, k: int) -> GainAndIdeal:
    """nDCG@k: hits discounted by 1 / log2(1 + place), over the same for a perfect ranking."""
    return _per_ideal(_dcg(judged.hits[:, :k]), judged.relevant, k), 1.0


def psp(judged: Judged, k: int) -> GainAndIdeal:
    """PSP@k: inverse propensities of the hits, against those of the best possible ranking."""
    return judged.gains[:, :k].sum(axis=1) / k, judged.best[:, :k].sum(axis=1) / k


def psndcg(judged: Judged, k: int) -> GainAndIdeal:
    """PSnDCG@k: discounted inverse propensities of the hits, against those of the best possible ranking."""
    gain = _per_ideal(_dcg(judged.gains[:, :k]), judged.relevant, k)
    return gain, _per_ideal(_dcg(judged.best[:, :k]), judged.relevant, k)


def recall(judged: Judged, k: int) -> GainAndIdeal:
    """R@k: the share of the true labels that stand in the k places."""
    return judged.hits[:, :k].sum(axis=1) / np.maximum(judged.relevant, 1), 1.0


METRICS: dict[str, Callable[[Judged, int], GainAndIdeal]] = {
    "P": precision,
    "nDCG": ndcg,
    "PSP": psp,
    "PSnDCG": psndcg,
    "R": recall,
}


def rank(predictions: csr_array, truth: csr_array, k: int, exclude: csr_array | None = None) -> Ranking:
    """Rank the candidates, excluded pairs left out, and mark the true ones."""
    candidates = without(predictions, exclude)
    ids, _ = top_k(candidates, min(k, _longest_row(candidates)))
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    hits = (ids >= 0) & (find_pairs(truth, rows, ids.ravel()) >= 0).reshape(ids.shape)
    return Ranking(ids, hits, _reciprocal_rank(candidates, truth))


def judge(ranking: Ranking, truth: csr_array, weights: Doubles, k: int) -> Judged:
    """Put the inverse propensities `weights` (L) on the hits and on the best possible k places."""
    weighted = csr_array((weights[truth.indices], truth.indices, truth.indptr), shape=truth.shape)
    _, best = top_k(weighted, min(k, _longest_row(truth)))
    return Judged(
        hits=ranking.hits.astype(np.float64),
        gains=np.where(ranking.hits, weights[ranking.ids], 0.0),
        best=np.where(np.isfinite(best), best, 0.0),
        relevant=np.diff(truth.indptr).astype(np.int64),
        reciprocal_rank=ranking.reciprocal_rank,
    )


def contributions(judged: Judged, ks: Sequence[int]) -> Contributions:
    """What each point adds to every metric at every k, and to MRR."""
    columns = {f"{name}@{k}": metric(judged, k) for name, metric in METRICS.items() for k in ks}
    columns["MRR"] = (judged.reciprocal_rank, 1.0)
    points = len(judged.relevant)
    return Contributions(
        tuple(columns),
        np.stack([gain for gain, _ in columns.values()]),
        np.stack([np.broadcast_to(ideal, points) for _, ideal in columns.values()]),
    )


def coverage(ranking: Ranking, truth: csr_array, k: int) -> float:
    """C@k in percent: distinct labels hit in some point's k places, over distinct labels in the truth."""
    hit = _distinct(ranking.ids[:, :k][ranking.hits[:, :k]])
    return float(percent(hit, _distinct(truth.indices)))


def macro_precision(ranking: Ranking, num_labels: int, k: int) -> float:
    """macroP@k in percent: the mean over all labels of hits / predictions; a label never predicted has 0."""
    ids, hits = ranking.ids[:, :k], ranking.hits[:, :k]
    predicted = np.bincount(ids[ids >= 0], minlength=num_labels)
    correct = np.bincount(ids[hits], minlength=num_labels)
    return float(percent((correct / np.maximum(predicted, 1)).sum(), num_labels))


def percent(gain: npt.ArrayLike, ideal: npt.ArrayLike) -> Doubles:
    """100 gain / ideal; where nothing could be gained, 0."""
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
    """Divide by the DCG of a perfect ranking; a point without true labels gained nothing anyway."""
    hits = np.minimum(relevant, k)  # of a perfect ranking
    perfect = np.concatenate([[1.0], np.cumsum(_discounts(int(hits.max(initial=0))))])
    return np.asarray(dcg / perfect[hits])


def _reciprocal_rank(candidates: csr_array, truth: csr_array) -> Doubles:
    """1 / rank of each point's first true label, 0 where no candidate is true."""  # shape: (N,)
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
    """Position of each point's best-ranked true candidate, or -1; only the true pairs are looked up."""
    rows, labels = pairs(truth)
    positions = find_pairs(candidates, rows, labels)
    rows, positions = rows[positions >= 0], positions[positions >= 0]
    order = np.lexsort((positions, -candidates.data[positions], rows))  # score falls, then label rises
    rows, start = np.unique(rows[order], return_index=True)
    first = np.full(candidates.shape[0], -1, dtype=np.int64)
    first[rows] = positions[order][start]
    return first
