"""Define `TargetKind`: how one kind of targets builds the label graph, what it needs, which options it
reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.graph.cooccurrence import Estimate, PairRule, conditional_graph
from gandalf.graph.joint_sums import Floats
from gandalf.graph.matched_pairs import Matches, Pairs, match_labels

if TYPE_CHECKING:
    from gandalf.graph.estimates.shrunk import Shrunk
    from gandalf.graph.label_graph import GraphOptions

Vectors = npt.NDArray[np.floating[Any]]
Details = dict[str, float | str]
# sums: sums over points, which a cluster computes in parts. texts: sums, and texts of points and labels.
# points: all points in this process. vectors: a trained encoder's vectors of the label texts.
Needs = Literal["sums", "texts", "points", "vectors"]
Scorer = Callable[[Pairs, "Shrunk", int], Floats]


@dataclass(frozen=True)
class LabelGraph:
    """A label graph (L x L, row j = targets of a point with the text of label j), its estimate and fitted
    values."""

    matrix: csr_array
    estimate: str
    details: Details = field(default_factory=dict)


@dataclass(frozen=True)
class TargetKind:
    """One way to make the targets of label points."""

    help: str  # a clause for the help of `--targets`
    # Takes `PointsInMemory`; a kind that needs sums or texts takes any `CountablePoints`.
    build: Callable[[Any, GraphOptions], LabelGraph]
    needs: Needs = "sums"
    options: tuple[str, ...] = ()  # of `OWN_OPTIONS`: the options that this kind reads
    # Scores of matched pairs, for the diagnosis, from the fitted shrunk estimate and a seed; None: no scores.
    score_pairs: Scorer | None = None


class CountablePoints(Protocol):
    """Training points that can be counted, in this process or on a cluster."""

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""

    @property
    def has_texts(self) -> bool:
        """Return True if points and labels have texts by which they can be matched."""

    def shrunk(self, seed: int) -> Shrunk:
        """Fit the shrunk estimate: choose the strength that best predicts held-out co-occurrences."""

    def matches(self, seed: int) -> Matches:
        """Match labels to points by text; return the pairs that can be observed on them."""

    def graph(self, rule: PairRule, matches: Matches | None = None) -> csr_array:
        """Return the label graph; given `matches`, leave matched points out of each label's counts."""


@dataclass(frozen=True)
class PointsInMemory:
    """Training points that this process holds, perhaps with a teacher's vectors of the label texts."""

    points: Dataset
    threads: int | None = None
    label_vectors: Vectors | None = None  # L x dim

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return self.points.num_labels

    @property
    def has_texts(self) -> bool:
        """Return True if points and labels have texts by which they can be matched."""
        return self.points.texts is not None and self.points.label_texts is not None

    def shrunk(self, seed: int) -> Shrunk:
        """Fit the shrunk estimate: choose the strength that best predicts held-out co-occurrences."""
        from gandalf.graph.estimates.shrunk import fit_shrunk  # a kind itself, which imports this file

        return fit_shrunk(self.points.targets, seed=seed)

    def matches(self, seed: int) -> Matches:
        """Match labels to points by text; return the pairs that can be observed on them."""
        return match_labels(self.points, seed=seed)

    def graph(self, rule: PairRule, matches: Matches | None = None) -> csr_array:
        """Return the label graph; given `matches`, leave matched points out of each label's counts."""
        return conditional_graph(
            self.points.targets,
            rule.estimate,
            delta=rule.delta,
            top_k=rule.top_k,
            matched_points=None if matches is None else matches.matched_points,
            threads=self.threads,
        )


def build_from_sums(
    name: str,
    estimate: Estimate,
    points: CountablePoints,
    options: GraphOptions,
    details: Details | None = None,
    matches: Matches | None = None,
) -> LabelGraph:
    """Build the graph of an estimate that scores pairs of labels by their counts."""
    rule = PairRule(estimate, options.delta, options.top_k)
    return LabelGraph(points.graph(rule, matches), name, details or {})


def score_pairs(estimate: Estimate, pairs: Pairs) -> Floats:
    """Score observed pairs by an estimate."""
    return estimate.score(pairs.joint, pairs.given, pairs.other)
