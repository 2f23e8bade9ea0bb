"""Build the label graph of training points by the name of a kind of targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_groups
from gandalf.errors import DataError
from gandalf.graph.cooccurrence import check_threshold, largest_entries
from gandalf.graph.estimates import KINDS
from gandalf.graph.kind import CountablePoints, LabelGraph, PointsInMemory, Vectors

if TYPE_CHECKING:
    TargetName = str  # a name in `KINDS`
else:
    TargetName = Literal[tuple(KINDS)]
SharedText = Literal["own", "pool"]
# Options that only some kinds of targets read, and their nouns in messages.
OWN_OPTIONS = {"strength": "a strength of shrinkage", "teacher": "a teacher"}


@dataclass(frozen=True)
class GraphOptions:
    """Options of the targets of label points.

    targets: a name in `estimates.KINDS`; ratio is the paper's. delta: entries must be strictly greater.
    top_k: entries kept in a row, the diagonal included. scale: factor of the entries off the diagonal.
    strength: strength of shrinkage; None fits it to the data. shared_text: for labels with the same text,
    keep the `own` row of each, as in the paper, or `pool` the finished rows into their mean (which may lie
    below delta). teacher: for teacher targets, the model folder of the teacher.
    """

    targets: TargetName = "ratio"
    delta: float = 0.1
    top_k: int | None = None
    scale: float = 1.0
    strength: float | None = None
    shared_text: SharedText = "own"
    seed: int = 0
    threads: int | None = None
    teacher: str | None = None

    def __post_init__(self) -> None:
        if self.targets not in KINDS:
            raise DataError(
                f"there is no estimate {self.targets!r}", remedy=f"choose from {', '.join(KINDS)}"
            )
        check_threshold(self.delta, self.top_k)
        if not 0 <= self.scale <= 1:
            raise DataError(f"scale is {self.scale}, but it must lie in [0, 1]")
        for name, words in OWN_OPTIONS.items():
            if getattr(self, name) is not None and name not in KINDS[self.targets].options:
                reader = next(each for each, kind in KINDS.items() if name in kind.options)
                what = f"{words} has no effect on {self.targets} targets"
                raise DataError(what, remedy=f"leave it out, or choose {reader} targets")
        if self.shared_text not in SHARED_TEXT:
            what = f"there is no way {self.shared_text!r} to treat labels that share a text"
            raise DataError(what, remedy=f"choose from {', '.join(SHARED_TEXT)}")

    @property
    def needs(self) -> str:
        """Return the data that this kind of targets needs."""
        return KINDS[self.targets].needs


def label_graph(
    points: Dataset, options: GraphOptions | None = None, vectors: Vectors | None = None
) -> LabelGraph:
    """Build the label graph of the original training points D, which must not be augmented.

    Teacher targets need the teacher's `vectors` of the label texts (L x dim).
    """
    options = options or GraphOptions()
    points.need_probabilities()
    source = PointsInMemory(points, options.threads, vectors)
    return _finish_graph(KINDS[options.targets].build(source, options), options, points.label_texts)


def counted_graph(
    points: CountablePoints, options: GraphOptions, label_texts: Sequence[str] | None = None
) -> LabelGraph:
    """Build the label graph of points on a cluster; the kind of targets must need sums or texts only."""
    need_sums(options)
    return _finish_graph(KINDS[options.targets].build(points, options), options, label_texts)


def need_sums(options: GraphOptions) -> None:
    """Raise a DataError if the kind of targets needs more than sums over points."""
    if options.needs not in ("sums", "texts"):
        counted = ", ".join(name for name, kind in KINDS.items() if kind.needs in ("sums", "texts"))
        raise DataError(
            f"{options.targets} targets are not sums over points, so a cluster cannot compute them in parts",
            remedy=f"choose from {counted}, or leave --cluster out",
        )


def _finish_graph(graph: LabelGraph, options: GraphOptions, label_texts: Sequence[str] | None) -> LabelGraph:
    matrix = SHARED_TEXT[options.shared_text](label_texts, _scale_off_diagonal(graph.matrix, options.scale))
    return replace(graph, matrix=_keep_largest(matrix, options.top_k))


def _keep_own_rows(label_texts: Sequence[str] | None, matrix: csr_array) -> csr_array:
    return matrix


def _pool_rows(label_texts: Sequence[str] | None, matrix: csr_array) -> csr_array:
    """Give all labels with one text the same row: the mean of their rows, with each label's diagonal value.

    A model sees the text alone, so it would learn the mean of different rows anyway. The diagonal values are
    kept, because their mean would halve each label's target for its own text.
    """
    if label_texts is None:
        what = "pooling labels that share a text needs label texts, and this data set has none"
        raise DataError(what, remedy="use its raw layout (trn/tst/lbl.json.gz), or add a label-text file")
    (group,) = text_groups(label_texts)
    _, group = np.unique(group, return_inverse=True)
    size = np.bincount(group)
    labels = np.arange(len(group))
    member = csr_array((np.ones(len(group)), (labels, group)), shape=(len(group), len(size)))
    same_text = csr_array(member @ csr_array(member.T))  # pairs of labels with one text, itself included
    mean = csr_array(same_text @ matrix).astype(np.float64)
    mean.data /= np.repeat(size[group], np.diff(mean.indptr))
    same_text.data = matrix.diagonal()[same_text.indices].astype(np.float64)
    return csr_array(mean.maximum(same_text)).astype(np.float32)


def _keep_largest(matrix: csr_array, top_k: int | None) -> csr_array:
    """Keep the `top_k` largest entries of each row; pooled rows may hold more."""
    if top_k is None or np.diff(matrix.indptr).max(initial=0) <= top_k:
        return matrix
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    diagonal_first = np.where(matrix.indices == row, np.inf, matrix.data.astype(np.float64))
    best = largest_entries(row, matrix.indices, diagonal_first, top_k)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[best], minlength=matrix.shape[0]))])
    return csr_array((matrix.data[best], matrix.indices[best], indptr), shape=matrix.shape)


def _scale_off_diagonal(matrix: csr_array, scale: float) -> csr_array:
    """Multiply the entries off the diagonal."""
    if scale == 1.0:
        return matrix
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    scaled = matrix.copy()
    scaled.data = np.where(matrix.indices == row, matrix.data, matrix.data * np.float32(scale))
    scaled.eliminate_zeros()
    return scaled


SHARED_TEXT: dict[SharedText, Callable[[Sequence[str] | None, csr_array], csr_array]] = {
    "own": _keep_own_rows,
    "pool": _pool_rows,
}
