"""Compute on workers the sums over a piece of the points, and finished rows of the label graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.cluster.client import sum_parts
from gandalf.data.sparse_rows import cooccurrence_costs
from gandalf.graph.cooccurrence import PairRule, counts_together, frequencies, graph_rows, least_joint
from gandalf.graph.joint_sums import Floats, LabelRange, RowBlock, by_point_and_label, plan_sums
from gandalf.graph.matched_points import MatchedSums, matched_points, matched_sums

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """Some of the points, in the form that counting needs."""

    points: csr_array  # n x L
    by_label: csr_array  # L x n
    texts: Ints | None = None  # number of each point's text among the label texts; shape: (n,)


@dataclass(frozen=True)
class LabelSums:
    """Sums of each label over points. Sums over parts of the points can be added."""  # shape of each: (L,)

    frequency: Floats  # sum of targets
    points: Ints  # number of points with the label
    costs: Ints  # cost of the label's co-occurrences, see `cooccurrence_costs`

    def __add__(self, other: LabelSums) -> LabelSums:
        return LabelSums(
            self.frequency + other.frequency, self.points + other.points, self.costs + other.costs
        )


@dataclass(frozen=True)
class BlockSums:
    """Joint sums of a block of labels with all labels, and the sums of the labels' matched points."""

    joint: csr_array  # labels of the block x L
    matched: MatchedSums | None = None

    def __add__(self, other: BlockSums) -> BlockSums:
        matched = None if self.matched is None or other.matched is None else self.matched + other.matched
        return BlockSums(csr_array(self.joint + other.joint), matched)


def piece_of(targets: csr_array, texts: Ints | None = None) -> Piece:
    """Return these points as a piece; `texts` are the numbers of their texts among the label texts."""
    return Piece(*by_point_and_label(targets), texts)


def label_sums(piece: Piece) -> LabelSums:
    """Return the sums of every label over the piece."""
    points = np.bincount(piece.points.indices, minlength=piece.points.shape[1])
    return LabelSums(frequencies(piece.points), points, cooccurrence_costs(piece.points))


def frequency_of(sums: LabelSums) -> Floats:
    """Return the sums of targets alone."""
    return sums.frequency


def text_sizes(piece: Piece, number: int) -> Ints:
    """Count the points of the piece with each label text."""  # shape: (number,)
    assert piece.texts is not None, "needs a piece with texts"
    return np.bincount(piece.texts[piece.texts >= 0], minlength=number)


def joint_counts(piece: Piece, labels: Ints, as_present: bool) -> csr_array:
    """Return the joint sums of `labels` with all labels; `as_present` counts soft targets as 1."""
    points = piece.points
    if as_present:
        points = csr_array((np.ones_like(points.data), points.indices, points.indptr), shape=points.shape)
    return counts_together(points, labels)


def matched_point_sums(piece: Piece, labels: Ints, label_texts: Ints) -> MatchedSums:
    """Return the sums of the matched points of these labels."""
    assert piece.texts is not None, "needs a piece with texts"
    return matched_sums(matched_points(piece.texts, label_texts[labels]), piece.points, labels)


def block_sums(piece: Piece, block: LabelRange, dtype: npt.DTypeLike, label_texts: Ints | None) -> BlockSums:
    """Return the joint sums of a block of labels over the piece, by the same kernel as on one machine."""
    _, joint_sums = plan_sums(piece.points, piece.by_label)
    found = joint_sums(block, np.zeros(piece.points.shape[1]))
    joint = _as_matrix(found, piece.points.shape[1], dtype)
    if label_texts is None:
        return BlockSums(joint)
    return BlockSums(joint, matched_point_sums(piece, np.arange(*block), label_texts))


def finished_rows(parts: list[BlockSums], block: LabelRange, frequency: Floats, rule: PairRule) -> RowBlock:
    """Return the rows of the graph for a block, from its sums over all parts of the points."""
    total = sum_parts(parts)
    lengths, columns, values = np.diff(total.joint.indptr), total.joint.indices, total.joint.data
    if total.matched is None:
        row = np.repeat(np.arange(len(lengths)), lengths)
        kept = values > least_joint(rule, frequency)[slice(*block)][row]
        lengths = np.bincount(row[kept], minlength=len(lengths))
        columns, values = columns[kept], values[kept]
    return graph_rows(RowBlock(lengths, columns, values), block, frequency, rule, total.matched)


def _as_matrix(rows: RowBlock, columns: int, dtype: npt.DTypeLike) -> csr_array:
    indptr = np.concatenate([[0], np.cumsum(rows.lengths)])
    wide: Any = np.int32 if indptr[-1] < 2**31 else np.int64
    parts = rows.values.astype(dtype, copy=False), rows.columns.astype(wide, copy=False), indptr.astype(wide)
    matrix = csr_array(parts, shape=(len(rows.lengths), columns))
    matrix.has_canonical_format = True
    return matrix
