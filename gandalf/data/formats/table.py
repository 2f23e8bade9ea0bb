"""What people have: a table with a column of texts and one of labels, and perhaps a file of label texts."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.entries import LABEL, SparseRows
from gandalf.data.files import find, written
from gandalf.data.formats.assemble import assemble
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.label_cells import guess_separator, key_of, number_of, split_cell
from gandalf.data.formats.label_names import LabelNames, read_label_file
from gandalf.data.formats.table_files import (
    Row,
    Table,
    find_column,
    is_table,
    open_table,
    table_names,
    tables_in,
)
from gandalf.data.formats.texts import Texts, write_texts
from gandalf.data.origin import RECORD
from gandalf.data.sparse_text import rows_as_text
from gandalf.errors import DataError, Findings

NEEDS = "one CSV, TSV, JSONL or Parquet file, or train.* with perhaps test.* and labels.*"

TEXT_COLUMNS = ("text", "title", "query", "input", "sentence", "question", "name", "content")
LABEL_COLUMNS = (
    *("labels", "label", "targets", "target", "categories", "category", "tags", "tag"),
    *("target_ind", "classes", "class", "topics"),
)
WEIGHT_COLUMNS = ("scores", "relevance", "weights", "target_rel", "clicks", "score", "weight")
ID_COLUMNS = ("uid", "id")

_PEEK_ROWS = 1000  # looked at to guess the separator between labels


@dataclass(frozen=True)
class TableOptions:
    """Columns and files of a table; what is None is guessed from the header and the folder."""

    text_column: str | None = None
    label_column: str | None = None
    weight_column: str | None = None
    separator: str | None = None  # between the labels of one cell; " " is any white space
    labels: Path | None = None  # label texts
    test: Path | None = None

    @property
    def names_columns(self) -> bool:
        """Whether anything was said that only a table can have."""
        said = (self.text_column, self.label_column, self.weight_column, self.separator)
        return any(value is not None for value in said)


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


@dataclass(frozen=True)
class _Columns:
    """Where a table keeps what."""

    text: str
    label: str
    weight: str | None
    id: str | None


def recognise(source: Path) -> bool:
    """Whether the file is a table, or the folder has one to train on."""
    return is_table(source) or (source.is_dir() and _train_file(source) is not None)


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read the table; without label texts, a label's name is its text, numbered as it first appears."""
    train, test, labels = _paths(source, options)
    names = LabelNames() if labels is None else read_label_file(labels, findings)
    table = open_table(train, findings)
    table, separator = _with_separator(table, train, options, findings)
    options = replace(options, separator=separator)
    points = _read_points(train, table, names, options, findings)
    others = None
    if test is not None:
        # Lists in the training file say nothing of how another file separates its labels.
        table, separator = _with_separator(open_table(test, findings), test, options, findings)
        others = _read_points(test, table, names, replace(options, separator=separator), findings)
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


# ---- files and columns


def _paths(source: Path, options: TableOptions) -> tuple[Path, Path | None, Path | None]:
    if source.is_file():
        return source, options.test, options.labels
    train = _train_file(source)
    if train is None:
        raise DataError("there is no train.csv, .tsv, .jsonl or .parquet", file=source, remedy="add it")
    test = options.test or find(source, [*table_names("test"), *table_names("tst")])
    return train, test, options.labels or _label_file(source)


def _label_file(folder: Path) -> Path | None:
    names = [name for stem in ("labels", "label", "lbl") for name in (*table_names(stem), f"{stem}.txt")]
    return find(folder, [*names, "Y.txt"])


def _train_file(folder: Path) -> Path | None:
    train = find(folder, [*table_names("train"), *table_names("trn")])
    if train is not None:
        return train
    test = find(folder, [*table_names("test"), *table_names("tst")])
    others = {_label_file(folder), test, folder / "stats.json", folder / RECORD}
    tables = [path for path in tables_in(folder) if path not in others]
    return tables[0] if len(tables) == 1 else None


def _columns(table: Table, path: Path, options: TableOptions) -> _Columns:
    def column(said: str | None, guesses: Sequence[str]) -> str | None:
        return find_column(table, (said,) if said is not None else guesses)

    text = column(options.text_column, TEXT_COLUMNS)
    label = column(options.label_column, LABEL_COLUMNS)
    weight = column(options.weight_column, WEIGHT_COLUMNS)
    missing = (
        ("text", text, options.text_column),
        ("label", label, options.label_column),
        ("weight", weight, options.weight_column),
    )
    for role, found, said in missing:
        if found is None and (role != "weight" or said is not None):
            called = f"column '{said}'" if said is not None else f"{role} column known by its name"
            raise DataError(
                f"there is no {called}; the columns are: {', '.join(table.columns) or 'none'}",
                remedy=f"name it with --{role}-column",
                file=path,
                kind="missing-column",
            )
    assert text is not None and label is not None, "checked above"
    return _Columns(text, label, weight, find_column(table, ID_COLUMNS))


def _with_separator(
    table: Table, path: Path, options: TableOptions, findings: Findings
) -> tuple[Table, str | None]:
    """The table, unread, and the separator between labels: the one given, or guessed from the first rows."""
    if options.separator is not None:
        return table, options.separator
    label = _columns(table, path, options).label
    peeked = list(itertools.islice(table.rows, _PEEK_ROWS))
    separator = guess_separator(row.get(label) for _, row in peeked)
    if separator is not None:
        what = f"labels in column '{label}' are taken to be separated by '{separator}'"
        findings.note("guessed-separator", what, remedy="say so with --separator if not", file=path)
    return table._replace(rows=itertools.chain(peeked, table.rows)), separator


# ---- rows


def _read_points(
    path: Path, table: Table, names: LabelNames, options: TableOptions, findings: Findings
) -> _Points:
    columns = _columns(table, path, options)
    if columns.weight is not None and options.weight_column is None:
        what = f"column '{columns.weight}' is taken for the labels' weights"
        findings.note("guessed-weights", what, remedy="rename it if it is not", file=path)
    points = _Points(
        Texts(path, findings), None if columns.id is None else [], SparseRows(None, LABEL, path, findings)
    )
    for line, row in table.rows:
        text = row.get(columns.text)
        points.texts.add("" if text is None else str(text), line)
        if points.ids is not None and columns.id is not None:
            points.ids.append(key_of(row.get(columns.id)))
        _add_targets(points.rows, row, columns, options.separator, names, line)
    return points


def _add_targets(
    rows: SparseRows, row: Row, columns: _Columns, separator: str | None, names: LabelNames, line: int
) -> None:
    items = [item for item in split_cell(row.get(columns.label), separator) if item not in (None, "")]
    found = [names.resolve(item) for item in items]
    weights: list[Any] = [weight for _, weight in found]
    cell = None if columns.weight is None else row.get(columns.weight)
    if cell is not None:
        weights = split_cell(cell, separator)
    for item, (number, _) in zip(items, found, strict=True):
        if number is None:
            _report_unknown(item, rows, names, line)
    values = _values(weights, len(found), rows, line)
    known = [number for number, _ in found if number is not None]
    if len(known) < len(found):
        values = [value for value, (number, _) in zip(values, found, strict=True) if number is not None]
    rows.add(known, values, line)


def _report_unknown(item: object, rows: SparseRows, names: LabelNames, line: int) -> None:
    if names.file is None or isinstance(item, dict | list):
        what, remedy = f"'{str(item)[:60]}' is no label", "list names or numbers"
    else:
        what, remedy = f"label '{str(item)[:60]}' is not in {names.file}", "add it there, or correct it here"
    rows.findings.error("unknown-label", what, remedy=remedy, file=rows.file, line=line)


def _values(weights: list[Any], expected: int, rows: SparseRows, line: int) -> list[float]:
    """The weights as numbers; what is none, or one too many, is reported and taken for 1."""
    if len(weights) != expected:
        what = f"the row has {expected} labels and {len(weights)} weights"
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
