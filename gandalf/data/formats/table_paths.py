"""Find the table files of a folder: a file or a folder of shards for each split, and the label file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gandalf.data.files import find_file
from gandalf.data.formats.annif import documents_in
from gandalf.data.formats.frames import TEST, TRAIN, Frame
from gandalf.data.formats.skos import SUFFIXES
from gandalf.data.formats.table_files import is_table, table_names, tables_in
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.origin import RECORD
from gandalf.errors import DataError


@dataclass(frozen=True)
class TablePaths:
    """The files of the splits of a table, in reading order, and the file of label texts."""

    train: tuple[Path | Frame, ...]
    test: tuple[Path | Frame, ...]
    labels: Path | Frame | None


def table_paths(source: Path | Frame, options: TableOptions) -> TablePaths:
    """Return the files of a table, or of a folder with a table."""
    test = () if options.test is None else (options.test,)
    if isinstance(source, Frame) or source.is_file():
        return TablePaths((source,), test, options.labels)
    train = train_files(source)
    if not train:
        raise DataError("there is no train.csv, .tsv, .jsonl or .parquet", file=source, remedy="add it")
    return TablePaths(train, test or _split_files(source, TEST), options.labels or _label_file(source))


def train_files(folder: Path) -> tuple[Path, ...]:
    """Return the training files: a file or a folder of shards named "train", or the only table in the
    folder."""
    named = _split_files(folder, TRAIN)
    if named:
        return named
    others = {_label_file(folder), *_split_files(folder, TEST), folder / "stats.json", folder / RECORD}
    texts = tuple(path for path in documents_in(folder) if path not in others)
    if texts:
        return texts
    tables = [path for path in tables_in(folder) if path not in others]
    return (tables[0],) if len(tables) == 1 else ()


def shards(source: Path) -> tuple[Path, ...]:
    """Return the training shards of a folder, sorted by name; none if it has no folder of shards."""
    if not source.is_dir():
        return ()
    folder = _shard_folder(source, TRAIN)
    return () if folder is None or _single_file(source, TRAIN) is not None else _shards_in(folder)


def _split_files(folder: Path, stems: Sequence[str]) -> tuple[Path, ...]:
    """Return the file with one of these names, or the shards of a folder with one of these names."""
    file, parts = _single_file(folder, stems), _shard_folder(folder, stems)
    if file is not None and parts is not None:
        what = f"is a folder of shards beside the file {file.name}, but only one of them can be read"
        raise DataError(what, remedy="move one away", file=parts)
    if parts is not None:
        return _shards_in(parts)
    return () if file is None else (file,)


def _single_file(folder: Path, stems: Sequence[str]) -> Path | None:
    found = find_file(folder, [name for stem in stems for name in table_names(stem)])
    lines = [
        path for stem in stems if (path := find_file(folder, [f"{stem}.txt"])) is not None and is_table(path)
    ]
    return found or next(iter(lines), None)


def _shard_folder(folder: Path, stems: Sequence[str]) -> Path | None:
    return next((path for stem in stems if _shards_in(path := folder / stem)), None)


def _shards_in(folder: Path) -> tuple[Path, ...]:
    # Names that start with an underscore, such as _SUCCESS, are marks of programs that write shards.
    if not folder.is_dir():
        return ()
    texts = documents_in(folder)
    if texts:
        return texts
    tables = (path for path in folder.iterdir() if is_table(path) and path.name[0] not in "._")
    return tuple(sorted(tables, key=lambda path: path.name))


def _label_file(folder: Path) -> Path | None:
    stems = ("labels", "label", "lbl", "subjects", "vocabulary", "vocab")
    suffixes = (*table_names(""), ".txt", *SUFFIXES)
    return find_file(folder, [*(f"{stem}{suffix}" for stem in stems for suffix in suffixes), "Y.txt"])
