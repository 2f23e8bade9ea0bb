"""Read and write PECOS's formats: npz matrices with text files, and lines of `id::weight,id<TAB>text`."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, csr_matrix, save_npz

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import find_file, first_line, read_lines, written
from gandalf.data.formats.assemble import assemble, check_feature_columns, need_features
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.frames import need_file
from gandalf.data.formats.matrix_rows import MatrixRows
from gandalf.data.formats.table_files import is_table
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.texts import Texts, clean, read_texts, write_texts
from gandalf.data.matrix_builder import (
    FEATURE,
    INTEGER,
    LABEL,
    Column,
    MatrixBuilder,
    as_float,
    checked_matrix,
)
from gandalf.data.matrix_files import read_npz
from gandalf.data.sparse_text import rows_as_text
from gandalf.errors import DataError, Findings, argument

_SPLITS = {"trn": ("trn", "train"), "tst": ("tst", "test")}
_LABEL_FEATURES = ("Yf.npz", "X.lbl.npz", "lbl_X.npz", "X_lbl.npz", "lbl.X.npz")
_LABEL_TEXTS = ("Y.txt", "output-items.txt", "output-labels.txt", "labels.txt")
_TEXT_FILES = {
    split: tuple(
        f"{word}{end}.{suffix}" for word, end, suffix in product(words, ("", "-data"), ("txt", "tsv"))
    )
    for split, words in {"trn": ("train", "trn", "training"), "tst": ("test", "tst")}.items()
}
DIGITS = 40  # digits of a label that are read; Python refuses thousands, and 40 are far out of range
_TEXT_LINE = re.compile(r"\s*(\d+(::[^,\t]+)?(,\s*\d+(::[^,\t]+)?)*)?\s*\t")


def recognise(source: Path) -> bool:
    """Return True if the folder has npz targets or text2text files, or the file is a text2text file."""
    if source.is_file():
        match = _TEXT_LINE.match(first_line(source))
        # A line that begins with a tab may be a table with an unnamed column, or a point without labels.
        return match is not None and (match.group(1) is not None or not is_table(source))
    path = find_file(source, _TEXT_FILES["trn"])
    return _matrix_path(source, "Y", "trn") is not None or (path is not None and recognise(path))


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read the matrices or the text2text files."""
    if source.is_file():
        return _read_text(source, need_file(options.test), source.parent, options, findings)
    if _matrix_path(source, "Y", "trn") is not None:
        return _read_matrices(source, findings)
    train = find_file(source, _TEXT_FILES["trn"])
    assert train is not None, "recognise has found it"
    test = need_file(options.test) or find_file(source, _TEXT_FILES["tst"])
    return _read_text(train, test, source, options, findings)


def write_npz(splits: Splits, folder: Path) -> None:
    """Write `X.trn.npz`, `Y.trn.npz` and so on, `Yf.npz` for label features, and the texts there are."""
    _, label_features = need_features(splits.train, "npz")
    for name, points in splits.named("trn", "tst"):
        features, _ = need_features(points, "npz")
        _save(features, folder / f"X.{name}.npz")
        _save(points.targets, folder / f"Y.{name}.npz")
        if points.texts is not None:
            write_texts(points.texts, folder / f"X.{name}.txt")
    if label_features is not None:
        _save(label_features, folder / "Yf.npz")
    if splits.train.label_texts is not None:
        write_texts(splits.train.label_texts, folder / "Y.txt")
    write_filters(splits, folder)


def write_text(splits: Splits, folder: Path) -> None:
    """Write text2text's `train.txt` and `test.txt` with `id::weight`, and `output-items.txt`."""
    _, label_texts = splits.train.need_texts("PECOS's text2text")
    for name, points in splits.named():
        texts, _ = points.need_texts("PECOS's text2text")
        with written(folder / f"{name}.txt") as file:
            for text, (labels, values) in zip(texts, rows_as_text(points.targets), strict=True):
                file.write(",".join(map("::".join, zip(labels, values, strict=True))) + f"\t{clean(text)}\n")
    write_texts(label_texts, folder / "output-items.txt")
    write_filters(splits, folder)


# ---- matrices


def _matrix_path(folder: Path, kind: str, split: str, suffix: str = "npz") -> Path | None:
    names = (
        name
        for word in _SPLITS[split]
        for name in (f"{kind}.{word}", f"{word}_{kind}", f"{kind}_{word}", f"{word}.{kind}")
    )
    return find_file(folder, [f"{name}.{suffix}" for name in names])


def _read_matrices(source: Path, findings: Findings) -> Splits:
    train, test = (_read_split(source, split, findings) for split in _SPLITS)
    assert train is not None, "recognise has seen it"
    labels = MatrixRows(
        _matrix_path(source, "Y", "trn") or source, train.num_labels, findings, are_labels=True
    )
    label_texts = labels.read_texts(find_file(source, _LABEL_TEXTS))
    features = find_file(source, _LABEL_FEATURES)
    label_features = _read_features(features, labels)
    if test is not None and test.num_labels != train.num_labels:
        what = f"the test targets have {test.num_labels} columns, but the training targets {train.num_labels}"
        remedy = "both splits must be written with the same labels"
        raise DataError(what, remedy=remedy, file=source, kind="header-mismatch")
    others = [(label_features, features)]
    others += [] if test is None else [(test.features, _matrix_path(source, "X", "tst"))]
    check_feature_columns(train.features, others, findings)
    train = replace(train, label_texts=label_texts, label_features=label_features)
    test = None if test is None else replace(test, label_texts=label_texts, label_features=label_features)
    return assemble(train, test, source, "pecos", findings)


def _read_split(source: Path, split: str, findings: Findings) -> Dataset | None:
    path = _matrix_path(source, "Y", split)
    if path is None:
        return None
    targets = _read_matrix(path, LABEL, findings)
    rows = MatrixRows(path, targets.shape[0], findings)
    features = _read_features(_matrix_path(source, "X", split), rows)
    return Dataset(targets, rows.read_texts(_matrix_path(source, "X", split, "txt")), features=features)


def _read_features(path: Path | None, rows: MatrixRows) -> csr_array | None:
    return None if path is None else rows.fit_features(_read_matrix(path, FEATURE, rows.findings), path)


def _read_matrix(path: Path, column: Column, findings: Findings) -> csr_array:
    with np.errstate(over="ignore"):  # a value beyond float32 becomes inf, and the check reports it
        return checked_matrix(
            csr_array(read_npz(path, columns=False)).astype(np.float32), column, path, findings
        )


def _save(matrix: csr_array, path: Path) -> None:
    with written(path, "wb") as file:
        # PECOS knows only SciPy's older class. NumPy dates all zip entries 1980, so equal data give equal
        # bytes.
        save_npz(file, csr_matrix(matrix))


# ---- text2text


def _read_text(
    train: Path, test: Path | None, folder: Path, options: TableOptions, findings: Findings
) -> Splits:
    labels = need_file(options.labels) or find_file(folder, _LABEL_TEXTS)
    if labels is None:
        what = f"there is no output-items.txt beside {train.name}, which does not give the number of labels"
        remedy = f"add it, with one label text on each line, or give it with {argument('labels')}"
        raise DataError(what, remedy=remedy, file=folder, kind="missing-file")
    label_texts = read_texts(labels, findings, of_labels=True)
    points = _read_text_points(train, label_texts, findings)
    others = None if test is None else _read_text_points(test, label_texts, findings)
    return assemble(points, others, folder, "pecos", findings)


def _read_text_points(path: Path, label_texts: list[str], findings: Findings) -> Dataset:
    texts, rows = Texts(path, findings), MatrixBuilder(len(label_texts), LABEL, path, findings)
    for line, content in read_lines(path, findings):
        targets, tab, text = content.partition("\t")
        if not tab:
            what = f"there is no tab between labels and text: '{content[:60]}'"
            remedy = "write 'id,id<TAB>text', with nothing before the tab for a point without labels"
            rows.report_line("bad-line", what, remedy, line)
            targets, text = "", content
        texts.add(text, line)
        rows.add(*_labels_and_weights(targets, rows, line), line)
    return Dataset(rows.finish(), texts.cleaned, label_texts)


def _labels_and_weights(targets: str, rows: MatrixBuilder, line: int) -> tuple[list[int], list[float]]:
    """Return the labels and weights of `3::0.5,7`; a label without a weight has weight 1."""
    labels, weights = [], []
    for word in filter(None, map(str.strip, targets.split(","))):
        label, _, weight = word.partition("::")
        try:
            if INTEGER.fullmatch(label) is None:
                raise ValueError("int() would accept 1_0")
            pair = int(label[:DIGITS]), as_float(weight or 1)
        except ValueError:
            what = f"'{word[:40]}' is neither a label number nor number::weight"
            remedy = "put commas between labels; the number of a label is its line in the label file, from 0"
            rows.report_line("bad-number", what, remedy, line)
            continue
        labels.append(pair[0])
        weights.append(pair[1])
    return labels, weights
