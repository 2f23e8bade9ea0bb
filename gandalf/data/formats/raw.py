"""Read and write the raw layout of the Extreme Classification Repository: JSON lines in `trn`, `tst`,
`lbl`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.files import find_file, read_lines, write_lines, written
from gandalf.data.formats.assemble import assemble
from gandalf.data.formats.filters import write_filters
from gandalf.data.formats.label_names import LabelNames
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.formats.texts import LabelTexts, Texts, clean, other_texts_of, report_similar_texts
from gandalf.data.matrix_builder import LABEL, MatrixBuilder
from gandalf.data.sentences import counted
from gandalf.data.sparse_text import rows_as_text
from gandalf.errors import DataError, Findings

TRAIN_FILE, TEST_FILE = "trn.json.gz", "tst.json.gz"  # names of the written files


def recognise(source: Path) -> bool:
    """Return True if the folder has training points as JSON lines."""
    return source.is_dir() and find_file(source, ["trn.json"]) is not None


def read(source: Path, findings: Findings, options: TableOptions) -> Splits:
    """Read the folder; test points are optional."""
    labels, points = find_file(source, ["lbl.json"]), find_file(source, ["trn.json"])
    if labels is None or points is None:
        what = "there is no lbl.json (or lbl.json.gz), and the points do not give the number of labels"
        remedy = 'add it, with {"uid": ..., "title": ...} on each line in the order of label numbers'
        raise DataError(what, remedy=remedy, file=source, kind="missing-file")
    names = _read_labels(labels, findings)
    train = _read_points(points, names, findings)
    points = find_file(source, ["tst.json"])
    test = None if points is None else _read_points(points, names, findings)
    return assemble(train, test, source, "raw", findings)


def _read_labels(path: Path, findings: Findings) -> LabelNames:
    """Read texts and ids of the labels."""
    texts, ids = LabelTexts(path, findings), []
    for line, record in _records(path, findings):
        others = record.get("other_texts")
        texts.add_label(_title(record), others if isinstance(others, list) else (), line)
        ids.append(_uid(record))
    report_similar_texts(texts.cleaned, findings, path)
    return LabelNames(texts.cleaned, ids if any(ids) else None, path, others=texts.others)


def read_titles(
    path: Path, findings: Findings, *, of_labels: bool = False
) -> tuple[list[str], list[str] | None]:
    """Read texts and ids of a file of JSON lines; ignore other keys."""
    texts, ids = Texts(path, findings, of_labels=of_labels), []
    for line, record in _records(path, findings):
        texts.add(_title(record), line)
        ids.append(_uid(record))
    return texts.cleaned, ids if any(ids) else None


def _read_points(path: Path, names: LabelNames, findings: Findings) -> Dataset:
    texts, ids, rows = Texts(path, findings), [], MatrixBuilder(len(names.texts), LABEL, path, findings)
    for line, record in _records(path, findings):
        texts.add(_title(record), line)
        ids.append(_uid(record))
        _add_targets(rows, record, line)
    return replace(
        names.no_points(), targets=rows.finish(), texts=texts.cleaned, ids=ids if any(ids) else None
    )


def _records(path: Path, findings: Findings) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield every line as a record; report a line that is no JSON object, and yield an empty record for
    it."""
    for line, text in read_lines(path, findings):
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            what = f"the line is no JSON object: '{text[:60]}'" if text.strip() else "the line is empty"
            remedy = "write one {...} on each line, for each point or label"
            findings.error("bad-json", what, remedy=remedy, file=path, line=line)
            record = {"target_ind": []}
        yield line, record


def _title(record: dict[str, Any]) -> str:
    """Return the title, or the content if there is no title."""
    for name in ("title", "content"):
        text = record.get(name)
        if text:
            return text if isinstance(text, str) else str(text)
    return ""


def _uid(record: dict[str, Any]) -> str:
    uid = record.get("uid")
    return "" if uid is None else clean(str(uid))


def _add_targets(rows: MatrixBuilder, record: dict[str, Any], line: int) -> None:
    labels, values = record.get("target_ind"), record.get("target_rel")
    if not isinstance(labels, list):
        rows.report_line(
            "bad-targets", "target_ind is not a list", "list the numbers of labels, from 0", line
        )
        labels, values = [], None
    if values is not None and (not isinstance(values, list) or len(values) != len(labels)):
        size = len(values) if isinstance(values, list) else "no"
        what = f"target_ind has {counted(len(labels), 'entry', 'entries')}, but target_rel has {size}"
        rows.report_line("length-mismatch", what, "give one value for each label", line)
        values = None
    try:
        rows.add(labels, values, line)
    except TypeError:
        what = "target_ind or target_rel contains something other than numbers"
        rows.report_line("bad-targets", what, "give numbers of labels and values, not names", line)


def write(splits: Splits, folder: Path) -> None:
    """Write the layout and the filter files; `target_rel` holds the values of targets."""
    splits.train.need_texts("the raw layout")
    write_labels(splits.train, folder)
    for name, points in splits.named(TRAIN_FILE, TEST_FILE):
        write_lines(folder / name, point_lines(points))
    write_filters(splits, folder)


def write_labels(labels: Dataset, folder: Path) -> None:
    """Write the file of labels; a label without an id gets its number as id."""
    texts = labels.label_texts or ()
    with written(folder / "lbl.json.gz") as file:
        rows = zip(labels.label_ids or range(len(texts)), texts, other_texts_of(labels), strict=True)
        for uid, text, others in rows:
            more = f', "other_texts": {json.dumps(others, ensure_ascii=False)}' if others else ""
            file.write(f"{{{_uid_and_title(uid, text)}{more}}}\n")


def point_lines(points: Dataset, first: int = 0) -> Iterator[str]:
    """Yield the points as lines of the layout; a point without an id gets its number, counted from
    `first`."""
    texts, _ = points.need_texts("the raw layout")
    ids = points.ids or range(first, first + len(points))
    for uid, text, (labels, values) in zip(ids, texts, rows_as_text(points.targets), strict=True):
        targets = f'"target_ind": [{", ".join(labels)}], "target_rel": [{", ".join(values)}]'
        yield f"{{{_uid_and_title(uid, text)}, {targets}}}\n"


def _uid_and_title(uid: object, text: str) -> str:
    return (
        f'"uid": {json.dumps(str(uid), ensure_ascii=False)}, "title": {json.dumps(text, ensure_ascii=False)}'
    )
