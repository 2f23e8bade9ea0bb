"""Which number a label's name has: given by a label file, or by first appearance."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gandalf.data.formats.frames import Frame, place_of
from gandalf.data.formats.label_cells import key_of, name_and_weight
from gandalf.data.formats.table_files import is_table, open_table
from gandalf.data.formats.tables import Table, find_column
from gandalf.data.formats.texts import Texts, read_texts, report_alike
from gandalf.errors import DataError, Findings, argument

ID_COLUMNS = ("id", "uid", "label_id", "index", "key", "code")
TEXT_COLUMNS = ("text", "title", "name", "label_text", "label", "description")


@dataclass
class LabelNames:
    """Numbers labels by name: those of the label file and no others, or, without one, any that comes."""

    texts: list[str] = field(default_factory=list)
    ids: list[str] | None = None
    file: Path | None = None
    numbers: dict[str, int] = field(default_factory=dict)

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
    if isinstance(path, Frame) or is_table(path):
        texts, ids = _read_label_table(open_table(path, findings), findings)
    else:
        texts, ids = read_texts(path, findings, of_labels=True), None
    place = place_of(path)
    numbers: dict[str, int] = {}
    for number, name in enumerate(map(str, range(len(texts))) if ids is None else ids):
        if numbers.setdefault(name, number) != number:
            findings.error(
                "duplicate-label-id",
                f"the id '{name}' stands for two labels, '{texts[numbers[name]]}' and '{texts[number]}'",
                remedy="give each label an id of its own",
                file=place,
            )
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)  # a table may also name labels by their texts
    return LabelNames(texts, ids, place, numbers)


def _read_label_table(table: Table, findings: Findings) -> tuple[list[str], list[str] | None]:
    path = table.path
    text_column, id_column = find_column(table, TEXT_COLUMNS), find_column(table, ID_COLUMNS)
    if text_column is None:
        raise DataError(
            f"there is no column of label texts; the columns are: {', '.join(table.columns) or 'none'}",
            remedy="call it 'text', and the column that the labels are named by 'id'",
            file=path,
            kind="missing-column",
        )
    texts, ids, start = Texts(path, findings, of_labels=True), [], None
    for line, row in table.rows:
        start = line if start is None else start
        texts.add_cell(row.get(text_column), line)
        ids.append("" if id_column is None else key_of(row.get(id_column)))
    report_alike(texts.found, findings, path, first_line=start or 1)
    return texts.found, None if id_column is None else ids
