"""Read and write tables: a column of texts, a column of labels, and perhaps a file of label texts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.sparse import csr_array, vstack

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import written
from gandalf.data.formats.assemble import assemble
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.frames import Frame, name_in_messages
from gandalf.data.formats.label_cells import as_identifier, parse_number, split_cell, split_labels
from gandalf.data.formats.label_names import LabelNames, read_label_file
from gandalf.data.formats.opened_table import OpenedTable, Row
from gandalf.data.formats.table_columns import Columns, find_columns
from gandalf.data.formats.table_files import is_table, open_table
from gandalf.data.formats.table_options import TableOptions, refuse_label_choice
from gandalf.data.formats.table_paths import table_paths, train_files
from gandalf.data.formats.texts import Texts, other_texts_of, write_texts
from gandalf.data.matrix_builder import LABEL, MatrixBuilder
from gandalf.data.sentences import counted
from gandalf.data.sparse_text import rows_as_text
from gandalf.errors import DataError, Findings


@dataclass(frozen=True)
class FilePoints:
    """The points of one file, before the number of labels is known."""

    columns: Columns
    texts: Texts
    ids: list[str] | None
    rows: MatrixBuilder

    def dataset(self, names: LabelNames) -> Dataset:
        """Return the points with all labels."""
        return Dataset(
            self.rows.finish(len(names.texts)),
            self.texts.cleaned,
            names.texts,
            ids=self.ids,
            label_ids=names.ids,
            other_label_texts=names.others,
        )


def _joined_files(parts: Sequence[FilePoints], names: LabelNames) -> Dataset:
    """Return the points of all files of a split, in their order."""
    first = parts[0].dataset(names)
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        need_same_ids(parts[0].columns, part.columns, part.rows.file)
    others = [part.rows.finish(len(names.texts)) for part in parts[1:]]
    return replace(
        first,
        targets=csr_array(vstack([first.targets, *others], format="csr")),
        texts=[text for part in parts for text in part.texts.cleaned],
        ids=None if first.ids is None else [name for part in parts for name in part.ids or ()],
    )


def need_same_ids(first: Columns, other: Columns, path: Path) -> None:
    """Raise a DataError unless both this shard and the first one have ids, or neither has."""
    if (first.id is None) == (other.id is None):
        return
    what = "has no column of ids" if other.id is None else f"has a column of ids, '{other.id}'"
    remedy = "write the same columns into every shard"
    raise DataError(f"{what}, unlike the first shard", remedy=remedy, file=path, kind="missing-column")


def recognise(source: Path) -> bool:
    """Return True if the file is a table, or the folder has a table of training points."""
    return is_table(source) or (source.is_dir() and bool(train_files(source)))


def read(source: Path | Frame, findings: Findings, options: TableOptions) -> Splits:
    """Read the table; without a label file, names are the label texts, numbered by first appearance."""
    paths, place = table_paths(source, options), name_in_messages(source)
    if paths.labels is None:
        refuse_label_choice(options, place)
    names = LabelNames() if paths.labels is None else read_label_file(paths.labels, findings, options)
    first = read_table_file(paths.train[0], names, options, findings)
    columns = first.columns
    train = [first, *(read_table_file(path, names, options, findings, columns) for path in paths.train[1:])]
    test = [read_table_file(path, names, options, findings, columns) for path in paths.test]
    names.report(name_in_messages(paths.train[0]), findings)
    splits = assemble(
        _joined_files(train, names), _joined_files(test, names) if test else None, place, "table", findings
    )
    return replace(splits, text_column=columns.text)


def read_table_file(
    path: Path | Frame,
    names: LabelNames,
    options: TableOptions,
    findings: Findings,
    first_columns: Columns | None = None,
) -> FilePoints:
    """Read one file of a split; other files must follow `first_columns`, those of the first file."""
    table, columns = find_columns(open_table(path, findings), options, findings, first_columns, names.numbers)
    return _read_points(table, names, columns, findings)


def write(splits: Splits, folder: Path, suffix: str = ".csv") -> None:
    """Write `train`, `test` (.csv or .jsonl), the label texts and the filter files."""
    _, label_texts = splits.train.need_texts("a table")
    ids = splits.train.label_ids
    named = ids is not None and len(set(ids)) == len(ids)  # only different ids identify labels
    if named or splits.train.other_label_texts:
        _write_label_table(splits.train, folder / "labels.csv", with_ids=named)
    else:
        write_texts(label_texts, folder / "labels.txt")
    for name, points in splits.named():
        _WRITERS[suffix](points, folder / f"{name}{suffix}", ids if named else None)
    write_filters(splits, folder)


# ---- rows


def _read_points(table: OpenedTable, names: LabelNames, columns: Columns, findings: Findings) -> FilePoints:
    path = table.path
    ids: list[str] | None = None if columns.id is None else []
    rows = MatrixBuilder(None, replace(LABEL, texts=names.texts), path, findings)
    points = FilePoints(columns, Texts(path, findings), ids, rows)
    zeros, left_out = [], 0  # lines, labels
    for line, row in table.rows:
        points.texts.add_cell(row.get(columns.text), line)
        if points.ids is not None and columns.id is not None:
            points.ids.append(as_identifier(row.get(columns.id)))
        values, dropped = _add_targets(points.rows, row, columns, names, line)
        zeros += [line] * values.count(0)
        left_out += dropped
    if zeros:
        what = f"{counted(len(zeros), 'label is', 'labels are')} left out of a row because of weight 0"
        remedy = "give a weight above 0 to keep a label"
        findings.note("zero-weight", what, remedy=remedy, file=path, line=zeros[0])
    if left_out:
        what = f"{counted(left_out, 'label')} of points were not chosen from {names.file}, and are left out"
        findings.note("left-out-label", what, file=path)
    return points


def _add_targets(
    rows: MatrixBuilder, row: Row, columns: Columns, names: LabelNames, line: int
) -> tuple[list[float], int]:
    """Add the targets of one row; return their weights, and the number of labels that were not chosen."""
    cell = row.get(columns.label)
    # A name of the label file is that label, even if it holds the separator.
    items = [cell] if names.is_listed(cell) else split_labels(cell, columns.separator)
    found = [names.resolve(item) for item in items]
    weights: list[Any] = [weight for _, weight in found]
    cell = None if columns.weight is None else row.get(columns.weight)
    if cell is not None:
        weights = split_cell(cell, columns.separator)
    for item, (number, _) in zip(items, found, strict=True):
        if number is None and not names.is_left_out(item):
            _report_unknown(item, rows, names, line)
    values = _weights_as_numbers(weights, len(found), rows, line)
    known = [number for number, _ in found if number is not None]
    if len(known) < len(found):
        values = [value for value, (number, _) in zip(values, found, strict=True) if number is not None]
    rows.add(known, values, line)
    return values, sum(map(names.is_left_out, items)) if names.left_out else 0


def _report_unknown(item: object, rows: MatrixBuilder, names: LabelNames, line: int) -> None:
    if names.file is None or isinstance(item, dict | list | bytes):
        what, remedy = f"'{str(item)[:60]}' is not a label", "list names or numbers"
    else:
        what, remedy = f"label '{str(item)[:60]}' is not in {names.file}", "add it there, or correct it here"
    rows.report_line("unknown-label", what, remedy, line)


def _weights_as_numbers(weights: list[Any], expected: int, rows: MatrixBuilder, line: int) -> list[float]:
    """Return the weights as numbers; report invalid weights, or a wrong number of them, and use 1."""
    if len(weights) != expected:
        what = f"the row has {counted(expected, 'label')}, but {counted(len(weights), 'weight')}"
        remedy = "give one weight for each label"
        rows.report_line("length-mismatch", what, remedy, line)
        weights = [1.0] * expected
    values = []
    for weight in weights:
        value = parse_number(weight)
        if value is None:
            what = f"the weight '{str(weight)[:40]}' is not a number"
            rows.report_line("bad-number", what, "write a number", line)
        values.append(1.0 if value is None else value)
    return values


# ---- writing


def _write_label_table(points: Dataset, path: Path, *, with_ids: bool) -> None:
    columns: dict[str, Sequence[str]] = {"id": points.label_ids or ()} if with_ids else {}
    columns["text"] = points.label_texts or ()
    if points.other_label_texts:
        columns["other_texts"] = [json.dumps(texts, ensure_ascii=False) for texts in other_texts_of(points)]
    with written(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))


def _targets_as_json(points: Dataset, label_ids: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield labels and values of each point as JSON lists."""
    names = None if label_ids is None else [json.dumps(name, ensure_ascii=False) for name in label_ids]
    for labels, values in rows_as_text(points.targets):
        shown = labels if names is None else [names[int(label)] for label in labels]
        yield f"[{', '.join(shown)}]", f"[{', '.join(values)}]"


def _write_csv(points: Dataset, path: Path, label_ids: Sequence[str] | None) -> None:
    texts, _ = points.need_texts("a table")
    with written(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([*([] if points.ids is None else ["id"]), "text", "labels", "scores"])
        for row, lists in enumerate(_targets_as_json(points, label_ids)):
            rows.writerow([*([] if points.ids is None else [points.ids[row]]), texts[row], *lists])


def _write_json_lines(points: Dataset, path: Path, label_ids: Sequence[str] | None) -> None:
    texts, _ = points.need_texts("a table")
    with written(path) as file:
        for row, (labels, values) in enumerate(_targets_as_json(points, label_ids)):
            record = ({} if points.ids is None else {"id": points.ids[row]}) | {"text": texts[row]}
            known = json.dumps(record, ensure_ascii=False)[:-1]
            file.write(f'{known}, "labels": {labels}, "scores": {values}}}\n')


_WRITERS = {".csv": _write_csv, ".jsonl": _write_json_lines}
