"""How strongly to shrink, learned by predicting held-out co-occurrences: no label text is needed.

Take one point of label j away and ask whether it carries i, knowing only the rest. Over all points this
leave-one-out likelihood depends on the counts alone: a pair seen together on c of j's n points was predicted
at (c - 1) / (n - 1 + a) on each of the c, and at c / (n - 1 + a) on each of the other n - c. So the best
strength a is exact and costs one pass over a sample of the pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.sparse_rows import products_by_label
from gandalf.graph.cooccurrence import counts, frequencies
from gandalf.graph.estimates import Shrunk
from gandalf.graph.joint_sums import Floats

MAX_PAIRS = 5_000_000  # pairs looked at; more would not move the fit
RANGE = (1e-2, 1e3)  # strengths tried


def fit_shrunk(targets: csr_array, *, seed: int = 0) -> Shrunk:
    """The shrunk estimate whose strength best predicts held-out co-occurrences of these targets."""
    seen = csr_array(targets, copy=True)
    seen.data = np.ones_like(seen.data)  # leave-one-out counts whole points; graded targets count as present
    frequency = frequencies(seen)
    labels = labels_to_fit(products_by_label(seen), frequency, seed)
    return fit_strength(counts(seen, labels), labels, frequency)


def labels_to_fit(work: npt.NDArray[np.int64], frequency: Floats, seed: int) -> npt.NDArray[np.int64]:
    """Labels with two points or more, or a sample of them, whose pairs are looked at."""
    return labels_of_pairs(work, np.flatnonzero(frequency > 1), np.random.default_rng(seed))


def fit_strength(together: csr_array, labels: npt.NDArray[np.int64], frequency: Floats) -> Shrunk:
    """The shrunk estimate from the joint counts of `labels` with all labels, one row each."""
    joint, given, weight = _pair_table(together, labels, frequency)
    if not len(joint):
        return Shrunk()  # no label has two points: nothing can be held out
    from scipy.optimize import minimize_scalar  # not above: it takes a fifth of a second

    found = minimize_scalar(
        lambda log_a: leave_one_out_loss(float(np.exp(log_a)), joint, given, weight),
        bounds=tuple(np.log(RANGE)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return Shrunk(round(float(np.exp(found.x)), 3), fitted_on=int(weight.sum()))


def leave_one_out_loss(strength: float, joint: Floats, given: Floats, weight: Floats) -> float:
    """Log loss, summed over held-out points, of predicting each pair from all other points.

    A pair seen on the held-out point alone is no prediction of anyone's (its count in the rest is 0), so the
    first term starts at c = 2.
    """
    rest = given - 1 + strength
    on = np.where(joint > 1, weight * joint * np.log(np.maximum(joint - 1, 0.5) / rest), 0.0)
    off = np.where(
        given > joint, weight * (given - joint) * np.log1p(-joint / np.maximum(rest, joint + 1e-9)), 0.0
    )
    return -float(on.sum() + off.sum())


def labels_of_pairs(
    work: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    generator: np.random.Generator,
    most: int = MAX_PAIRS,
) -> npt.NDArray[np.int64]:
    """As many of the labels, drawn at random, as have about `most` pairs between them; sorted.

    `work` is what `products_by_label` says of each label.
    """
    drawn = generator.permutation(labels)
    at_most = work[drawn]  # pairs of each
    enough = int(np.searchsorted(np.cumsum(at_most), most)) + 1
    return np.sort(drawn[:enough])


def _pair_table(
    together: csr_array, labels: npt.NDArray[np.int64], frequency: Floats
) -> tuple[Floats, Floats, Floats]:
    """Distinct (joint, given) of the pairs of the labels, and how many each."""
    row = np.repeat(labels, np.diff(together.indptr))
    off = together.indices != row
    pairs = np.stack([together.data[off], frequency[row[off]]], axis=1)
    if not len(pairs):
        return np.empty(0), np.empty(0), np.empty(0)
    distinct, weight = np.unique(pairs, axis=0, return_counts=True)
    return distinct[:, 0], distinct[:, 1], weight.astype(np.float64)
