"""Hold out training points for validation, so that they resemble the test split.

This module never reads the test split. The choice of held-out points depends on texts and seed alone, never
on targets, so `rest` carries no information about them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, binary_pairs
from gandalf.data.matching import text_groups
from gandalf.data.sentences import counted
from gandalf.errors import DataError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Holdout:
    """Training points cut in two. Held-out points that lost all their targets are in neither half."""

    rest: Dataset  # for training, label graph, calibration of targets, and propensities
    held: Dataset  # for validation; every point has a target that is not excluded
    rows: Ints  # rows of the held-out points in the original data set, ascending


def hold_out_points(points: Dataset, share: float, seed: int, *, at_most: int | None = 2000) -> Holdout:
    """Hold out `share` of the training points, but at most `at_most`, for validation.

    `points` must not include label points. All points with the same text go to the same half, so that a
    held-out text is never trained on. Labels keep their columns.

    Test splits leave some pairs out. To resemble them, these pairs of held-out points join `exclude`, so that
    they count neither as a hit nor as a miss:

    - on item-to-item data (the filter holds the pairs of an item with itself), the label that is the item
      itself, and reciprocal pairs: B -> A if A -> B is in `rest`;
    - pairs whose label has no point in `rest`. All labels of the public data sets have training points; a
    model
      could know any other label from its text alone.

    Held-out points that lose all their targets are dropped, as in test splits, because they would be a miss
    for every model.
    """
    taken = _draw_points(points, _number_to_hold(len(points), share, at_most), np.random.default_rng(seed))
    rest, held = points[~taken], points[taken]
    exclude = csr_array(excluded_pairs(points, taken) + _pairs_without_points(held, rest))
    exclude.eliminate_zeros()
    targets = held.targets - held.targets.multiply(exclude)
    targets.eliminate_zeros()
    held = replace(held, targets=targets, exclude=exclude if exclude.nnz else held.exclude)
    with_targets = np.flatnonzero(np.diff(held.targets.indptr))
    if not len(with_targets):
        raise DataError(
            f"none of the {counted(len(held), 'point')} held out for validation has a label left to predict",
            remedy="hold out a larger share, or use another seed",
        )
    return Holdout(rest, held[with_targets], np.flatnonzero(taken)[with_targets])


# ---- the choice of points


def _number_to_hold(points: int, share: float, at_most: int | None) -> int:
    """Return the number of points to hold out: at least one, and never all."""
    if not 0 < share < 1:
        raise DataError(f"the share of points to hold out is {share}, but it must lie between 0 and 1")
    if at_most is not None and at_most < 1:
        raise DataError(f"at most {at_most} points are to be held out, but the number must be at least 1")
    number = max(1, round(share * points))
    return min(number, points - 1, points if at_most is None else at_most)


def _draw_points(points: Dataset, number: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark all points of random texts; skip a text with more points than are still needed."""
    (text,) = [np.arange(len(points))] if points.texts is None else text_groups(points.texts)
    _, text, size = np.unique(text, return_inverse=True, return_counts=True)
    chosen = np.zeros(len(size), dtype=bool)
    for each in rng.permutation(len(size)):
        if number == 0:
            break
        if size[each] <= number:
            chosen[each] = True
            number -= int(size[each])
    if not chosen.any():
        raise DataError(
            f"no validation share can be cut from {counted(len(points), 'training point')}"
            f" with {counted(len(size), 'distinct text')}",
            remedy="hold out a larger share, or collect points with other texts",
        )
    return chosen[text]  # shape: (N,)


# ---- the pairs to exclude


def _pairs_without_points(held: Dataset, rest: Dataset) -> csr_array:
    """Return the pairs of held-out points whose label has no point in `rest`."""  # shape: (H, L)
    pairs = held.targets.astype(bool)
    pairs.data = rest.label_frequencies[pairs.indices] == 0
    return pairs


def excluded_pairs(points: Dataset, taken: npt.NDArray[np.bool_]) -> csr_array:
    """Return the pairs of `taken` points that the filter excludes and, on item-to-item data, an item's own
    label and reciprocal pairs."""  # shape: (H, L)
    nothing = csr_array((int(taken.sum()), points.num_labels), dtype=bool)
    exclude = nothing if points.exclude is None else points.exclude[taken]
    same_item = _same_item_pairs(points)
    if same_item is None:
        return exclude
    of_held, of_rest = same_item[taken], same_item[~taken]
    rest_by_label = csr_array(points.targets[~taken].astype(bool).T)
    # Held-out item -> points of the rest with this item as label -> the labels that are those points.
    return csr_array(exclude + of_held + of_held @ rest_by_label @ of_rest)


def _same_item_pairs(points: Dataset) -> csr_array | None:
    """Return the pairs of a point and the label that is the same item, or None if this is no item-to-item
    data.

    On item-to-item data the filter of the training points holds exactly these pairs, and the filter of the
    test split also the reciprocal ones. Pairs are found by ids, else by texts.
    """  # shape: (N, L)
    if points.exclude is None or points.exclude.nnz == 0:
        return None
    for same in (_same_ids(points), _same_texts(points)):
        if same is not None and 2 * points.exclude.multiply(same).nnz > points.exclude.nnz:
            return same
    return None


def _same_ids(points: Dataset) -> csr_array | None:
    if points.ids is None or points.label_ids is None:
        return None
    return _equal_pairs(points.ids, points.label_ids)


def _same_texts(points: Dataset) -> csr_array | None:
    if points.texts is None or points.label_texts is None:
        return None
    of_points, of_labels = text_groups(points.texts, points.label_texts)
    return _equal_pairs(of_points.tolist(), of_labels.tolist())


def _equal_pairs(of_points: Sequence[Hashable], of_labels: Sequence[Hashable]) -> csr_array:
    """Return the pairs of point and label with equal values."""  # shape: (N, L)
    numbers = {each: number for number, each in enumerate(dict.fromkeys(of_labels))}
    rows = [row for row, each in enumerate(of_points) if each in numbers]
    groups = [numbers[of_points[row]] for row in rows]
    points = binary_pairs(rows, groups, (len(of_points), len(numbers)))
    labels = binary_pairs(
        [numbers[each] for each in of_labels], np.arange(len(of_labels)), (len(numbers), len(of_labels))
    )
    return csr_array(points @ labels)
