"""Where a table keeps what: columns as named or as guessed, and the separator between labels."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gandalf.data.formats.label_cells import NO_SEPARATOR, number_of, split_cell, split_labels
from gandalf.data.formats.separators import decide_separator
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.tables import Row, Table, find_column
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Findings, argument

TEXT_COLUMNS = ("text", "title", "query", "input", "sentence", "question", "name", "content")
LABEL_COLUMNS = (
    *("labels", "label", "targets", "target", "categories", "category", "tags", "tag"),
    *("target_ind", "classes", "class", "topics", "subject_uris"),
)
# No "score": in dumps of forums and shops it is a score of the point, not of its labels.
WEIGHT_COLUMNS = ("scores", "relevance", "weights", "target_rel", "clicks", "weight")
ID_COLUMNS = ("uid", "id")

_HEADER = "; the first line must be a header, such as text,labels"
_PEEK_ROWS = 1000  # looked at to guess the separator between labels, and whether weights are weights


@dataclass(frozen=True)
class Columns:
    """What a table's columns are, and what stands between the labels of a cell."""

    text: str
    label: str
    weight: str | None
    id: str | None
    separator: str | None
    weights_fit: bool | None = None  # whether a guessed column was taken for weights; None without a guess


def settle_columns(
    table: Table,
    options: TableOptions,
    findings: Findings,
    like: Columns | None = None,
    known: Collection[str] = (),
) -> tuple[Table, Columns]:
    """The table, unread, and its columns: those named, and guesses from header and first rows for others.

    What was settled for another file, `like`, is not guessed again: targets must mean one thing in both.
    Names of labels that are `known` help to guess what separates them.
    """
    columns = _named_columns(table, options, like)
    peeked = list(itertools.islice(table.rows, _PEEK_ROWS))
    table = table._replace(rows=itertools.chain(peeked, table.rows))
    if columns.separator is None:
        columns = _with_separator(columns, peeked, known, table.path, findings)
    is_guess = columns.weight is not None and options.weight_column is None
    if is_guess and (like is None or like.weights_fit is None):
        columns = _with_fitting_weights(columns, peeked, table.path, findings)
    return table, columns


def _named_columns(table: Table, options: TableOptions, like: Columns | None) -> Columns:
    def column(role: str, said: str | None, guesses: Sequence[str]) -> str | None:
        found = find_column(table, (said,) if said is not None else guesses)
        if found is None and (said is not None or role in ("text", "label")):
            called = f"column '{said}'" if said is not None else f"{role} column known by its name"
            raise DataError(
                f"there is no {called}; the columns are: {', '.join(table.columns) or 'none'}",
                remedy=f"name it with {argument(f'{role}_column')}{_HEADER if table.has_header else ''}",
                file=table.path,
                kind="missing-column",
            )
        return found

    text = column("text", options.text_column, TEXT_COLUMNS)
    label = column("label", options.label_column, LABEL_COLUMNS)
    no_weights = like is not None and like.weights_fit is False
    weight = column("weight", options.weight_column, () if no_weights else WEIGHT_COLUMNS)
    assert text is not None and label is not None, "found or raised"
    separator = options.separator or (None if like is None else like.separator)
    return Columns(text, label, weight, find_column(table, ID_COLUMNS), separator)


def _with_separator(
    columns: Columns,
    peeked: Sequence[tuple[int, Row]],
    known: Collection[str],
    path: Path,
    findings: Findings,
) -> Columns:
    # Lists in the training file say nothing of how another file separates its labels.
    decided = decide_separator((row.get(columns.label) for _, row in peeked), known)
    if decided is None:
        return columns
    what = f"labels in column '{columns.label}' are taken to be {decided}"
    if decided.separator == NO_SEPARATOR:
        remedy = f"if commas separate labels, say {argument('separator', ',')}"
    else:
        none = argument("separator", NO_SEPARATOR)
        remedy = f"if not, name another with {argument('separator')}, or say {none} for one label a cell"
    findings.note("guessed-separator", what, remedy=remedy, file=path)
    return replace(columns, separator=decided.separator)


def _with_fitting_weights(
    columns: Columns, peeked: Sequence[tuple[int, Row]], path: Path, findings: Findings
) -> Columns:
    """The columns, with the one that only has the name of weights if its cells look like weights too.

    One number for each label in every row will do. So will a list that pairs with several labels in any row:
    nothing else looks like that, and then a row that does not fit is an error, not a reason to drop them all.
    """
    misfit = _misfit(columns, peeked)
    if misfit is None:
        what, remedy = f"column '{columns.weight}' is taken for the labels' weights", "rename it if it is not"
        findings.note("guessed-weights", what, remedy=remedy, file=path)
        return replace(columns, weights_fit=True)
    line, number, found = misfit
    findings.note(
        "guessed-weights",
        f"column '{columns.weight}' is not taken for the labels' weights: it holds"
        f" {counted(found, 'entry', 'entries')} here for {counted(number, 'label')}, not a number for each",
        remedy=f"name it with {argument('weight_column')} if it is",
        file=path,
        line=line,
    )
    return replace(columns, weight=None, weights_fit=False)


def _misfit(columns: Columns, peeked: Sequence[tuple[int, Row]]) -> tuple[int, int, int] | None:
    """Line, labels and weights of the first row that tells against weights; None if nothing does."""
    first = None
    for line, row in peeked:
        cell = row.get(columns.weight or "")
        if cell is None:
            continue
        labels = split_labels(row.get(columns.label), columns.separator)
        weights = split_cell(cell, columns.separator)
        if not _pair(labels, weights):
            first = first or (line, len(labels), len(weights))
        elif len(weights) > 1:
            return None
    return first


def _pair(labels: Sequence[Any], weights: Sequence[Any]) -> bool:
    return len(labels) == len(weights) and all(number_of(weight) is not None for weight in weights)
