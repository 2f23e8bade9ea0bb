"""Read and write the sparse layouts of the Extreme Classification Repository: `trn_X_Xf.txt` and others, or
the old single file `train.txt`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import find_file, first_line
from gandalf.data.formats.assemble import assemble, check_feature_columns, need_features
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.matrix_rows import MatrixRows
from gandalf.data.formats.raw import read_titles
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.texts import report_similar_texts, write_texts
from gandalf.data.matrix_builder import FEATURE, LABEL
from gandalf.data.sentences import counted
from gandalf.data.sparse_text import header_of, read_combined, read_sparse, write_sparse
from gandalf.errors import DataError, Findings

_LABEL_FEATURES = ("lbl_X_Xf.txt", "Yf.txt")
_LABEL_TEXTS = ("Y.txt", "lbl_X.txt")
_POINT = re.compile(r"(\d+(,\d+)*)?\s+\d+:\d\S*(\s|$)")


def recognise(source: Path) -> bool:
    """Return True if the folder has sparse files, or the file is an old single file."""
    if source.is_file():
        return _is_single(source)
    if find_file(source, ["trn_X_Y.txt"]) is not None:
        return find_file(source, ["trn_X_Xf.txt"]) is not None or find_file(source, ["trn_X.txt"]) is None
    single = find_file(source, ["train.txt"])
    return single is not None and _is_single(single)


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read either layout, with the texts beside it, if there are any."""
    if source.is_file():
        return _read_combined(source, None, source, findings)
    if find_file(source, ["trn_X_Y.txt"]) is not None:
        return read_split_files(source, "sparse", findings)
    single = find_file(source, ["train.txt"])
    assert single is not None, "recognise has found it"
    return _read_combined(single, find_file(source, ["test.txt"]), source, findings)


def read_split_files(source: Path, layout: str, findings: Findings) -> Splits:
    """Read `{trn,tst}_X_Y.txt` and the features or texts beside them."""
    path = _need(source, "trn_X_Y.txt")
    targets = read_sparse(path, LABEL, findings)
    labels = _read_labels(source, MatrixRows(path, targets.shape[1], findings, are_labels=True))
    train = _read_points(source, "trn", targets, labels, MatrixRows(path, targets.shape[0], findings))
    check_feature_columns(
        train.features, [(labels.label_features, find_file(source, _LABEL_FEATURES))], findings
    )
    test_path = find_file(source, ["tst_X_Y.txt"])
    if test_path is None:
        return assemble(train, None, source, layout, findings)
    targets = read_sparse(test_path, LABEL, findings)
    _same_labels(train.num_labels, targets.shape[1], test_path)
    test = _read_points(source, "tst", targets, labels, MatrixRows(test_path, targets.shape[0], findings))
    check_feature_columns(train.features, [(test.features, find_file(source, ["tst_X_Xf.txt"]))], findings)
    return assemble(train, test, source, layout, findings)


def write(splits: Splits, folder: Path) -> None:
    """Write the split files, which need features, and the texts, if there are any."""
    _, label_features = need_features(splits.train, "sparse")
    for name, points in splits.named("trn", "tst"):
        features, _ = need_features(points, "sparse")
        write_sparse(features, folder / f"{name}_X_Xf.txt")
    if label_features is not None:
        write_sparse(label_features, folder / "lbl_X_Xf.txt")
    write_targets_and_texts(splits, folder)


def write_targets_and_texts(splits: Splits, folder: Path) -> None:
    """Write `{trn,tst}_X_Y.txt`, the texts, if there are any, and the filter files."""
    for name, points in splits.named("trn", "tst"):
        write_sparse(points.targets, folder / f"{name}_X_Y.txt")
        if points.texts is not None:
            write_texts(points.texts, folder / f"{name}_X.txt")
    if splits.train.label_texts is not None:
        write_texts(splits.train.label_texts, folder / "Y.txt")
    write_filters(splits, folder)


def _is_single(path: Path) -> bool:
    # A file that begins with a point counts, too; reading it will report the missing header.
    return header_of(path, 3) is not None or bool(_POINT.match(first_line(path)))


def _read_labels(source: Path, rows: MatrixRows) -> Dataset:
    """Return a data set without points that holds texts, ids and features of the labels."""
    texts, ids = _read_texts(source, rows, _LABEL_TEXTS, "lbl.json")
    if ids is not None:  # for the other kind of file, `read_texts` has reported them
        report_similar_texts(texts or [], rows.findings, find_file(source, ["lbl.json"]))
    features = _read_features(source, rows, _LABEL_FEATURES)
    return Dataset(csr_array((0, rows.number)), label_texts=texts, label_ids=ids, label_features=features)


def _read_points(source: Path, split: str, targets: csr_array, labels: Dataset, rows: MatrixRows) -> Dataset:
    texts, ids = _read_texts(source, rows, (f"{split}_X.txt",), f"{split}.json")
    features = _read_features(source, rows, (f"{split}_X_Xf.txt",))
    return replace(labels, targets=targets, texts=texts, ids=ids, features=features)


def _read_texts(
    source: Path, rows: MatrixRows, names: tuple[str, ...], records: str
) -> tuple[list[str] | None, list[str] | None]:
    """Return texts and ids of the rows, from a file with a text on each line, or from JSON lines."""
    texts = rows.read_texts(find_file(source, names))
    path = None if texts is not None else find_file(source, [records])
    if path is None:
        return texts, None
    texts, ids = read_titles(path, rows.findings, of_labels=rows.are_labels)
    return rows.fit_texts(texts, path), ids if ids is None or len(ids) == rows.number else None


def _read_features(source: Path, rows: MatrixRows, names: tuple[str, ...]) -> csr_array | None:
    path = find_file(source, names)
    return None if path is None else rows.fit_features(read_sparse(path, FEATURE, rows.findings), path)


def _read_combined(train: Path, test: Path | None, source: Path, findings: Findings) -> Splits:
    """Read old single files, which hold neither texts nor label features."""
    features, targets = read_combined(train, findings)
    points = Dataset(targets, features=features)
    if test is None:
        return assemble(points, None, source, "sparse", findings)
    features, targets = read_combined(test, findings)
    _same_labels(points.num_labels, targets.shape[1], test)
    check_feature_columns(points.features, [(features, test)], findings)
    return assemble(points, Dataset(targets, features=features), source, "sparse", findings)


def _need(source: Path, name: str) -> Path:
    path = find_file(source, [name])
    if path is None:
        raise DataError(f"there is no {name}", file=source, kind="missing-file", remedy="add it")
    return path


def _same_labels(of_train: int, of_test: int, path: Path) -> None:
    if of_train != of_test:
        what = f"the header says {counted(of_test, 'label')}, but the training file says {of_train}"
        remedy = "both splits must be written with the same labels"
        raise DataError(what, remedy=remedy, file=path, line=1, kind="header-mismatch")
