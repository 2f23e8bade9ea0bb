"""Count labels that occur together on a point, which limits what label points can teach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gandalf.data.dataset import Dataset
from gandalf.data.sentences import counted
from gandalf.data.sparse_rows import cooccurrence_costs
from gandalf.graph.cooccurrence import Estimate, counts_together, frequencies, sample_by_pairs
from gandalf.graph.estimates.ratio import Ratio
from gandalf.graph.estimates.shrunk import Shrunk

MAX_PAIRS = 2_000_000  # most pairs in the counts


@dataclass(frozen=True)
class CooccurrenceSummary:
    """Counts of labels that occur together, over all labels with points or a sample of them."""

    labels: int  # labels with points, or a sample of them
    with_others: int  # labels that occur with another label on a point
    others: float  # mean number of other labels that a label occurs with
    again: float  # share of the pairs of labels that occur together on more than one point
    ratio: float  # mean number of other labels that the paper's ratio gives a label point
    shrunk: float  # mean number of other labels that shrunk targets give a label point

    @property
    def sentences(self) -> str:
        """Return the counts in one or two sentences."""
        if not self.with_others:
            return "No two labels stand on one point, so label points can teach each label alone."
        alone = "all" if self.with_others == self.labels else f"{self.with_others:,}"
        return (
            f"Of {counted(self.labels, 'label')} with points {alone} stand on a point with others, each with "
            f"{self.others:.1f} on average; {self.again:.0%} of these pairs do so on more than one point. A "
            f"label point gets {_labels_in_words(self.ratio)} beside its own from the paper's ratio, and "
            f"{_labels_in_words(self.shrunk)} from shrunk targets."
        )


def _labels_in_words(labels: float) -> str:
    return "no label" if not labels else f"{labels:.1f} labels" if labels >= 0.1 else f"{labels:.1g} labels"


def summarise_cooccurrence(
    points: Dataset, shrunk: Shrunk, delta: float, seed: int = 0
) -> CooccurrenceSummary:
    """Count pairs of labels, and how many of them pass the threshold."""
    costs, frequency = cooccurrence_costs(points.targets), frequencies(points.targets)
    used = np.flatnonzero(frequency)
    labels = sample_by_pairs(costs, used, np.random.default_rng(seed), MAX_PAIRS) if len(used) else used
    joint = counts_together(points.targets, labels)
    row = np.repeat(labels, np.diff(joint.indptr))
    off = joint.indices != row
    given, number = row[off], max(len(labels), 1)
    pair = (joint.data[off], frequency[given], frequency[joint.indices[off]])
    present = points.targets.copy()
    present.data = np.ones_like(present.data)  # soft targets count as 1 here
    seen = counts_together(present, labels).data[off] if len(given) else np.empty(0)

    def kept(estimate: Estimate) -> float:
        return float((estimate.score(*pair) > delta).sum() / number)

    return CooccurrenceSummary(
        labels=len(labels),
        with_others=len(np.unique(given)),
        others=len(given) / number,
        again=float((seen > 1).mean()) if len(seen) else 0.0,
        ratio=kept(Ratio()),
        shrunk=kept(shrunk),
    )
