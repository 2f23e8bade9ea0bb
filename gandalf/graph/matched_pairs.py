"""Find the pairs of labels on which the label-feature postulate can be observed.

A label is *matched* if its text is the text of training points. The targets of those points show what the
postulate assumes: P(Y_i | X = z_j). Labels that share a text match the same points. Several points of one
text are observed as their mean: a model sees the text alone and cannot tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.matching import matched_groups
from gandalf.data.sparse_rows import cooccurrence_costs
from gandalf.graph.cooccurrence import counts_together, frequencies, sample_by_pairs
from gandalf.graph.joint_sums import Floats
from gandalf.graph.matched_points import (
    SEEN,
    MatchedSums,
    entries_at,
    leave_out,
    matched_points,
    matched_sums,
)

MAX_PAIRS = 2_000_000
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Ordered pairs (input label j, other label i != j) that occur together outside the matched points of j.

    The counts leave out the matched points of j, because `observed` is computed from them.
    """

    given_label: Ints  # j; shape: (P,)
    other_label: Ints  # i
    text: Ints  # number of the text of j; all pairs of one text are in one fold
    joint: Floats
    given: Floats
    other: Floats
    observed: Floats  # mean target of i on the points whose text is j's

    def __len__(self) -> int:
        return len(self.joint)

    def __getitem__(self, rows: npt.NDArray[np.bool_]) -> Pairs:
        """Select pairs by a mask."""
        return Pairs(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Matches:
    """Labels matched to points, and the pairs observed on all matched labels or a sample."""

    labels: int  # labels that are matched
    texts: int  # distinct texts among them
    several_points: int  # matched texts that more than one point has
    shared_texts: int  # labels that share their text with another label
    links: float  # sum of the observed targets off the diagonal, over the sampled labels
    pairs: Pairs
    matched_points: csr_array | None = (
        None  # L x N: the points that have each label's text; None on a cluster
    )


_NO_LABELS, _NO_VALUES = np.empty(0, dtype=np.int64), np.empty(0)
_NO_PAIRS = Pairs(_NO_LABELS, _NO_LABELS, _NO_LABELS, _NO_VALUES, _NO_VALUES, _NO_VALUES, _NO_VALUES)
NO_MATCHES = Matches(labels=0, texts=0, several_points=0, shared_texts=0, links=0.0, pairs=_NO_PAIRS)


@dataclass(frozen=True)
class MatchedLabels:
    """Matched labels, from the number of each label's text and the number of points of each text."""

    text: Ints  # of each label; an empty text has a number below 0 and matches nothing; shape: (L,)
    size: Ints  # points of each text; shape: (texts,)

    @property
    def labels(self) -> Ints:
        """Return the matched labels, sorted."""
        points_of = np.where(self.text >= 0, self.size[np.maximum(self.text, 0)], 0)
        return np.flatnonzero(points_of)

    def sample(self, costs: Ints, seed: int, most_pairs: int = MAX_PAIRS) -> Ints:
        """Draw the labels whose pairs are observed: all, or a sample; `costs` is `cooccurrence_costs`."""
        return sample_by_pairs(costs, self.labels, np.random.default_rng(seed), most_pairs)

    def observe(self, labels: Ints, joint: csr_array, sums: MatchedSums, frequency: Floats) -> Matches:
        """Collect the pairs of these labels, from their joint counts and the sums of their matched points."""
        pairs, links = _observed_pairs(self.text, labels, joint, sums, frequency)
        texts = np.unique(self.text[self.labels])
        labels_of = _group_sizes(self.text, len(self.size))
        return Matches(
            labels=len(self.labels),
            texts=len(texts),
            several_points=int((self.size[texts] > 1).sum()),
            shared_texts=int((labels_of[self.text[self.text >= 0]] > 1).sum()),
            links=links,
            pairs=pairs,
        )


def match_labels(points: Dataset, *, seed: int = 0, most_pairs: int = MAX_PAIRS) -> Matches:
    """Match labels to training points by text; collect the pairs of the matched labels or a sample."""
    points.need_texts("matching labels to points")
    of_points, of_labels = matched_groups(points)
    number = int(max(of_points.max(initial=0), of_labels.max(initial=0))) + 1
    matched = MatchedLabels(of_labels, _group_sizes(of_points, number))
    chosen = matched.sample(cooccurrence_costs(points.targets), seed, most_pairs)
    sums = matched_sums(matched_points(of_points, of_labels[chosen]), points.targets, chosen)
    joint, frequency = counts_together(points.targets, chosen), frequencies(points.targets)
    matches = matched.observe(chosen, joint, sums, frequency)
    return replace(matches, matched_points=matched_points(of_points, of_labels))


def _group_sizes(groups: Ints, number: int) -> Ints:
    # Empty texts have negative numbers: they match nothing.
    return np.bincount(groups[groups >= 0], minlength=number)


def _observed_pairs(
    of_labels: Ints, labels: Ints, joint: csr_array, sums: MatchedSums, frequency: Floats
) -> tuple[Pairs, float]:
    """Return the pairs of the given matched labels with all others, and the sum of their observed targets."""
    row = np.repeat(np.arange(len(labels)), np.diff(joint.indptr))
    off = joint.indices != labels[row]
    row, column = row[off], joint.indices[off].astype(np.int64)
    counts = leave_out(sums, labels, (row, column, joint.data[off]), frequency)
    pairs = Pairs(
        given_label=labels[row],
        other_label=column,
        text=of_labels[labels[row]],
        joint=counts.joint,
        given=counts.given,
        other=counts.other,
        observed=counts.matched_sum / sums.num_points[row],
    )
    own_targets = entries_at(sums.frequencies, np.arange(len(labels)), labels)
    links = (sums.frequencies.sum(axis=1) - own_targets) / np.maximum(sums.num_points, 1)
    return pairs[counts.joint > SEEN], float(links.sum())
