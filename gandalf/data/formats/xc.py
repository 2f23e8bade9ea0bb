"""Read and write the sparse layouts of the Extreme Classification Repository: `trn_X_Xf.txt` and others, or
the old single file `train.txt`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import find, first_line
from gandalf.data.formats.assemble import assemble, check_feature_columns, fit_features, need_features
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.raw import read_titles
from gandalf.data.formats.table import TableOptions
from gandalf.data.formats.texts import fit_texts, read_texts, report_alike, write_texts
from gandalf.data.matrix_builder import FEATURE, LABEL
from gandalf.data.sentences import counted
from gandalf.data.sparse_text import header_of, read_combined, read_sparse, write_sparse
from gandalf.errors import DataError, Findings

_LABEL_FEATURES = ("lbl_X_Xf.txt", "Yf.txt")
_LABEL_TEXTS = ("Y.txt", "lbl_X.txt")
_POINT = re.compile(r"(\d+(,\d+)*)?\s+\d+:\d\S*(\s|$)")


@dataclass(frozen=True)
class _Labels:
    """Texts, ids and features of the labels, if there are any."""

    texts: list[str] | None
    ids: list[str] | None
    features: csr_array | None


@dataclass(frozen=True)
class _Beside:
    """Find texts, ids and features for the rows of a matrix in the files beside it."""

    folder: Path
    says: Path  # the file that gives the number of rows
    rows: int
    findings: Findings
    of_labels: bool = False

    def texts(self, names: tuple[str, ...], records: str) -> tuple[list[str] | None, list[str] | None]:
        """Return texts and ids, from a file with a text on each line, or from JSON lines."""
        path = find(self.folder, names)
        if path is not None:
            return self._fitted(read_texts(path, self.findings, of_labels=self.of_labels), path), None
        path = find(self.folder, [records])
        if path is None:
            return None, None
        texts, ids = read_titles(path, self.findings, of_labels=self.of_labels)
        return self._fitted(texts, path), ids if ids is None or len(ids) == self.rows else None

    def features(self, names: tuple[str, ...]) -> csr_array | None:
        """Return the feature matrix."""
        path = find(self.folder, names)
        if path is None:
            return None
        return fit_features(
            read_sparse(path, FEATURE, self.findings), self.rows, self.says, path, self.findings
        )

    def _fitted(self, texts: list[str], path: Path) -> list[str]:
        return fit_texts(texts, self.rows, self.says, path, self.findings)


def recognise(source: Path) -> bool:
    """Return True if the folder has sparse files, or the file is an old single file."""
    if source.is_file():
        return _is_single(source)
    if find(source, ["trn_X_Y.txt"]) is not None:
        return find(source, ["trn_X_Xf.txt"]) is not None or find(source, ["trn_X.txt"]) is None
    single = find(source, ["train.txt"])
    return single is not None and _is_single(single)


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read either layout, with the texts beside it, if there are any."""
    if source.is_file():
        return _read_combined(source, None, source, findings)
    if find(source, ["trn_X_Y.txt"]) is not None:
        return read_split_files(source, "sparse", findings)
    single = find(source, ["train.txt"])
    assert single is not None, "recognise has found it"
    return _read_combined(single, find(source, ["test.txt"]), source, findings)


def read_split_files(source: Path, layout: str, findings: Findings) -> Splits:
    """Read `{trn,tst}_X_Y.txt` and the features or texts beside them."""
    path = _need(source, "trn_X_Y.txt")
    targets = read_sparse(path, LABEL, findings)
    labels = _read_labels(_Beside(source, path, targets.shape[1], findings, of_labels=True))
    train = _read_points("trn", targets, labels, _Beside(source, path, targets.shape[0], findings))
    check_feature_columns(train.features, [(labels.features, find(source, _LABEL_FEATURES))], findings)
    test_path = find(source, ["tst_X_Y.txt"])
    if test_path is None:
        return assemble(train, None, source, layout, findings)
    targets = read_sparse(test_path, LABEL, findings)
    _same_labels(train.num_labels, targets.shape[1], test_path)
    test = _read_points("tst", targets, labels, _Beside(source, test_path, targets.shape[0], findings))
    check_feature_columns(train.features, [(test.features, find(source, ["tst_X_Xf.txt"]))], findings)
    return assemble(train, test, source, layout, findings)


def write(splits: Splits, folder: Path) -> None:
    """Write the split files, which need features, and the texts, if there are any."""
    _, label_features = need_features(splits.train, "sparse")
    folder.mkdir(parents=True, exist_ok=True)
    for name, points in (("trn", splits.train), ("tst", splits.test)):
        if points is not None:
            features, _ = need_features(points, "sparse")
            write_sparse(features, folder / f"{name}_X_Xf.txt")
    if label_features is not None:
        write_sparse(label_features, folder / "lbl_X_Xf.txt")
    write_targets_and_texts(splits, folder)


def write_targets_and_texts(splits: Splits, folder: Path) -> None:
    """Write `{trn,tst}_X_Y.txt`, the texts, if there are any, and the filter files."""
    for name, points in (("trn", splits.train), ("tst", splits.test)):
        if points is not None:
            write_sparse(points.targets, folder / f"{name}_X_Y.txt")
            if points.texts is not None:
                write_texts(points.texts, folder / f"{name}_X.txt")
    if splits.train.label_texts is not None:
        write_texts(splits.train.label_texts, folder / "Y.txt")
    write_filters(splits.train, splits.test, folder)


def _is_single(path: Path) -> bool:
    # A file that begins with a point counts, too; reading it will report the missing header.
    return header_of(path, 3) is not None or bool(_POINT.match(first_line(path)))


def _read_labels(beside: _Beside) -> _Labels:
    texts, ids = beside.texts(_LABEL_TEXTS, "lbl.json")
    if ids is not None:  # for the other kind of file, `read_texts` has reported them
        report_alike(texts or [], beside.findings, find(beside.folder, ["lbl.json"]))
    return _Labels(texts, ids, beside.features(_LABEL_FEATURES))


def _read_points(split: str, targets: csr_array, labels: _Labels, beside: _Beside) -> Dataset:
    texts, ids = beside.texts((f"{split}_X.txt",), f"{split}.json")
    features = beside.features((f"{split}_X_Xf.txt",))
    return Dataset(targets, texts, labels.texts, None, ids, labels.ids, features, labels.features)


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
    path = find(source, [name])
    if path is None:
        raise DataError(f"there is no {name}", file=source, kind="missing-file", remedy="add it")
    return path


def _same_labels(of_train: int, of_test: int, path: Path) -> None:
    if of_train != of_test:
        raise DataError(
            f"the header says {counted(of_test, 'label')}, but the training file says {of_train}",
            remedy="both splits must be written with the same labels",
            file=path,
            line=1,
            kind="header-mismatch",
        )
