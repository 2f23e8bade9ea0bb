"""Pairs of labels on which the label-feature postulate can be observed.

A label is *matched* when its text is the text of training points. What those points carry is what the
postulate speaks of, P(Y_i | X = z_j), seen rather than assumed. Labels that share a text are matched to the
same points, and a text that several points share is observed as their mean: a model sees the text alone and
cannot tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_groups
from gandalf.graph.cooccurrence import Floats, counts, frequencies
from gandalf.graph.own_points import SEEN, entries, leave_out, own_points
from gandalf.graph.shrinkage import labels_of_pairs

MAX_PAIRS = 2_000_000
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Ordered pairs (input label j, other label i != j) that occur together apart from j's own points.

    The counts leave the matched points of j out, so that `observed`, which is made of them, is news.
    """

    given_label: Labels  # j; shape: (P,)
    other_label: Labels  # i
    text: Labels  # number of j's text: pairs of one text stand or fall together
    joint: Floats
    given: Floats
    other: Floats
    observed: Floats  # mean target of i on the points whose text is j's

    def __len__(self) -> int:
        return len(self.joint)

    def __getitem__(self, rows: npt.NDArray[np.bool_]) -> Pairs:
        """The pairs chosen by a mask."""
        return Pairs(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Matches:
    """Which labels are matched to which points, and every pair that can be observed on a sample of them."""

    labels: int  # labels that are matched
    texts: int  # distinct texts among them
    several_points: int  # matched texts that more than one point has
    shared_texts: int  # labels that share their text with another label
    links: float  # observed targets in all, off the diagonal, on the sampled labels
    pairs: Pairs
    own: csr_array  # L x N: the points that have each label's text


def match(points: Dataset, *, seed: int = 0, most_pairs: int = MAX_PAIRS) -> Matches:
    """Match labels to training points by text; collect the pairs of the matched labels, or of a sample."""
    texts, label_texts = points.need_texts("matching labels to points")
    of_points, of_labels = text_groups(texts, label_texts)
    number = int(max(of_points.max(initial=-1), of_labels.max(initial=-1))) + 1
    size = _group_sizes(of_points, number)
    points_of = np.where(of_labels >= 0, size[np.maximum(of_labels, 0)], 0)  # matched points of each label
    matched = np.flatnonzero(points_of)
    labels_of = _group_sizes(of_labels, len(size))
    chosen = labels_of_pairs(points.targets, matched, np.random.default_rng(seed), most_pairs)
    pairs, links = _pairs(points.targets, of_points, of_labels, chosen)
    return Matches(
        labels=len(matched),
        texts=len(np.unique(of_labels[matched])),
        several_points=int((size[np.unique(of_labels[matched])] > 1).sum()),
        shared_texts=int((labels_of[of_labels[of_labels >= 0]] > 1).sum()),
        links=links,
        pairs=pairs,
        own=own_points(of_points, of_labels),
    )


def _group_sizes(groups: Labels, number: int) -> Labels:
    # Empty texts carry negative numbers: they match nothing.
    return np.bincount(groups[groups >= 0], minlength=number)


def _pairs(targets: csr_array, of_points: Labels, of_labels: Labels, labels: Labels) -> tuple[Pairs, float]:
    """Pairs of the given matched labels with all others, and the sum of all their observed targets."""
    own = own_points(of_points, of_labels[labels])  # shape: (len(labels), N)
    joint, frequency = counts(targets, labels), frequencies(targets)
    row = np.repeat(np.arange(len(labels)), np.diff(joint.indptr))
    off = joint.indices != labels[row]
    row, column = row[off], joint.indices[off].astype(np.int64)
    found = leave_out(own, targets, labels, (row, column, joint.data[off]), frequency)
    number = np.diff(own.indptr)  # own points of each label
    pairs = Pairs(
        given_label=labels[row],
        other_label=column,
        text=of_labels[labels[row]],
        joint=found.joint,
        given=found.given,
        other=found.other,
        observed=found.carried / number[row],
    )
    carried = csr_array(own @ targets)
    links = carried.sum(axis=1) - entries(carried, np.arange(len(labels)), labels)
    return pairs[found.joint > SEEN], float((links / np.maximum(number, 1)).sum())
