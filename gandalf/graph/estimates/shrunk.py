"""Shrunk ratio, G_ij / (G_jj + strength), with a strength that predicts held-out co-occurrences.

The fit needs no label text. It leaves one point of label j out, and predicts from the other points whether
this point has label i. Over all points, this leave-one-out likelihood depends on the counts alone. If i is on
c of the n points of j, the prediction is (c - 1) / (n - 1 + a) on each of the c points, and c / (n - 1 + a)
on each of the other n - c points. So the best strength a is exact and costs one pass over a sample of the
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.sparse_rows import cooccurrence_costs
from gandalf.errors import DataError
from gandalf.graph.cooccurrence import Estimate, counts_together, frequencies, sample_by_pairs
from gandalf.graph.joint_sums import Floats
from gandalf.graph.kind import CountablePoints, LabelGraph, TargetKind, build_from_sums, score_pairs

if TYPE_CHECKING:
    from gandalf.graph.label_graph import GraphOptions

MAX_PAIRS = 5_000_000  # pairs in the fit; more would not change it
RANGE = (1e-2, 1e3)  # lowest and highest strength of the fit


@dataclass(frozen=True)
class Shrunk(Estimate):
    """The ratio as if the input label had `strength` more points, with no other label on them.

    So a label with one point no longer gives a target of 1 to all labels on that point.
    """

    strength: float = 1.0
    fitted_on: int = 0  # pairs in the fit of the strength; 0: the strength is given or a default
    below_ratio: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.strength < np.inf:
            what = f"the strength of shrinkage is {self.strength}"
            raise DataError(f"{what}, but it must be at least 0 and finite")

    def score(self, joint: Floats, given: Floats, other: Floats) -> Floats:
        """Return the shrunk ratio."""
        return joint / (given + self.strength)


def fit_shrunk(targets: csr_array, *, seed: int = 0) -> Shrunk:
    """Fit the strength that best predicts held-out co-occurrences of these targets."""
    seen = csr_array(targets, copy=True)
    seen.data = np.ones_like(seen.data)  # leave-one-out counts whole points, so soft targets count as 1
    frequency = frequencies(seen)
    labels = labels_to_fit(cooccurrence_costs(seen), frequency, seed)
    return fit_strength(counts_together(seen, labels), labels, frequency)


def labels_to_fit(costs: npt.NDArray[np.int64], frequency: Floats, seed: int) -> npt.NDArray[np.int64]:
    """Return the labels with at least two points, or a sample of them."""
    return sample_by_pairs(costs, np.flatnonzero(frequency > 1), np.random.default_rng(seed), MAX_PAIRS)


def fit_strength(joint_sums: csr_array, labels: npt.NDArray[np.int64], frequency: Floats) -> Shrunk:
    """Fit the strength to the joint counts of `labels` (rows) with all labels."""
    joint, given, weight = _distinct_pairs(joint_sums, labels, frequency)
    if not len(joint):
        return Shrunk()  # no label has two points, so no point can be left out
    from scipy.optimize import minimize_scalar  # the import takes a fifth of a second

    found = minimize_scalar(
        lambda log_a: leave_one_out_loss(float(np.exp(log_a)), joint, given, weight),
        bounds=tuple(np.log(RANGE)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return Shrunk(round(float(np.exp(found.x)), 3), fitted_on=int(weight.sum()))


def leave_one_out_loss(strength: float, joint: Floats, given: Floats, weight: Floats) -> float:
    """Return the log loss, summed over left-out points, of predicting each pair from all other points.

    The first term starts at c = 2, because a pair on the left-out point alone has count 0 in the other
    points.
    """
    rest = given - 1 + strength
    on = np.where(joint > 1, weight * joint * np.log(np.maximum(joint - 1, 0.5) / rest), 0.0)
    off = np.where(
        given > joint, weight * (given - joint) * np.log1p(-joint / np.maximum(rest, joint + 1e-9)), 0.0
    )
    return -float(on.sum() + off.sum())


def _distinct_pairs(
    joint_sums: csr_array, labels: npt.NDArray[np.int64], frequency: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the distinct (joint, given) of the labels' pairs, and how many pairs have each."""
    row = np.repeat(labels, np.diff(joint_sums.indptr))
    off = joint_sums.indices != row
    pairs = np.stack([joint_sums.data[off], frequency[row[off]]], axis=1)
    if not len(pairs):
        return np.empty(0), np.empty(0), np.empty(0)
    distinct, weight = np.unique(pairs, axis=0, return_counts=True)
    return distinct[:, 0], distinct[:, 1], weight.astype(np.float64)


def build_shrunk(points: CountablePoints, options: GraphOptions) -> LabelGraph:
    """Build the graph with the given strength, or a fitted one."""
    if options.strength is not None:
        given = Shrunk(options.strength)
        return build_from_sums("shrunk", given, points, options, {"strength": given.strength})
    fitted = points.shrunk(options.seed)
    details: dict[str, float | str] = {
        "strength": fitted.strength,
        "strength_fitted_on_pairs": fitted.fitted_on,
    }
    return build_from_sums("shrunk", fitted, points, options, details)


KIND = TargetKind(
    "less sure of rare labels",
    build_shrunk,
    options=("strength",),
    score_pairs=lambda pairs, shrunk, seed: score_pairs(shrunk, pairs),
)
