"""Hold training points in pieces on the workers of a cluster, and compute the label graph there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from distributed import Client, Future
from scipy.sparse import csr_array

from gandalf.cluster import sums
from gandalf.cluster.client import identity, results, results_in_order, submit, threads_of, tree_sum
from gandalf.cluster.shards import (
    NO_TEXT,
    ShardFacts,
    Shards,
    facts_of,
    label_names,
    piece_of_shards,
    read_shard,
)
from gandalf.cluster.spool import spooled
from gandalf.cluster.sums import Ints, LabelSums
from gandalf.data.dataset import Dataset
from gandalf.data.formats.assemble import need_points, note_scale
from gandalf.data.matching import label_groups, text_groups
from gandalf.errors import Findings
from gandalf.graph.cooccurrence import PairRule
from gandalf.graph.estimates.shrunk import Shrunk, fit_strength, labels_to_fit
from gandalf.graph.joint_sums import EXACT, LabelRange, RowBlock, cut_blocks
from gandalf.graph.matched_pairs import MatchedLabels, Matches
from gandalf.progress import meter

# Products of one block of labels; a worker then needs about 200 MB for the block.
TASK_PRODUCTS = 8_000_000
PIECES = 2  # pieces for each thread of the cluster, if this process has read the set
MOST_PIECES = 256  # pieces of shards; there is a task for each piece and block, at a few milliseconds each


@dataclass(frozen=True)
class ClusterPoints:
    """Points on a cluster, as estimates need them, and facts of their labels."""

    client: Client
    pieces: Sequence[Future]  # their results are `sums.Piece`
    label_texts: Sequence[str] | None
    label_ids: Sequence[str] | None
    other_label_texts: Sequence[tuple[int, str]] | None
    text_numbers: Ints | None  # numbers of the label texts, if labels are matched to points
    label_sums: LabelSums
    frequency: Future  # sums of targets, on the cluster
    sum_dtype: npt.DTypeLike  # type in which joint sums are exact
    block: int = TASK_PRODUCTS

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return len(self.label_sums.points)

    @property
    def has_texts(self) -> bool:
        """Return True if points and labels have texts by which they can be matched."""
        return self.text_numbers is not None

    @property
    def label_frequencies(self) -> Ints:
        """Return the number of points with each label."""
        return self.label_sums.points

    def counts(self, labels: Ints, as_present: bool = False) -> csr_array:
        """Return the joint sums of `labels` (rows) with all labels."""
        parts = [submit(self.client, sums.joint_counts, piece, labels, as_present) for piece in self.pieces]
        found: csr_array = tree_sum(self.client, parts).result()
        return found

    def shrunk(self, seed: int) -> Shrunk:
        """Fit the shrunk estimate: choose the strength that best predicts held-out co-occurrences."""
        frequency = self.label_sums.points.astype(np.float64)
        labels = labels_to_fit(self.label_sums.costs, frequency, seed)
        return fit_strength(self.counts(labels, as_present=True), labels, frequency)

    def matches(self, seed: int) -> Matches:
        """Match labels to points by text; return the pairs that can be observed on them."""
        assert self.text_numbers is not None, "needs points with texts"
        number = int(self.text_numbers.max(initial=0)) + 1
        sizes = [submit(self.client, sums.text_sizes, piece, number) for piece in self.pieces]
        matched = MatchedLabels(self.text_numbers, tree_sum(self.client, sizes).result())
        labels = matched.sample(self.label_sums.costs, seed)
        texts = submit(self.client, identity, self.text_numbers)
        parts = [submit(self.client, sums.matched_point_sums, piece, labels, texts) for piece in self.pieces]
        matched_sums = tree_sum(self.client, parts).result()
        return matched.observe(labels, self.counts(labels), matched_sums, self.label_sums.frequency)

    def graph(self, rule: PairRule, matches: Matches | None = None) -> csr_array:
        """Return the label graph; given `matches`, leave matched points out of each label's counts."""
        rule_on_workers = submit(self.client, identity, rule)
        texts = None if matches is None else submit(self.client, identity, self.text_numbers)
        blocks = cut_blocks(self.label_sums.costs, self.block)
        futures = (self._rows_of_block(block, rule_on_workers, texts) for block in blocks)
        return spooled(self._with_progress(futures, blocks), self.num_labels)

    def _rows_of_block(self, block: LabelRange, rule: Future, texts: Future | None) -> Future:
        """Submit the rows of one block: sum the pieces' joint sums in a tree, then apply the threshold."""
        parts = [
            submit(self.client, sums.block_sums, piece, block, self.sum_dtype, texts) for piece in self.pieces
        ]
        total = [tree_sum(self.client, parts)]
        return submit(self.client, sums.finished_rows, total, block, self.frequency, rule)

    def _with_progress(self, futures: Iterator[Future], blocks: Sequence[LabelRange]) -> Iterator[RowBlock]:
        """Yield the rows of the blocks in their order, with a bar that advances by the costs of a block."""
        costs = self.label_sums.costs
        window = threads_of(self.client) + 2
        with meter("label graph", float(costs.sum())) as bar:
            for block, rows in zip(blocks, results_in_order(futures, window), strict=True):
                bar.advance(float(costs[slice(*block)].sum()))
                yield rows


def points_in_memory(
    client: Client,
    points: Dataset,
    *,
    with_texts: bool,
    pieces: int | None = None,
    block: int = TASK_PRODUCTS,
) -> ClusterPoints:
    """Cut points that this process has read into pieces, and send them to the workers."""
    points.need_probabilities()
    number = min(pieces or PIECES * threads_of(client), max(len(points), 1))
    cuts = list(pairwise(np.linspace(0, len(points), number + 1).astype(np.int64).tolist()))
    of_points = text_numbers = None
    if with_texts and points.texts is not None and points.label_texts is not None:
        text_numbers, of_points = label_groups(points, points.texts)
        of_points = np.where(of_points > text_numbers.max(initial=-1), NO_TEXT, of_points)
    futures = [
        submit(
            client,
            sums.piece_of,
            points.targets[start:end],
            None if of_points is None else of_points[start:end],
        )
        for start, end in cuts
    ]
    graded = bool((points.targets.data != 1).any())
    return _with_label_sums(client, futures, len(points), graded, points, text_numbers, block)


def points_of_shards(
    client: Client, shards: Shards, findings: Findings, *, with_texts: bool, block: int = TASK_PRODUCTS
) -> tuple[ClusterPoints, Sequence[ShardFacts], Sequence[ShardFacts]]:
    """Let the workers read the shards; return the points, and the facts of each training and test shard."""
    reader = shards.reader
    names = label_names(reader.labels)
    train = [submit(client, read_shard, reader, path, with_texts) for path in shards.train]
    test = [submit(client, read_shard, reader, path, False) for path in shards.test]
    facts = results(client, [submit(client, facts_of, shard) for shard in (*train, *test)], "shards")
    train_facts, test_facts = facts[: len(train)], facts[len(train) :]
    findings.problems.extend(problem for shard in facts for problem in shard.findings)
    largest = max((shard.largest for shard in facts), default=0.0)
    number = sum(shard.points for shard in train_facts)
    need_points(number, len(names.texts), shards.source, findings)
    if largest > 1:
        note_scale(largest, shards.source, findings)
    per_piece = -(-len(train) // MOST_PIECES)  # shards in a piece
    groups = [train[at : at + per_piece] for at in range(0, len(train), per_piece)]
    pieces = [submit(client, piece_of_shards, group, largest) for group in groups]
    graded = any(shard.graded for shard in train_facts)
    text_numbers = text_groups(names.texts)[0] if with_texts else None
    points = _with_label_sums(client, pieces, number, graded, names.no_points(), text_numbers, block)
    return points, train_facts, test_facts


def _with_label_sums(
    client: Client,
    pieces: Sequence[Future],
    num_points: int,
    graded: bool,
    labels: Dataset,
    text_numbers: Ints | None,
    block: int,
) -> ClusterPoints:
    """Sum each label over the pieces, and return the points with these sums."""
    total = tree_sum(client, [submit(client, sums.label_sums, piece) for piece in pieces])
    sum_dtype = np.float64 if graded or num_points >= EXACT else np.float32
    frequency = submit(client, sums.frequency_of, total)
    texts = (labels.label_texts, labels.label_ids, labels.other_label_texts)
    return ClusterPoints(client, pieces, *texts, text_numbers, total.result(), frequency, sum_dtype, block)
