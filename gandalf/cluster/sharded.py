"""Compute the label graph of a folder of shards on a cluster, and write the augmented set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from scipy.sparse import csr_array, vstack

from gandalf.augment.label_points import KEEPS, Keep, PointTexts, point_texts, points_of_texts
from gandalf.augment.sampling import sample_labels
from gandalf.cluster.client import results_in_order, submit, threads_of
from gandalf.cluster.points import ClusterPoints, points_of_shards
from gandalf.cluster.shards import ShardFacts, ShardReader, Shards
from gandalf.cluster.sums import Ints
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import ExportOptions
from gandalf.data.files import new_folder, written
from gandalf.data.formats import raw
from gandalf.data.formats.assemble import divide_targets
from gandalf.data.formats.filters import with_filters, write_filters
from gandalf.data.load import set_name
from gandalf.data.origin import write_origin
from gandalf.errors import DataError, Findings, Problem
from gandalf.graph.kind import LabelGraph
from gandalf.graph.label_graph import GraphOptions, counted_graph
from gandalf.graph.neighbours import Neighbourhood, neighbourhood_of_counts
from gandalf.graph.postulate import recommended_targets
from gandalf.progress import track

LABEL_POINTS = 1 << 16  # label points written at once
Record = Callable[[int], Mapping[str, Any]]  # returns the record for the number of points written


@dataclass(frozen=True)
class ShardedSet:
    """A data set too large for one machine: workers hold its targets, and its texts stay in the shards."""

    client: Client
    shards: Shards
    labelled: ClusterPoints
    train_facts: Sequence[ShardFacts]  # one for each shard of training points
    test_facts: Sequence[ShardFacts]  # one for each shard of test points

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return set_name(self.shards.source)

    @property
    def num_points(self) -> int:
        """Return the number of training points."""
        return sum(one.points for one in self.train_facts)

    @property
    def largest(self) -> float:
        """Return the largest target of both splits; if it is above 1, all targets are divided by it."""
        return max((one.largest for one in (*self.train_facts, *self.test_facts)), default=0.0)

    def label_graph(self, options: GraphOptions) -> LabelGraph:
        """Return the label graph, computed by the workers."""
        return counted_graph(self.labelled, options, self.labelled.label_texts)

    def recommended(self, delta: float, seed: int) -> tuple[str, str]:
        """Return the kind of targets to use, and the reason."""
        return recommended_targets(self.labelled, delta=delta, seed=seed)

    def neighbourhood(self, matrix: csr_array, label: int) -> Neighbourhood:
        """Return the label's row of the graph with the counts of its entries."""
        together = self.labelled.counts(np.array([label]))
        return neighbourhood_of_counts(
            self.labelled, matrix, label, together, self.labelled.label_sums.frequency
        )

    def write(
        self, matrix: csr_array, keep: Keep, out: Path, writing: ExportOptions, record: Record
    ) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Write the augmented set in the raw layout; the files equal those of a single machine byte for
        byte."""
        need_streamed(writing)
        generator = np.random.default_rng(keep.seed)
        labels = sample_labels(self.labelled.label_frequencies, keep.share, keep.order, generator)
        texts = point_texts(self._no_points(), labels)
        both = self.num_points + len(texts)
        rows = None if keep.keep == "both" else KEEPS[keep.keep](self.num_points, len(texts), generator)
        made = dict(record(both if rows is None else len(rows)))
        with new_folder(out, overwrite=writing.overwrite) as folder:
            raw.write_labels(self._no_points(), folder)
            with written(folder / raw.TRAIN_FILE) as file:
                file.writelines(self._lines(self.shards.train, self.train_facts, rows))
                file.writelines(self._label_lines(matrix, texts, rows))
            if self.test_facts:
                with written(folder / raw.TEST_FILE) as file:
                    file.writelines(self._lines(self.shards.test, self.test_facts, None))
            self._write_filters(folder, len(texts), rows)
            write_origin(folder, made, self.labelled.label_frequencies)
        return made, ()

    def _lines(self, paths: Sequence[Path], facts: Sequence[ShardFacts], rows: Ints | None) -> Iterator[str]:
        """Yield the lines of the shards, rendered by workers: of all points, or of `rows`."""
        ends = np.cumsum([0, *(one.points for one in facts)]).tolist()
        # The position of each shard's first written row; it is the id of a point without an id.
        first = ends if rows is None else np.searchsorted(rows, ends).tolist()
        tasks = (
            submit(
                self.client,
                shard_lines,
                self.shards.reader,
                path,
                self.largest,
                None if rows is None else rows[slice(*places)] - start,
                places[0],
            )
            for path, start, places in zip(paths, ends, pairwise(first), strict=False)
        )
        yield from track(results_in_order(tasks, threads_of(self.client) + 2), "points", len(paths))

    def _no_points(self) -> Dataset:
        """Return the labels in a Dataset without points, with ids if the shards have ids."""
        labels = self.labelled
        return Dataset(
            csr_array((0, labels.num_labels)),
            texts=[],
            label_texts=labels.label_texts,
            ids=None if self.shards.reader.columns.id is None else [],
            label_ids=labels.label_ids,
            other_label_texts=labels.other_label_texts,
        )

    def _label_lines(self, matrix: csr_array, texts: PointTexts, rows: Ints | None) -> Iterator[str]:
        """Yield the lines of the label points; `rows`, if given, selects some."""
        first = self.num_points
        if rows is not None:
            first = int(np.searchsorted(rows, self.num_points))
            texts = texts[rows[first:] - self.num_points]
        nothing = self._no_points()
        for start in range(0, len(texts), LABEL_POINTS):
            some = texts[np.arange(start, min(start + LABEL_POINTS, len(texts)))]
            points = points_of_texts(nothing, matrix, some)
            yield from raw.point_lines(points, first + start)

    def _write_filters(self, folder: Path, label_points: int, rows: Ints | None) -> None:
        """Write the filter files for the written rows."""
        number = self.labelled.num_labels
        train = Dataset(csr_array((self.num_points, number)))
        test = (
            Dataset(csr_array((sum(one.points for one in self.test_facts), number)))
            if self.test_facts
            else None
        )
        train, test = with_filters(train, test, self.shards.source, Findings())
        if train.exclude is not None:
            pairs = csr_array(vstack([train.exclude, csr_array((label_points, number), dtype=bool)]))
            pairs = pairs if rows is None else pairs[rows]
            train = Dataset(csr_array(pairs.shape), exclude=pairs)
        write_filters(Splits(train, test), folder)


def need_streamed(writing: ExportOptions) -> None:
    """Raise a DataError for a format or option that cannot be written shard by shard."""
    what = f"the format {writing.format}" if writing.format != "raw" else "--harden"
    if writing.format != "raw" or writing.harden is not None:
        raise DataError(
            f"{what} needs the whole set in one memory, but a cluster writes shard by shard",
            remedy="write the raw format as it is, or leave --cluster out",
        )


def sharded_set(client: Client, shards: Shards, findings: Findings, *, with_texts: bool) -> ShardedSet:
    """Let the workers read the shards, and return the data set."""
    points, train, test = points_of_shards(client, shards, findings, with_texts=with_texts)
    return ShardedSet(client, shards, points, train, test)


def shard_lines(reader: ShardReader, path: Path, largest: float, rows: Ints | None, first: int) -> str:
    """Return the points of a shard, or some rows of it, as lines of the raw layout. Runs on a worker."""
    points = reader.read(path, Findings())
    if largest > 1:
        points = replace(points, targets=divide_targets(points.targets, largest))
    return "".join(raw.point_lines(points if rows is None else points[rows], first))
