"""A validation share cut from the training points, made to look like the test that it is to forecast.

Nothing here reads a test split, and nothing of the held points reaches `rest`: which points are held
depends on texts and seed alone, never on targets.
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
    """Training points cut in two; points that were held but have nothing left to ask are in neither."""

    rest: Dataset  # to train on, and to build graph, calibration and propensities from
    held: Dataset  # to validate on: every point has a target, and none of its targets is excluded
    rows: Ints  # the held points' rows in the data set that was cut, ascending


def holdout(points: Dataset, share: float, seed: int, *, at_most: int | None = 2000) -> Holdout:
    """Cut `share` of the training points, but no more than `at_most`, for validation.

    All points of one text go the same way: a held text has not been trained on. `points` are those
    collected, without label points. Labels keep their columns.

    A test split does not ask everything that training points say, so held pairs are taken out of the truth
    and may not be predicted either (they join `exclude`, and count neither as a hit nor as a miss):

    - where the points' filter is that of item-to-item data (it holds the pairs of an item with itself), an
      item's own label, and reciprocal pairs: B -> A where A -> B is in `rest`;
    - pairs whose label has no point in `rest`: the labels of these data sets are those that have training
      points, and a model could know such a label from its text alone.

    A held point that this leaves without a target is dropped, as it is from test splits: metrics would count
    it as a miss for every model.
    """
    taken = _drawn(points, _number(len(points), share, at_most), np.random.default_rng(seed))
    rest, held = points[~taken], points[taken]
    exclude = csr_array(excluded_pairs(points, taken) + _without_points(held, rest))
    exclude.eliminate_zeros()
    targets = held.targets - held.targets.multiply(exclude)
    targets.eliminate_zeros()
    held = replace(held, targets=targets, exclude=exclude if exclude.nnz else held.exclude)
    asked = np.flatnonzero(np.diff(held.targets.indptr))
    if not len(asked):
        raise DataError(
            f"of {counted(len(held), 'point')} held for validation, none has a label that can be asked for",
            remedy="hold a larger share, or another seed's",
        )
    return Holdout(rest, held[asked], np.flatnonzero(taken)[asked])


# ---- which points


def _number(points: int, share: float, at_most: int | None) -> int:
    """How many points to hold at most: at least one, and never all."""
    if not 0 < share < 1:
        raise DataError(f"the share of points to hold is {share}, but it must lie between 0 and 1")
    if at_most is not None and at_most < 1:
        raise DataError(f"at most {at_most} points are to be held, but it must be at least 1")
    number = max(1, round(share * points))
    return min(number, points - 1, points if at_most is None else at_most)


def _drawn(points: Dataset, number: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Mark points of whole texts in random order, leaving out a text that has more points than are wanted."""
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
            f" of {counted(len(size), 'text')}",
            remedy="hold a larger share, or collect points with other texts",
        )
    return chosen[text]  # shape: (N,)


# ---- which of their pairs


def _without_points(held: Dataset, rest: Dataset) -> csr_array:
    """H x L: held pairs whose label has no point left."""
    pairs = held.targets.astype(bool)
    pairs.data = rest.label_frequencies[pairs.indices] == 0
    return pairs


def excluded_pairs(points: Dataset, taken: npt.NDArray[np.bool_]) -> csr_array:
    """H x L: what the filter excludes already and, on item-to-item data, own labels and reciprocal pairs."""
    nothing = csr_array((int(taken.sum()), points.num_labels), dtype=bool)
    exclude = nothing if points.exclude is None else points.exclude[taken]
    itself = _itself(points)
    if itself is None:
        return exclude
    of_held, of_rest = itself[taken], itself[~taken]
    carried = csr_array(points.targets[~taken].astype(bool).T)
    # Held items, the rest's points that carry them, and the labels that those points are.
    return csr_array(exclude + of_held + of_held @ carried @ of_rest)


def _itself(points: Dataset) -> csr_array | None:
    """N x L: which labels are the very item that a point is; None where the filter says nothing of items.

    On item-to-item data the filter of training points holds exactly these pairs, and the filter of the test
    split the reciprocal ones too. Identifiers tell items of one name apart; texts serve where they do not.
    """
    if points.exclude is None or points.exclude.nnz == 0:
        return None
    for same in (_same_ids(points), _same_texts(points)):
        if same is not None and 2 * points.exclude.multiply(same).nnz > points.exclude.nnz:
            return same
    return None


def _same_ids(points: Dataset) -> csr_array | None:
    if points.ids is None or points.label_ids is None:
        return None
    return _equal(points.ids, points.label_ids)


def _same_texts(points: Dataset) -> csr_array | None:
    if points.texts is None or points.label_texts is None:
        return None
    of_points, of_labels = text_groups(points.texts, points.label_texts)
    return _equal(of_points.tolist(), of_labels.tolist())


def _equal(of_points: Sequence[Hashable], of_labels: Sequence[Hashable]) -> csr_array:
    """N x L: where the two are equal."""
    numbers = {each: number for number, each in enumerate(dict.fromkeys(of_labels))}
    rows = [row for row, each in enumerate(of_points) if each in numbers]
    groups = [numbers[of_points[row]] for row in rows]
    points = binary_pairs(rows, groups, (len(of_points), len(numbers)))
    labels = binary_pairs(
        [numbers[each] for each in of_labels], np.arange(len(of_labels)), (len(numbers), len(of_labels))
    )
    return csr_array(points @ labels)
