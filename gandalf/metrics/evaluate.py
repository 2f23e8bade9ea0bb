"""Compute all figures of a prediction set: filtered, unfiltered, and by known and new texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.matching import known_points
from gandalf.data.stats import label_bins
from gandalf.errors import DataError
from gandalf.metrics.bins import PLACES, BinContribution, bin_contributions, describe_bins
from gandalf.metrics.predictions import Source, as_predictions, need_test_points
from gandalf.metrics.propensity import Constants, inverse_propensities, propensity_constants
from gandalf.metrics.ranking import (
    Contributions,
    PointSubset,
    Ranking,
    contributions,
    coverage,
    macro_precision,
    rank,
    weigh_hits,
)

KS = (1, 3, 5)
DEFAULT_KS = "leave it out for 1, 3 and 5"
HIGHEST_K = 2**31 - 1  # fits into every integer type; no data set has as many labels
EVERY = slice(None)


@dataclass(frozen=True)
class SubsetFigures:
    """Figures over a subset of the test points, in percent; `values` is empty if the subset is empty."""

    points: int
    values: dict[str, float]
    bins: tuple[float, ...]  # contribution of each label bin to P@5

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, with the number of points and the bins."""
        return {**self.values, "points": self.points, "bins": list(self.bins)}


@dataclass(frozen=True, eq=False)
class Scores:
    """The result of `evaluate`; `scores["P@1"]` is the filtered figure in percent."""

    filtered: SubsetFigures
    unfiltered: SubsetFigures
    # Test points with a known text, which is a label text, and with a new text; None without texts.
    label_text: SubsetFigures | None
    new_text: SubsetFigures | None
    bins: tuple[BinContribution, ...]
    propensity: Constants
    labels: int
    ks: tuple[int, ...]
    most_labels: int  # most predictions of any point
    # For the bootstrap, which resamples points:
    contributions: Contributions = field(repr=False)
    known: npt.NDArray[np.bool_] | None = field(repr=False)  # shape: (N,) True for a known text

    def __getitem__(self, name: str) -> float:
        return self.filtered.values[name]

    @property
    def unanswered_ks(self) -> tuple[int, ...]:
        """Return each k for which every point has fewer than k predictions; empty places count as misses."""
        return tuple(k for k in self.ks if self.most_labels < min(k, self.labels))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, the filtered figures at the top level."""
        used = self.propensity
        return {
            **self.filtered.as_dict(),
            "labels": self.labels,
            "most_labels": self.most_labels,
            "bins": [asdict(each) for each in self.bins],
            "unfiltered": self.unfiltered.as_dict(),
            "label_text": None if self.label_text is None else self.label_text.as_dict(),
            "new_text": None if self.new_text is None else self.new_text.as_dict(),
            "propensity": {"A": used.A, "B": used.B, "from": used.source},
        }


def evaluate(
    predictions: Source,
    splits: Splits,
    *,
    ks: Sequence[int] = KS,
    A: float | None = None,
    B: float | None = None,
) -> Scores:
    """Score predictions for the test points of `splits`: a sparse matrix, (ids, scores), or a file.

    Excluded pairs of the test split are dropped before the top k are chosen; `unfiltered` holds the figures
    without this step. Propensities and label frequencies are those of the training points before
    augmentation. A and B default to the constants that belong to the name of the data set.
    """
    test, ks = need_test_points(splits), _checked_ks(ks)
    candidates = as_predictions(predictions, splits)
    used = propensity_constants(splits.name, A, B)
    frequencies = splits.original_frequencies
    weights = inverse_propensities(frequencies, splits.original_points, used.A, used.B)
    of_label = label_bins(frequencies)

    filtered = _Scorer.of(candidates, test, test.exclude, weights, ks)
    nothing_to_filter = test.exclude is None or test.exclude.nnz == 0
    unfiltered = filtered if nothing_to_filter else _Scorer.of(candidates, test, None, weights, ks)
    known = known_points(test)
    everything = filtered.figures(EVERY, of_label)
    return Scores(
        filtered=everything,
        unfiltered=unfiltered.figures(EVERY, of_label),
        label_text=None if known is None else filtered.figures(known, of_label),
        new_text=None if known is None else filtered.figures(~known, of_label),
        bins=describe_bins(frequencies, of_label, everything.bins),
        propensity=used,
        labels=test.num_labels,
        ks=ks,
        most_labels=int(np.diff(candidates.indptr).max(initial=0)),
        contributions=filtered.contributions,
        known=known,
    )


@dataclass(frozen=True, eq=False)
class _Scorer:
    """A ranking of all test points, from which figures over any subset are summed."""

    ranking: Ranking
    truth: csr_array
    contributions: Contributions
    ks: tuple[int, ...]

    @staticmethod
    def of(
        candidates: csr_array,
        test: Dataset,
        exclude: csr_array | None,
        weights: npt.NDArray[np.float64],
        ks: tuple[int, ...],
    ) -> _Scorer:
        k = max(*ks, PLACES)
        ranking = rank(candidates, test.targets, k, exclude)
        judged = weigh_hits(ranking, test.targets, weights, k)
        return _Scorer(ranking, test.targets, contributions(judged, ks), ks)

    def figures(self, rows: PointSubset, of_label: npt.NDArray[np.int64]) -> SubsetFigures:
        ranking = self.ranking[rows]
        if len(ranking.ids) == 0:
            return SubsetFigures(0, {}, ())
        values = self.contributions.values(rows)
        truth = self.truth if isinstance(rows, slice) else self.truth[np.flatnonzero(rows)]
        values |= {f"C@{k}": coverage(ranking, truth, k) for k in self.ks}
        values |= {f"macroP@{k}": macro_precision(ranking, truth.shape[1], k) for k in self.ks}
        return SubsetFigures(len(ranking.ids), values, tuple(bin_contributions(ranking, of_label)))


def _checked_ks(ks: Sequence[int]) -> tuple[int, ...]:
    ks = tuple(ks)
    for k in ks:
        if isinstance(k, bool) or not isinstance(k, int | np.integer):
            raise DataError(f"k must be an integer, not {k!r}", remedy=DEFAULT_KS)
    if not ks or min(ks) < 1:
        raise DataError("k must be at least 1", remedy=DEFAULT_KS)
    if max(ks) > HIGHEST_K:
        raise DataError(f"k must be at most {HIGHEST_K:,}", remedy=DEFAULT_KS)
    return tuple(sorted({int(k) for k in ks}))
