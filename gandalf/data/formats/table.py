"""What people have: a table with a column of texts and one of labels, and perhaps a file of label texts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.entries import LABEL, SparseRows
from gandalf.data.files import find, written
from gandalf.data.formats.assemble import assemble
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.label_cells import key_of, number_of, split_cell, split_labels
from gandalf.data.formats.label_names import LabelNames, read_label_file
from gandalf.data.formats.table_columns import Columns, TableOptions, settle_columns
from gandalf.data.formats.table_files import (
    Row,
    Table,
    is_table,
    open_table,
    table_names,
    tables_in,
)
from gandalf.data.formats.texts import Texts, write_texts
from gandalf.data.origin import RECORD
from gandalf.data.sentences import counted
from gandalf.data.sparse_text import rows_as_text
from gandalf.errors import DataError, Findings

__all__ = ["TableOptions", "read", "recognise", "train_file", "write"]


@dataclass(frozen=True)
class _Points:
    """Points of one file, before the number of labels is known."""

    texts: Texts
    ids: list[str] | None
    rows: SparseRows

    def dataset(self, names: LabelNames) -> Dataset:
        return Dataset(
            self.rows.finish(len(names.texts)), self.texts.found, names.texts, None, self.ids, names.ids
        )


def recognise(source: Path) -> bool:
    """Whether the file is a table, or the folder has one to train on."""
    return is_table(source) or (source.is_dir() and train_file(source) is not None)


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read the table; without label texts, a label's name is its text, numbered as it first appears."""
    train, test, labels = _paths(source, options)
    names = LabelNames() if labels is None else read_label_file(labels, findings)
    table, columns = settle_columns(open_table(train, findings), options, findings)
    points = _read_points(table, names, columns, findings)
    others = None
    if test is not None:
        table, columns = settle_columns(open_table(test, findings), options, findings, like=columns)
        others = _read_points(table, names, columns, findings)
    names.report(train, findings)
    return assemble(
        points.dataset(names), None if others is None else others.dataset(names), source, "table", findings
    )


def write(splits: Splits, folder: Path, suffix: str = ".csv") -> None:
    """Write `train`, `test` (.csv or .jsonl), the label texts and the filter files."""
    _, label_texts = splits.train.need_texts("a table")
    folder.mkdir(parents=True, exist_ok=True)
    ids = splits.train.label_ids
    named = ids is not None and len(set(ids)) == len(ids)  # labels of one id could not be told apart
    if ids is not None and named:
        _write_label_table(ids, label_texts, folder / "labels.csv")
    else:
        write_texts(label_texts, folder / "labels.txt")
    for name, points in (("train", splits.train), ("test", splits.test)):
        if points is not None:
            _WRITERS[suffix](points, folder / f"{name}{suffix}", ids if named else None)
    write_filters(splits.train, splits.test, folder)


# ---- files


def _paths(source: Path, options: TableOptions) -> tuple[Path, Path | None, Path | None]:
    if source.is_file():
        return source, options.test, options.labels
    train = train_file(source)
    if train is None:
        raise DataError("there is no train.csv, .tsv, .jsonl or .parquet", file=source, remedy="add it")
    test = options.test or find(source, [*table_names("test"), *table_names("tst")])
    return train, test, options.labels or _label_file(source)


def _label_file(folder: Path) -> Path | None:
    names = [name for stem in ("labels", "label", "lbl") for name in (*table_names(stem), f"{stem}.txt")]
    return find(folder, [*names, "Y.txt"])


def train_file(folder: Path) -> Path | None:
    """The table to train on: called so, or the only one that is nothing else."""
    train = find(folder, [*table_names("train"), *table_names("trn")])
    if train is not None:
        return train
    test = find(folder, [*table_names("test"), *table_names("tst")])
    others = {_label_file(folder), test, folder / "stats.json", folder / RECORD}
    tables = [path for path in tables_in(folder) if path not in others]
    return tables[0] if len(tables) == 1 else None


# ---- rows


def _read_points(table: Table, names: LabelNames, columns: Columns, findings: Findings) -> _Points:
    path = table.path
    points = _Points(
        Texts(path, findings), None if columns.id is None else [], SparseRows(None, LABEL, path, findings)
    )
    zeros = []  # lines
    for line, row in table.rows:
        points.texts.add_cell(row.get(columns.text), line)
        if points.ids is not None and columns.id is not None:
            points.ids.append(key_of(row.get(columns.id)))
        values = _add_targets(points.rows, row, columns, names, line)
        zeros += [line] * values.count(0)
    if zeros:
        what = f"{counted(len(zeros), 'label is', 'labels are')} left out of a row for a weight of 0"
        remedy = "give a weight above 0 to keep a label"
        findings.note("zero-weight", what, remedy=remedy, file=path, line=zeros[0])
    return points


def _add_targets(rows: SparseRows, row: Row, columns: Columns, names: LabelNames, line: int) -> list[float]:
    """Add the targets of one row, and return their weights."""
    items = split_labels(row.get(columns.label), columns.separator)
    found = [names.resolve(item) for item in items]
    weights: list[Any] = [weight for _, weight in found]
    cell = None if columns.weight is None else row.get(columns.weight)
    if cell is not None:
        weights = split_cell(cell, columns.separator)
    for item, (number, _) in zip(items, found, strict=True):
        if number is None:
            _report_unknown(item, rows, names, line)
    values = _values(weights, len(found), rows, line)
    known = [number for number, _ in found if number is not None]
    if len(known) < len(found):
        values = [value for value, (number, _) in zip(values, found, strict=True) if number is not None]
    rows.add(known, values, line)
    return values


def _report_unknown(item: object, rows: SparseRows, names: LabelNames, line: int) -> None:
    if names.file is None or isinstance(item, dict | list | bytes):
        what, remedy = f"'{str(item)[:60]}' is no label", "list names or numbers"
    else:
        what, remedy = f"label '{str(item)[:60]}' is not in {names.file}", "add it there, or correct it here"
    rows.findings.error("unknown-label", what, remedy=remedy, file=rows.file, line=line)


def _values(weights: list[Any], expected: int, rows: SparseRows, line: int) -> list[float]:
    """The weights as numbers; what is none, or one too many, is reported and taken for 1."""
    if len(weights) != expected:
        what = f"the row has {counted(expected, 'label')} and {counted(len(weights), 'weight')}"
        remedy = "give one weight for each label"
        rows.findings.error("length-mismatch", what, remedy=remedy, file=rows.file, line=line)
        weights = [1.0] * expected
    values = []
    for weight in weights:
        value = number_of(weight)
        if value is None:
            what = f"the weight '{str(weight)[:40]}' is no number"
            rows.findings.error("bad-number", what, remedy="write a number", file=rows.file, line=line)
        values.append(1.0 if value is None else value)
    return values


# ---- writing


def _write_label_table(ids: Sequence[str], texts: Sequence[str], path: Path) -> None:
    with written(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["id", "text"])
        rows.writerows(zip(ids, texts, strict=True))


def _listed(points: Dataset, label_ids: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Labels and values of each point as JSON lists."""
    names = None if label_ids is None else [json.dumps(name, ensure_ascii=False) for name in label_ids]
    for labels, values in rows_as_text(points.targets):
        shown = labels if names is None else [names[int(label)] for label in labels]
        yield f"[{', '.join(shown)}]", f"[{', '.join(values)}]"


def _write_csv(points: Dataset, path: Path, label_ids: Sequence[str] | None) -> None:
    texts, _ = points.need_texts("a table")
    with written(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*([] if points.ids is None else ["id"]), "text", "labels", "scores"])
        for row, lists in enumerate(_listed(points, label_ids)):
            rows.writerow([*([] if points.ids is None else [points.ids[row]]), texts[row], *lists])


def _write_json_lines(points: Dataset, path: Path, label_ids: Sequence[str] | None) -> None:
    texts, _ = points.need_texts("a table")
    with written(path) as file:
        for row, (labels, values) in enumerate(_listed(points, label_ids)):
            record = ({} if points.ids is None else {"id": points.ids[row]}) | {"text": texts[row]}
            known = json.dumps(record, ensure_ascii=False)[:-1]
            file.write(f'{known}, "labels": {labels}, "scores": {values}}}\n')


_WRITERS = {".csv": _write_csv, ".jsonl": _write_json_lines}
