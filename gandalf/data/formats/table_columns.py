"""Find the columns of a table, and the separator between labels: given by the user, or guessed."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gandalf.data.formats.label_cells import (
    NO_SEPARATOR,
    decide_separator,
    parse_number,
    split_cell,
    split_labels,
)
from gandalf.data.formats.opened_table import OpenedTable, Row, find_column
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Findings, argument

TEXT_COLUMNS = ("text", "title", "query", "input", "sentence", "question", "name", "content")
LABEL_COLUMNS = (
    *("labels", "label", "targets", "target", "categories", "category", "tags", "tag"),
    *("target_ind", "classes", "class", "topics", "topic", "subject_uris"),
)
# No "score": in dumps of forums and shops it is a score of the point, not of its labels.
WEIGHT_COLUMNS = ("scores", "relevance", "weights", "target_rel", "clicks", "weight")
ID_COLUMNS = ("uid", "id")

_HEADER = "; the first line must be a header, such as text,labels"
_FIRST_ROWS = 1000  # rows that are read to guess the separator, and to check a guessed column of weights


@dataclass(frozen=True)
class Columns:
    """The names of a table's columns, and the separator between labels."""

    text: str
    label: str
    weight: str | None
    id: str | None
    separator: str | None
    weights_fit: bool | None = None  # True if a guessed column holds weights; None without a guess


def find_columns(
    table: OpenedTable,
    options: TableOptions,
    findings: Findings,
    first_columns: Columns | None = None,
    known: Collection[str] = (),
) -> tuple[OpenedTable, Columns]:
    """Return the table with all its rows, and its columns: given, or guessed from header and first rows.

    `first_columns` are those of the first file of the set; its guesses are kept, so that targets mean the
    same in all files. `known` names of labels help to guess the separator.
    """
    columns = _named_columns(table, options, first_columns)
    first_rows = list(itertools.islice(table.rows, _FIRST_ROWS))
    table = table._replace(rows=itertools.chain(first_rows, table.rows))
    if columns.separator is None:
        columns = _with_separator(columns, first_rows, known, table.path, findings)
    is_guess = columns.weight is not None and options.weight_column is None
    if is_guess and (first_columns is None or first_columns.weights_fit is None):
        columns = _with_fitting_weights(columns, first_rows, table.path, findings)
    return table, columns


def _named_columns(table: OpenedTable, options: TableOptions, first_columns: Columns | None) -> Columns:
    def column(role: str, given: str | None, guesses: Sequence[str]) -> str | None:
        found = find_column(table, (given,) if given is not None else guesses)
        if found is None and (given is not None or role in ("text", "label")):
            called = f"column '{given}'" if given is not None else f"{role} column known by its name"
            what = f"there is no {called}; the columns are: {', '.join(table.columns) or 'none'}"
            remedy = f"give it with {argument(f'{role}_column')}{_HEADER if table.has_header else ''}"
            raise DataError(what, remedy=remedy, file=table.path, kind="missing-column")
        return found

    text = column("text", options.text_column, TEXT_COLUMNS)
    label = column("label", options.label_column, LABEL_COLUMNS)
    no_weights = first_columns is not None and first_columns.weights_fit is False
    weight = column("weight", options.weight_column, () if no_weights else WEIGHT_COLUMNS)
    assert text is not None and label is not None, "found or raised"
    separator = options.separator or (None if first_columns is None else first_columns.separator)
    return Columns(text, label, weight, find_column(table, ID_COLUMNS), separator)


def _with_separator(
    columns: Columns,
    first_rows: Sequence[tuple[int, Row]],
    known: Collection[str],
    path: Path,
    findings: Findings,
) -> Columns:
    # If the training file has lists, there is no separator to keep for another file.
    decided = decide_separator((row.get(columns.label) for _, row in first_rows), known)
    if decided is None:
        return columns
    what = f"labels in column '{columns.label}' are read as {decided}"
    if decided.separator == NO_SEPARATOR:
        remedy = f"if commas separate labels, give {argument('separator', ',')}"
    else:
        none = argument("separator", NO_SEPARATOR)
        remedy = f"if not, give another with {argument('separator')}, or {none} for one label in each cell"
    findings.note("guessed-separator", what, remedy=remedy, file=path)
    return replace(columns, separator=decided.separator)


def _with_fitting_weights(
    columns: Columns, first_rows: Sequence[tuple[int, Row]], path: Path, findings: Findings
) -> Columns:
    """Keep a column with a name for weights only if its cells look like weights.

    They do if every row has one number for each label, or if any row has a list of several numbers, one for
    each label. In the second case a row that does not fit is an error, not a reason to drop the column.
    """
    misfit = _first_misfit(columns, first_rows)
    if misfit is None:
        what, remedy = f"column '{columns.weight}' is read as the weights of labels", "rename it if it is not"
        findings.note("guessed-weights", what, remedy=remedy, file=path)
        return replace(columns, weights_fit=True)
    line, number, found = misfit
    findings.note(
        "guessed-weights",
        f"column '{columns.weight}' is not read as the weights of labels: it has"
        f" {counted(found, 'entry', 'entries')} here for {counted(number, 'label')}, not a number for each",
        remedy=f"give it with {argument('weight_column')} if it holds weights",
        file=path,
        line=line,
    )
    return replace(columns, weight=None, weights_fit=False)


def _first_misfit(columns: Columns, first_rows: Sequence[tuple[int, Row]]) -> tuple[int, int, int] | None:
    """Return line, labels and weights of the first row that does not fit, or None if the column holds
    weights."""
    first = None
    for line, row in first_rows:
        cell = row.get(columns.weight or "")
        if cell is None:
            continue
        labels = split_labels(row.get(columns.label), columns.separator)
        weights = split_cell(cell, columns.separator)
        if not _fit_together(labels, weights):
            first = first or (line, len(labels), len(weights))
        elif len(weights) > 1:
            return None
    return first


def _fit_together(labels: Sequence[Any], weights: Sequence[Any]) -> bool:
    return len(labels) == len(weights) and all(parse_number(weight) is not None for weight in weights)
