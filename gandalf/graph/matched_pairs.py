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
from scipy.sparse import csr_array, csr_matrix

from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_groups
from gandalf.graph.cooccurrence import Floats, counts, frequencies
from gandalf.graph.shrinkage import sample_labels

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


def match(points: Dataset, *, seed: int = 0, most_pairs: int = MAX_PAIRS) -> Matches:
    """Match labels to training points by text; collect the pairs of the matched labels, or of a sample."""
    texts, label_texts = points.need_texts("matching labels to points")
    of_points, of_labels = text_groups(texts, label_texts)
    size = _group_sizes(of_points, max(of_points.max(initial=-1), of_labels.max(initial=-1)) + 1)
    points_of = np.where(of_labels >= 0, size[np.maximum(of_labels, 0)], 0)  # matched points of each label
    matched = np.flatnonzero(points_of)
    labels_of = _group_sizes(of_labels, len(size))
    chosen = sample_labels(points.targets, matched, np.random.default_rng(seed), most_pairs)
    pairs, links = _pairs(points.targets, of_points, of_labels, chosen)
    return Matches(
        labels=len(matched),
        texts=len(np.unique(of_labels[matched])),
        several_points=int((size[np.unique(of_labels[matched])] > 1).sum()),
        shared_texts=int((labels_of[of_labels[of_labels >= 0]] > 1).sum()),
        links=links,
        pairs=pairs,
    )


def _group_sizes(groups: Labels, number: int) -> Labels:
    # Empty texts carry negative numbers: they match nothing.
    return np.bincount(groups[groups >= 0], minlength=number)


def _pairs(targets: csr_array, of_points: Labels, of_labels: Labels, labels: Labels) -> tuple[Pairs, float]:
    """Pairs of the given matched labels with all others, and the sum of all their observed targets."""
    own = _own_points(of_points, of_labels[labels])  # shape: (len(labels), N)
    carried = csr_array(own @ targets).astype(np.float64)  # what each label's own points carry, summed
    # Own points that carry the label itself are counted in its joint counts; take them out again.
    with_self = csr_array(own.multiply(csr_array(targets.T)[labels]))
    joint = csr_array(counts(targets, labels) - csr_array(with_self @ targets).astype(np.float64))
    row = np.repeat(np.arange(len(labels)), np.diff(joint.indptr))
    keep = (joint.indices != labels[row]) & (joint.data > 1e-9)
    row, column, together = row[keep], joint.indices[keep].astype(np.int64), joint.data[keep]
    frequency = frequencies(targets)
    of_self, of_other = _at(carried, row, labels[row]), _at(carried, row, column)
    own_count = np.diff(own.indptr)
    pairs = Pairs(
        given_label=labels[row],
        other_label=column,
        text=of_labels[labels[row]],
        joint=together,
        given=frequency[labels[row]] - of_self,
        other=frequency[column] - of_other,
        observed=of_other / own_count[row],
    )
    selves = _at(carried, np.arange(len(labels)), labels)
    links = (carried.sum(axis=1) - selves) / np.maximum(own_count, 1)
    return pairs, float(links.sum())


def _own_points(of_points: Labels, of_labels: Labels) -> csr_array:
    """Which points have each label's text, as a 0/1 matrix."""
    order = np.argsort(of_points, kind="stable")
    first = np.searchsorted(of_points[order], of_labels)
    last = np.searchsorted(of_points[order], of_labels, side="right")
    indptr = np.concatenate([[0], np.cumsum(last - first)])
    places = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], last - first)
    indices = order[places]
    return csr_array((np.ones(len(indices)), indices, indptr), shape=(len(of_labels), len(of_points)))


def _at(matrix: csr_array, rows: Labels, columns: Labels) -> Floats:
    """Entries of a sparse matrix at the given places."""
    if not len(rows):
        return np.empty(0)  # SciPy answers no places with a matrix, not with numbers
    return np.asarray(csr_matrix(matrix)[rows, columns], dtype=np.float64).ravel()
