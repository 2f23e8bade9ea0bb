"""Open a data set for `graph` and `augment`, in this process or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scipy.sparse import csr_array

from gandalf.augment.label_points import Keep, augment
from gandalf.cli.extras import needs_extra
from gandalf.cli.options import Source, print_findings
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import ExportOptions, export
from gandalf.data.harden import harden_points
from gandalf.errors import Findings, Problem
from gandalf.graph.kind import LabelGraph, PointsInMemory
from gandalf.graph.label_graph import GraphOptions, counted_graph, need_sums
from gandalf.graph.neighbours import Labelled, Neighbourhood, neighbourhood
from gandalf.graph.postulate import recommended_targets
from gandalf.runs.graph import any_label_graph

if TYPE_CHECKING:
    from distributed import Client

Record = Callable[[int], Mapping[str, Any]]  # number of written points -> record of how they were made


class OpenedSet(Protocol):
    """A data set with what `graph` and `augment` need, in this process or on a cluster."""

    @property
    def name(self) -> str:
        """Return the name of the data set."""

    @property
    def num_points(self) -> int:
        """Return the number of training points."""

    @property
    def labelled(self) -> Labelled:
        """Return the labels with their texts, ids and frequencies."""

    def label_graph(self, options: GraphOptions) -> LabelGraph:
        """Return the label graph of the training points."""

    def recommended(self, delta: float, seed: int) -> tuple[str, str]:
        """Return the recommended kind of targets, and the reason."""

    def neighbourhood(self, matrix: csr_array, label: int) -> Neighbourhood:
        """Return the label's row of the graph with the counts of its entries."""

    def write(
        self, matrix: csr_array, keep: Keep, out: Path, writing: ExportOptions, record: Record
    ) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Write the augmented set; return the record of how it was made, and the changes."""


@dataclass(frozen=True)
class LocalSet:
    """A data set in the memory of this process, with the function that counts its label graph."""

    splits: Splits
    build_graph: Callable[[Dataset, GraphOptions], LabelGraph]

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return self.splits.name

    @property
    def num_points(self) -> int:
        """Return the number of training points."""
        return len(self.splits.train)

    @property
    def labelled(self) -> Labelled:
        """Return the labels with their texts, ids and frequencies."""
        return self.splits.train

    def label_graph(self, options: GraphOptions) -> LabelGraph:
        """Return the label graph of the training points."""
        with needs_extra("a teacher"):
            return self.build_graph(self.splits.train, options)

    def recommended(self, delta: float, seed: int) -> tuple[str, str]:
        """Return the recommended kind of targets, and the reason."""
        return recommended_targets(PointsInMemory(self.splits.train), delta=delta, seed=seed)

    def neighbourhood(self, matrix: csr_array, label: int) -> Neighbourhood:
        """Return the label's row of the graph with the counts of its entries."""
        return neighbourhood(self.splits.train, matrix, label)

    def write(
        self, matrix: csr_array, keep: Keep, out: Path, writing: ExportOptions, record: Record
    ) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Write the augmented set; return the record of how it was made, and the changes."""
        train = augment(self.splits.train, matrix, keep)
        if writing.harden is not None:  # before points are counted, since copies add points
            train = harden_points(train, writing.harden, seed=writing.seed)
        made = dict(record(len(train)))
        notes = export(
            replace(self.splits, train=train),
            out,
            **asdict(writing),
            origin=(made, self.splits.train.label_frequencies),
        )
        return made, notes


@contextmanager
def open_set(
    source: Source, options: GraphOptions, cluster: str | None, writing: ExportOptions | None = None
) -> Iterator[OpenedSet]:
    """Open the data set in this process or, if a cluster is named, on the cluster.

    Options that a cluster does not support are refused before any work.
    """
    if cluster is None:
        yield LocalSet(source.load_original(), any_label_graph)
        return
    with needs_extra("--cluster", extra="cluster"):
        from gandalf.cluster.client import connected
        from gandalf.cluster.sharded import need_streamed, sharded_set
        from gandalf.cluster.shards import find_shards
    need_sums(options)
    findings = Findings()
    shards = find_shards(source.data, source.options, findings)
    if shards is not None:
        need_streamed(writing or ExportOptions())
    with connected(cluster) as client:
        if shards is None:
            yield LocalSet(source.load_original(), partial(_graph_on_cluster, client))
            return
        found = sharded_set(client, shards, findings, with_texts=options.needs == "texts")
        print_findings(findings.problems)
        yield found


def _graph_on_cluster(client: Client, points: Dataset, options: GraphOptions) -> LabelGraph:
    from gandalf.cluster.points import points_in_memory

    pieces = points_in_memory(client, points, with_texts=options.needs == "texts")
    return counted_graph(pieces, options, points.label_texts)
