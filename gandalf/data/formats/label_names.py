"""Which number a label's name has: given by a label file, or by first appearance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.formats.frames import Frame, place_of
from gandalf.data.formats.label_cells import key_of, name_and_weight, split_labels
from gandalf.data.formats.table_files import is_table, open_table
from gandalf.data.formats.tables import Table, find_column
from gandalf.data.formats.texts import LabelTexts, read_texts, report_alike
from gandalf.errors import DataError, Findings, argument

ID_COLUMNS = ("id", "uid", "label_id", "index", "key", "code")
# A column of more texts for a label: its synonyms, or queries that people wrote for it.
OTHER_COLUMNS = ("other_texts", "synonyms", "aliases", "alt_labels", "queries")
TEXT_COLUMNS = ("text", "title", "name", "label_text", "label", "description")


@dataclass
class LabelNames:
    """Numbers labels by name: those of the label file and no others, or, without one, any that comes."""

    texts: list[str] = field(default_factory=list)
    ids: list[str] | None = None
    file: Path | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    others: list[tuple[int, str]] = field(default_factory=list)  # label and text, beside the names

    def no_points(self) -> Dataset:
        """Return the labels as a data set without points."""
        nothing = csr_array(np.zeros((0, len(self.texts)), dtype=np.float32))
        return Dataset(nothing, [], self.texts, label_ids=self.ids, other_label_texts=self.others)

    def is_listed(self, cell: object) -> bool:
        """Return True if the cell as it stands is a name of the label file."""
        return self.file is not None and isinstance(cell, str) and cell in self.numbers

    def resolve(self, item: object) -> tuple[int | None, float]:
        """The label's number, None for a name that the label file does not have, and its weight."""
        known = self.numbers.get(item) if isinstance(item, str) else None
        if known is not None:  # a name that is known as it stands, even if it holds "::"
            return known, 1.0
        if isinstance(item, dict | list | bytes):
            return None, 1.0
        name, weight = name_and_weight(item)
        known = self.numbers.get(name)
        if known is None and self.file is None:
            known = self.numbers[name] = len(self.texts)
            self.texts.append(name)
        return known, weight

    def report(self, points: Path, findings: Findings) -> None:
        """What there is to say about texts that were only names until all points were read."""
        if self.file is not None:
            return  # said while reading the label file
        if self.texts and all(text.isdigit() for text in self.texts):
            findings.warn(
                "missing-label-text",
                "all labels are numbers, so there is no label text to learn from",
                remedy=f"name a file of label texts with {argument('labels')}",
                file=points,
            )
        report_alike(self.texts, findings, None)


def read_label_file(path: Path | Frame, findings: Findings) -> LabelNames:
    """Labels from a table of ids and texts, or from one text a line, numbered from 0."""
    place = place_of(path)
    if isinstance(path, Frame) or is_table(path):
        names = _read_label_table(open_table(path, findings), findings)
    else:
        names = LabelNames(read_texts(path, findings, of_labels=True), None, place)
    return numbered(names, findings)


def numbered(names: LabelNames, findings: Findings) -> LabelNames:
    """Number the labels by their ids, or from 0, and by their names."""
    texts, ids = names.texts, names.ids
    numbers: dict[str, int] = {}
    for number, name in enumerate(map(str, range(len(texts))) if ids is None else ids):
        if numbers.setdefault(name, number) != number:
            findings.error(
                "duplicate-label-id",
                f"the id '{name}' stands for two labels, '{texts[numbers[name]]}' and '{texts[number]}'",
                remedy="give each label an id of its own",
                file=names.file,
            )
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)  # a table may also name labels by their texts
    return replace(names, numbers=numbers)


def _read_label_table(table: Table, findings: Findings) -> LabelNames:
    path = table.path
    text_column, id_column = find_column(table, TEXT_COLUMNS), find_column(table, ID_COLUMNS)
    if text_column is None:
        raise DataError(
            f"there is no column of label texts; the columns are: {', '.join(table.columns) or 'none'}",
            remedy="call it 'text', and the column that the labels are named by 'id'",
            file=path,
            kind="missing-column",
        )
    names = LabelTexts(path, findings)
    ids, start = [], None
    for line, row in table.rows:
        start = line if start is None else start
        first, *more = _several(row.get(text_column))
        for column, cell in row.items():  # of JSON lines the first need not have it
            if column.casefold() in OTHER_COLUMNS:
                more += split_labels(cell, _mark(cell))
        names.add_label(first, more, line)
        ids.append("" if id_column is None else key_of(row.get(id_column)))
    report_alike(names.found, findings, path, first_line=1 if start is None else start)
    return LabelNames(names.found, None if id_column is None else ids, path, others=names.others)


def _several(cell: object) -> list[Any]:
    """The texts of a cell: a list of them, the name first, or one."""
    return list(cell) or [None] if isinstance(cell, list | tuple) else [cell]


def _mark(cell: object) -> str:
    return ";" if isinstance(cell, str) and ";" in cell else "|"
