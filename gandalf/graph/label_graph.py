"""From training points to the label graph, by the name of an estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array

from gandalf.data.dataset import Dataset
from gandalf.data.matching import text_groups
from gandalf.errors import DataError
from gandalf.graph.calibration import fit_calibrated
from gandalf.graph.cooccurrence import Estimate, Keep, check_threshold, largest_entries
from gandalf.graph.counted import Counted, InMemory
from gandalf.graph.estimates import Glas, Ratio, Shrunk
from gandalf.graph.matched_pairs import Matches
from gandalf.graph.random_walk import walk_graph
from gandalf.graph.teacher import TeacherOptions, teacher_targets

TargetName = Literal["ratio", "shrunk", "calibrated", "glas", "walk", "self", "teacher"]
SharedText = Literal["own", "pool"]
Vectors = npt.NDArray[np.floating[Any]]

# Below this a calibration would fit noise: a few hundred pairs of a few dozen texts.
MIN_TEXTS, MIN_PAIRS = 50, 500
ECLARE_TOP = 10  # entries that ECLARE keeps of a row


@dataclass(frozen=True)
class GraphOptions:
    """How the targets of label points are made.

    targets: ratio (the paper), shrunk, calibrated, glas, walk, self or teacher. delta: entries must be
    strictly greater. top_k: entries kept in a row, itself among them. scale: multiplies targets off the
    diagonal. strength: of shrinkage; fitted to the data where it is None. shared_text: labels with one and
    the same text each keep their `own` row, as in the paper, or `pool` finished rows into one mean (whose
    values may lie below delta). teacher: folder of the model whose encoder teaches, for teacher targets.
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
        if self.targets not in get_args(TargetName):
            names = ", ".join(get_args(TargetName))
            raise DataError(f"there is no estimate {self.targets!r}", remedy=f"choose from {names}")
        check_threshold(self.delta, self.top_k)
        if not 0 <= self.scale <= 1:
            raise DataError(f"scale is {self.scale}, but targets can only be scaled by a number in [0, 1]")
        if self.strength is not None and self.targets not in ("shrunk", "calibrated"):
            raise DataError(
                f"a strength of shrinkage says nothing about {self.targets} targets",
                remedy="leave it out, or choose shrunk targets",
            )
        if self.teacher is not None and self.targets != "teacher":
            raise DataError(
                f"a teacher says nothing about {self.targets} targets",
                remedy="leave it out, or choose teacher targets",
            )
        if self.shared_text not in SHARED_TEXT:
            raise DataError(
                f"there is no way {self.shared_text!r} to treat labels that share a text",
                remedy=f"choose from {', '.join(SHARED_TEXT)}",
            )


@dataclass(frozen=True)
class LabelGraph:
    """The graph (L x L, row j = targets of label j's text), the estimate behind it and what was fitted."""

    matrix: csr_array
    estimate: str
    details: dict[str, float | str] = field(default_factory=dict)


def label_graph(
    points: Dataset, options: GraphOptions | None = None, vectors: Vectors | None = None
) -> LabelGraph:
    """Build the label graph of the training points. Give it D, never an augmented set.

    Teacher targets are made of the teacher's `vectors` of the label texts (L x dim); no others need any.
    """
    options = options or GraphOptions()
    points.need_probabilities()
    if options.targets == "teacher":
        graph = _teacher(points, options, vectors)
    elif options.targets == "walk":
        graph = _walk(points, options)
    else:
        return counted_graph(InMemory(points, options.threads), options, points.label_texts)
    return _finished(graph, options, points.label_texts)


def counted_graph(
    points: Counted, options: GraphOptions, label_texts: Sequence[str] | None = None
) -> LabelGraph:
    """The same of points wherever they are, by an estimate that is made of sums over them."""
    need_sums(options)
    return _finished(BUILDERS[options.targets](points, options), options, label_texts)


def need_sums(options: GraphOptions) -> None:
    """Refuse targets that are not made of sums over points."""
    if options.targets not in BUILDERS:
        raise DataError(
            f"{options.targets} targets are not sums over points, so a cluster cannot count them in parts",
            remedy=f"choose from {', '.join(BUILDERS)}, or leave --cluster out",
        )


def _finished(graph: LabelGraph, options: GraphOptions, label_texts: Sequence[str] | None) -> LabelGraph:
    matrix = SHARED_TEXT[options.shared_text](label_texts, _scaled(graph.matrix, options.scale))
    return replace(graph, matrix=_cut(matrix, options.top_k))


def too_few_to_calibrate(matches: Matches) -> str:
    """Why a calibrated estimate cannot be fitted, or nothing if it can."""
    if matches.texts < MIN_TEXTS:
        return (
            f"only {matches.texts} label texts are also training texts, and a calibration needs {MIN_TEXTS}"
        )
    if len(matches.pairs) < MIN_PAIRS:
        return (
            f"labels whose text is a training text make only {len(matches.pairs)} pairs that occur together, "
            f"and a calibration needs {MIN_PAIRS}"
        )
    return ""


def _from_estimate(
    name: str,
    estimate: Estimate,
    points: Counted,
    options: GraphOptions,
    details: dict[str, float | str],
    matches: Matches | None = None,
) -> LabelGraph:
    keep = Keep(estimate, options.delta, options.top_k)
    return LabelGraph(points.graph(keep, matches), name, details)


def _ratio(points: Counted, options: GraphOptions) -> LabelGraph:
    return _from_estimate("ratio", Ratio(), points, options, {})


def _glas(points: Counted, options: GraphOptions) -> LabelGraph:
    return _from_estimate("glas", Glas(), points, options, {})


def _shrunk(points: Counted, options: GraphOptions) -> LabelGraph:
    if options.strength is not None:
        given = Shrunk(options.strength)
        return _from_estimate("shrunk", given, points, options, {"strength": given.strength})
    fitted = points.shrunk(options.seed)
    details: dict[str, float | str] = {
        "strength": fitted.strength,
        "strength_fitted_on_pairs": fitted.fitted_on,
    }
    return _from_estimate("shrunk", fitted, points, options, details)


def _calibrated(points: Counted, options: GraphOptions) -> LabelGraph:
    if not points.has_texts:
        return _fall_back(points, options, "the data set has no texts to match labels with points")
    matches = points.matches(options.seed)
    why = too_few_to_calibrate(matches)
    if why:
        return _fall_back(points, options, why)
    details: dict[str, float | str] = {"matched_labels": matches.labels, "pairs": len(matches.pairs)}
    estimate = fit_calibrated(matches.pairs)
    # The fit has never seen a label's own points in its counts, so it must not meet them here.
    return _from_estimate("calibrated", estimate, points, options, details, matches)


def _fall_back(points: Counted, options: GraphOptions, why: str) -> LabelGraph:
    graph = _shrunk(points, options)
    return replace(graph, details={**graph.details, "fallback": f"shrunk instead of calibrated: {why}"})


def _walk(points: Dataset, options: GraphOptions) -> LabelGraph:
    top_k = ECLARE_TOP if options.top_k is None else options.top_k
    matrix = walk_graph(points.targets, seed=options.seed, delta=options.delta, top_k=top_k)
    return LabelGraph(matrix, "walk")


def _self(points: Counted, options: GraphOptions) -> LabelGraph:
    return LabelGraph(csr_array(eye_array(points.num_labels, dtype=np.float32, format="csr")), "self")


def _teacher(points: Dataset, options: GraphOptions, vectors: Vectors | None) -> LabelGraph:
    if vectors is None or len(vectors) != points.num_labels:
        needed, found = points.num_labels, 0 if vectors is None else len(vectors)
        what = f"targets of a teacher need its vectors of {needed:,} label texts, not of {found:,}"
        raise DataError(what, remedy="give them as `vectors`")
    hard = csr_array(eye_array(points.num_labels, dtype=np.float32, format="csr"))  # as LEVER's
    return LabelGraph(teacher_targets(vectors, hard, TeacherOptions(delta=options.delta)), "teacher")


def _own(label_texts: Sequence[str] | None, matrix: csr_array) -> csr_array:
    return matrix


def _pooled(label_texts: Sequence[str] | None, matrix: csr_array) -> csr_array:
    """Give all labels of one text the same row: the mean of theirs, and their own target for each of them.

    A model sees the text alone, so rows that contradict each other teach it their mean anyway; but the mean
    would also halve what each label says of itself, and that is not meant.
    """
    if label_texts is None:
        raise DataError(
            "pooling labels that share a text needs label texts, and this data set has none",
            remedy="use its raw layout (trn/tst/lbl.json.gz), or add a label-text file",
        )
    (group,) = text_groups(label_texts)
    _, group = np.unique(group, return_inverse=True)
    size = np.bincount(group)
    labels = np.arange(len(group))
    member = csr_array((np.ones(len(group)), (labels, group)), shape=(len(group), len(size)))
    mean = csr_array(member @ csr_array(member.T) @ matrix).astype(np.float64)
    mean.data /= np.repeat(size[group], np.diff(mean.indptr))
    together = csr_array(member @ csr_array(member.T))  # pairs of labels with one text, itself included
    together.data = matrix.diagonal()[together.indices].astype(np.float64)
    return csr_array(mean.maximum(together)).astype(np.float32)


def _cut(matrix: csr_array, top_k: int | None) -> csr_array:
    """At most so many entries in a row: pooled rows may hold more than each had."""
    if top_k is None or np.diff(matrix.indptr).max(initial=0) <= top_k:
        return matrix
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    itself_first = np.where(matrix.indices == row, np.inf, matrix.data.astype(np.float64))
    best = largest_entries(row, matrix.indices, itself_first, top_k)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[best], minlength=matrix.shape[0]))])
    return csr_array((matrix.data[best], matrix.indices[best], indptr), shape=matrix.shape)


def _scaled(matrix: csr_array, scale: float) -> csr_array:
    """Multiply what is off the diagonal."""
    if scale == 1.0:
        return matrix
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    scaled = matrix.copy()
    scaled.data = np.where(matrix.indices == row, matrix.data, matrix.data * np.float32(scale))
    scaled.eliminate_zeros()
    return scaled


SHARED_TEXT: dict[SharedText, Callable[[Sequence[str] | None, csr_array], csr_array]] = {
    "own": _own,
    "pool": _pooled,
}

# Of sums over points; a walk goes from point to point, and a teacher looks at label texts alone.
BUILDERS: dict[TargetName, Callable[[Counted, GraphOptions], LabelGraph]] = {
    "ratio": _ratio,
    "shrunk": _shrunk,
    "calibrated": _calibrated,
    "glas": _glas,
    "self": _self,
}
