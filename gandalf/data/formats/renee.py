"""Read and write Renee's layout: texts in `trn_X.txt`, `tst_X.txt`, `Y.txt`, and targets in `trn_X_Y.txt`,
`tst_X_Y.txt`."""

from __future__ import annotations

from pathlib import Path

from gandalf.data.dataset import Splits
from gandalf.data.files import find_file
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.xc import read_split_files, write_targets_and_texts
from gandalf.errors import DataError, Findings


def recognise(source: Path) -> bool:
    """Return True if the folder has texts and a sparse matrix of targets."""
    return source.is_dir() and all(find_file(source, [name]) for name in ("trn_X.txt", "trn_X_Y.txt"))


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read the folder; test points are optional."""
    if find_file(source, ["Y.txt", "lbl_X.txt", "lbl.json"]) is None:
        remedy = "add it, with one label text on each line"
        raise DataError("there is no Y.txt", file=source, kind="missing-file", remedy=remedy)
    return read_split_files(source, "renee", findings)


def write(splits: Splits, folder: Path) -> None:
    """Write the layout and the filter files."""
    for _, points in splits.named():
        points.need_texts("Renee's layout")
    write_targets_and_texts(splits, folder)
