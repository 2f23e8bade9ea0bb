"""Map names of labels to numbers: by a label file, or by first appearance."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.data.files import read_lines
from gandalf.data.formats import annif, skos
from gandalf.data.formats.frames import Frame
from gandalf.data.formats.label_cells import as_identifier, name_and_weight, parse_uris, split_labels
from gandalf.data.formats.opened_table import OpenedTable, find_column
from gandalf.data.formats.table_files import is_table, open_table
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.texts import LabelTexts, clean, read_texts, report_similar_texts
from gandalf.data.sentences import counted
from gandalf.errors import DataError, Findings, argument

ID_COLUMNS = ("id", "uid", "label_id", "index", "key", "code", "uri")
_IN_LANGUAGE = re.compile("label_[a-z]{2,3}(-[a-z0-9]+)*")
# Columns of other label texts, such as synonyms, or queries of users.
OTHER_COLUMNS = ("other_texts", "synonyms", "aliases", "alt_labels", "queries")
TEXT_COLUMNS = ("text", "title", "name", "label_text", "label", "description")


@dataclass
class LabelNames:
    """Map names to label numbers: only names of the label file, or without one, any name in order of
    appearance."""

    texts: list[str] = field(default_factory=list)
    ids: list[str] | None = None
    file: Path | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    others: list[tuple[int, str]] = field(default_factory=list)  # other label texts as (label, text)
    left_out: set[str] = field(default_factory=set)  # names of labels that were not chosen

    def no_points(self) -> Dataset:
        """Return the labels as a data set without points."""
        nothing = csr_array(np.zeros((0, len(self.texts)), dtype=np.float32))
        return Dataset(nothing, [], self.texts, label_ids=self.ids, other_label_texts=self.others)

    def is_listed(self, cell: object) -> bool:
        """Return True if the whole cell is a name in the label file."""
        return self.file is not None and isinstance(cell, str) and cell in self.numbers

    def is_left_out(self, item: object) -> bool:
        """Return True if the item names a label that was not chosen."""
        return isinstance(item, str | int | float) and name_and_weight(item)[0] in self.left_out

    def resolve(self, item: object) -> tuple[int | None, float]:
        """Return the number of a label, or None if the label file does not have it, and its weight."""
        known = self.numbers.get(item) if isinstance(item, str) else None
        if known is not None:  # a name may itself contain "::"
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
        """Report problems of label texts that come from the points; call this after all points were read."""
        if self.file is not None:
            return  # reported while reading the label file
        if self.texts and all(text.isdigit() for text in self.texts):
            what = "all labels are numbers, so there is no label text to learn from"
            remedy = f"give a file of label texts with {argument('labels')}"
            findings.warn("missing-label-text", what, remedy=remedy, file=points)
        report_similar_texts(self.texts, findings, None)


def read_label_file(
    path: Path | Frame, findings: Findings, options: TableOptions | None = None
) -> LabelNames:
    """Read labels from a table of ids and texts, a vocabulary, or a file with one text on each line."""
    options = options or TableOptions()
    read = next((read for fits, read in _FILES if not isinstance(path, Frame) and fits(path)), None)
    if read is not None:
        assert not isinstance(path, Frame)
        names = read(path, findings, options)
    else:
        names = _read_label_table(open_table(path, findings), findings, options)
    return with_numbers(choose_labels(names, options, findings), findings)


def choose_labels(names: LabelNames, options: TableOptions, findings: Findings) -> LabelNames:
    """Return the labels that the options include and do not exclude."""
    if options.include is None and options.exclude is None:
        return names
    ids = names.ids or list(map(str, range(len(names.texts))))
    wanted = _read_choice(options.include, "include", names, findings)
    unwanted = _read_choice(options.exclude, "exclude", names, findings) or set()

    def is_kept(label: int) -> bool:
        called = {ids[label], names.texts[label]}
        return (wanted is None or bool(called & wanted)) and not called & unwanted

    kept = [label for label in range(len(names.texts)) if is_kept(label)]
    place = {label: at for at, label in enumerate(kept)}
    texts = [names.texts[label] for label in kept]
    gone = {name for label, name in enumerate(ids) if label not in place}
    gone |= {name for label, name in enumerate(names.texts) if label not in place} - set(texts)
    return replace(
        names,
        texts=texts,
        # Keep the old numbers as ids, because points may name labels by their lines in the whole file.
        ids=[ids[label] for label in kept],
        others=[(place[label], text) for label, text in names.others if label in place],
        left_out=names.left_out | gone,
    )


def _read_choice(
    given: Path | tuple[str, ...] | None, option: str, names: LabelNames, findings: Findings
) -> set[str] | None:
    """Return the ids or texts in a list of labels, or None without a list."""
    if given is None:
        return None
    lines = read_lines(given, findings) if isinstance(given, Path) else enumerate(given)
    file = given if isinstance(given, Path) else Path(f"<{option}>")
    known = {*(names.ids or map(str, range(len(names.texts)))), *names.texts, *names.left_out}
    found = set()
    for line, content in lines:
        name = content.partition("\t")[0].strip()
        name = (parse_uris(name) or [clean(name)])[0]
        if name and name not in known:
            what, remedy = f"'{name[:60]}' is not a label of {names.file}", "correct it, or leave it out"
            findings.warn("unknown-listed-label", what, remedy=remedy, file=file, line=line)
        found.add(name)
    return found - {""}


def with_numbers(names: LabelNames, findings: Findings) -> LabelNames:
    """Map ids, or numbers from 0, and texts of labels to their numbers."""
    texts, ids = names.texts, names.ids
    numbers: dict[str, int] = {}
    for number, name in enumerate(map(str, range(len(texts))) if ids is None else ids):
        if numbers.setdefault(name, number) != number:
            what = f"the id '{name}' stands for two labels, '{texts[numbers[name]]}' and '{texts[number]}'"
            remedy = "give each label a different id"
            findings.error("duplicate-label-id", what, remedy=remedy, file=names.file)
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)  # a table may also name labels by their texts
    return replace(names, numbers=numbers)


def _read_lines(path: Path, findings: Findings, options: TableOptions) -> LabelNames:
    return LabelNames(read_texts(path, findings, of_labels=True), None, path)


def _read_subjects(path: Path, findings: Findings, options: TableOptions) -> LabelNames:
    texts, ids = annif.read_subjects(path, findings)
    return LabelNames(texts.cleaned, ids, path)


def _read_skos(path: Path, findings: Findings, options: TableOptions) -> LabelNames:
    texts, ids, left_out = skos.read(path, findings, options.language)
    return LabelNames(texts.cleaned, ids, path, others=texts.others, left_out=left_out)


# Tests for kinds of label files, with their readers; any other file is a table.
_FILES: tuple[tuple[Callable[[Path], bool], Callable[[Path, Findings, TableOptions], LabelNames]], ...] = (
    (skos.recognise, _read_skos),
    (annif.recognise_subjects, _read_subjects),
    (lambda path: not is_table(path), _read_lines),
)


def _text_column(table: OpenedTable, language: str | None) -> str | None:
    """Return the column of label texts: of a language if there are columns such as label_en."""
    in_languages = [name for name in table.columns if _IN_LANGUAGE.fullmatch(name.casefold())]
    if language is not None:
        return find_column(table, [f"{stem}_{language}" for stem in ("label", "text")])
    found = find_column(table, TEXT_COLUMNS)
    if found is None and len(in_languages) > 1:
        what = f"there are label texts in {counted(len(in_languages), 'language')}: {', '.join(in_languages)}"
        remedy = f"choose one with {argument('language')}"
        raise DataError(what, remedy=remedy, file=table.path, kind="missing-column")
    return found or next(iter(in_languages), None)


def _read_label_table(table: OpenedTable, findings: Findings, options: TableOptions) -> LabelNames:
    path = table.path
    text_column, id_column = _text_column(table, options.language), find_column(table, ID_COLUMNS)
    if text_column is None:
        what = f"there is no column of label texts; the columns are: {', '.join(table.columns) or 'none'}"
        remedy = "name the column of texts 'text', and the column of the names in the points 'id'"
        raise DataError(what, remedy=remedy, file=path, kind="missing-column")
    names = LabelTexts(path, findings)
    ids, start = [], None
    for line, row in table.rows:
        start = line if start is None else start
        first, *more = _texts_of_cell(row.get(text_column))
        for column, cell in row.items():  # look at each row, because JSON lines may differ in columns
            if column.casefold() in OTHER_COLUMNS:
                separator = ";" if isinstance(cell, str) and ";" in cell else "|"
                more += split_labels(cell, separator)
        names.add_label(first, more, line)
        name = "" if id_column is None else as_identifier(row.get(id_column))
        ids.append((parse_uris(name) or [name])[0])
    report_similar_texts(names.cleaned, findings, path, first_line=1 if start is None else start)
    return LabelNames(names.cleaned, None if id_column is None else ids, path, others=names.others)


def _texts_of_cell(cell: object) -> list[Any]:
    """Return the texts of a cell: a list with the label text first, or a single text."""
    return list(cell) or [None] if isinstance(cell, list | tuple) else [cell]
