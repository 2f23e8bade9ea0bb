"""Read a folder of shards on workers, one shard at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, vstack

from gandalf.cluster.sums import Ints, Piece, piece_of
from gandalf.data.dataset import Dataset
from gandalf.data.formats.assemble import divide_targets
from gandalf.data.formats.frames import Frame, need_file
from gandalf.data.formats.label_names import LabelNames, read_label_file
from gandalf.data.formats.table import need_same_ids, read_table_file
from gandalf.data.formats.table_columns import Columns, find_columns
from gandalf.data.formats.table_files import open_table
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.table_paths import shards, table_paths
from gandalf.data.load import bundled
from gandalf.data.matching import label_groups, text_key
from gandalf.data.origin import read_origin
from gandalf.errors import DataError, Findings, Problem, argument

NO_TEXT = np.iinfo(np.int64).min  # number of a text that is no label text; empty label texts have -1, -2, ...


@dataclass(frozen=True)
class ShardReader:
    """The options for reading a shard. Each task carries a copy, so it does not list the shards."""

    options: TableOptions
    columns: Columns  # chosen by the first shard
    labels: Path

    def read(self, path: Path, findings: Findings) -> Dataset:
        """Return the points of one shard, with unscaled targets."""
        names = label_names(self.labels)
        part = read_table_file(path, names, self.options, findings, self.columns)
        need_same_ids(self.columns, part.columns, path)
        return part.dataset(names)


@dataclass(frozen=True)
class Shards:
    """The paths of the shards of a data set, and their reader."""

    source: Path
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    reader: ShardReader


@dataclass(frozen=True)
class ShardFacts:
    """Facts of a shard that the client needs."""

    points: int
    largest: float  # largest target
    graded: bool  # True if a target is not 1
    findings: tuple[Problem, ...]


@dataclass(frozen=True)
class ReadShard:
    """The targets of a shard, on the worker that read it."""

    targets: csr_array
    texts: Ints | None
    facts: ShardFacts


def find_shards(source: str, options: TableOptions, findings: Findings) -> Shards | None:
    """Return the shards of a data set, or None if it has no shards and one machine must read it."""
    folder = Path(source)
    if source in bundled() or not shards(folder) or read_origin(folder) is not None:
        return None
    if options.label_choice is not None:
        what = f"{argument(options.label_choice)} chooses labels, but a cluster uses the whole label file"
        raise DataError(what, remedy="write a file of the chosen labels, or leave --cluster out")
    # Workers may have another working directory, so paths must be absolute.
    test, labels = (path and path.resolve() for path in map(need_file, (options.test, options.labels)))
    options = replace(options, test=test, labels=labels)
    paths = table_paths(folder.resolve(), options)
    label_file = need_file(paths.labels)
    if label_file is None:
        raise DataError(
            "has no file of labels, but workers cannot number labels in the order of appearance",
            remedy="add labels.txt, with a text on each line, or labels.csv with the columns id and text",
            file=source,
        )
    _, columns = find_columns(
        open_table(paths.train[0], findings), options, findings, known=label_names(label_file).numbers
    )
    return Shards(
        folder.resolve(), _files(paths.train), _files(paths.test), ShardReader(options, columns, label_file)
    )


def _files(sources: Sequence[Path | Frame]) -> tuple[Path, ...]:
    return tuple(path for path in map(need_file, sources) if path is not None)


def read_shard(reader: ShardReader, path: Path, with_texts: bool) -> ReadShard:
    """Read the targets of a shard and, with `with_texts`, the number of each point's label text.

    Runs on a worker.
    """
    findings = Findings()
    points = reader.read(path, findings)
    data = points.targets.data
    facts = ShardFacts(
        len(points),
        float(data.max(initial=0.0)),
        bool((data != 1).any()),
        tuple(findings.problems),
    )
    texts = None
    if with_texts and points.texts is not None:
        numbers = _numbers_of_texts(*_file_version(reader.labels))
        found = (numbers.get(text_key(text), NO_TEXT) for text in points.texts)
        texts = np.fromiter(found, dtype=np.int64, count=len(points))
    return ReadShard(points.targets, texts, facts)


def facts_of(read: ReadShard) -> ShardFacts:
    """Return the facts of a shard that the client needs."""
    return read.facts


def piece_of_shards(read: Sequence[ReadShard], largest: float) -> Piece:
    """Return consecutive shards as one piece, with targets on the scale of all shards."""
    targets = csr_array(vstack([one.targets for one in read], format="csr"))
    texts = [one.texts for one in read if one.texts is not None]
    scaled = targets if largest <= 1 else divide_targets(targets, largest)
    return piece_of(Dataset(scaled).targets, np.concatenate(texts) if texts else None)


def label_names(path: Path) -> LabelNames:
    """Return the labels of a file; each process reads it once."""
    return _label_names(*_file_version(path))


def _file_version(path: Path) -> tuple[Path, int, int]:
    facts = path.stat()
    return path, facts.st_size, facts.st_mtime_ns


@lru_cache(maxsize=1)
def _label_names(path: Path, size: int, changed: int) -> LabelNames:
    return read_label_file(path, Findings())


@lru_cache(maxsize=1)
def _numbers_of_texts(path: Path, size: int, changed: int) -> dict[str, int]:
    """Return the number of each label text, as `label_groups` assigns it without other texts."""
    labels = _label_names(path, size, changed).no_points()
    texts = labels.all_label_texts
    of_labels, of_texts = label_groups(labels, texts)
    last = of_labels.max(initial=-1)
    return {
        text_key(text): int(number)
        for text, number in zip(texts, of_texts, strict=True)
        if 0 <= number <= last
    }
