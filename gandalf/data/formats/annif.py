"""Read Annif's formats: lines of texts and URIs, folders of documents, and vocabularies of subjects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gandalf.data.files import find_file, first_line, plain_name, read_lines
from gandalf.data.formats.label_cells import parse_uris
from gandalf.data.formats.opened_table import OpenedTable, Row
from gandalf.data.formats.texts import LabelTexts, report_similar_texts
from gandalf.errors import Findings

_LINE = re.compile(r"[^\t]*\t\s*<[^<>\s]+>")  # a text and a URI
_SUBJECT = re.compile(r"<([^<>\s]+)>\t")  # a URI and its label
_KEYS = (".key", ".tsv")  # files of a document's labels, by name or by URI


def recognise_lines(path: Path) -> bool:
    """Return True if the file begins with a text, a tab and a URI in angle brackets."""
    return _LINE.match(first_line(path)) is not None


def open_lines(path: Path, findings: Findings) -> OpenedTable:
    """Return a corpus of short texts: on each line a text, a tab, and URIs separated by tabs or spaces."""

    def rows() -> Iterator[tuple[int, Row]]:
        for line, content in read_lines(path, findings):
            text, _, labels = content.partition("\t")
            found = parse_uris(labels.replace("\t", " "))
            if found is None and labels.strip():
                what = f"'{labels[:60]}' is not a list of URIs"
                remedy = "write each in angle brackets: <http://...>"
                findings.error("bad-line", what, remedy=remedy, file=path, line=line)
            elif content.strip():
                yield line, {"text": text, "labels": found or []}

    return OpenedTable(path, ["text", "labels"], rows())


def documents_in(folder: Path) -> tuple[Path, ...]:
    """Return the documents of a folder: `.txt` files with a `.key` or `.tsv` file of labels beside them."""
    if not folder.is_dir():
        return ()
    return tuple(sorted((path for path in folder.iterdir() if is_document(path)), key=lambda path: path.name))


def is_document(path: Path) -> bool:
    """Return True if the file is a text and a file beside it holds its labels."""
    is_text = plain_name(path).endswith(".txt") and not path.name.startswith(".")
    return is_text and path.is_file() and _label_file_of(path) is not None


def open_document(path: Path, findings: Findings) -> OpenedTable:
    """Return a document as a table of one row: its text, and the labels of the file beside it."""
    keys = _label_file_of(path)
    assert keys is not None, "the caller has checked is_document"
    text = " ".join(line for _, line in read_lines(path, findings))
    row = {"id": _stem(path), "text": text, "labels": list(_read_labels(keys, findings))}
    return OpenedTable(keys, list(row), iter([(1, row)]))


def _read_labels(path: Path, findings: Findings) -> Iterator[str]:
    by_uri = plain_name(path).endswith(".tsv")
    for line, content in read_lines(path, findings):
        name = content.partition("\t")[0].strip() if by_uri else content.strip()
        found = parse_uris(name) if by_uri else [name]
        if found is None and name:
            what, remedy = f"'{name[:60]}' is not a URI", "write it in angle brackets, a tab, and the label"
            findings.error("bad-line", what, remedy=remedy, file=path, line=line)
        yield from (one for one in found or () if one)


def _label_file_of(path: Path) -> Path | None:
    return find_file(path.parent, [f"{_stem(path)}{suffix}" for suffix in _KEYS])


def _stem(path: Path) -> str:
    return plain_name(path).removesuffix(".txt")


def recognise_subjects(path: Path) -> bool:
    """Return True if the file begins with a URI in angle brackets and a tab."""
    return _SUBJECT.match(first_line(path)) is not None


def read_subjects(path: Path, findings: Findings) -> tuple[LabelTexts, list[str]]:
    """Return labels and URIs of a vocabulary: lines of `<URI>`, a tab, the label, and perhaps a notation."""
    texts, ids = LabelTexts(path, findings), []
    for line, content in read_lines(path, findings):
        match = _SUBJECT.match(content)
        if match is not None:
            texts.add_label(content[match.end() :].partition("\t")[0], (), line)
            ids.append(match[1])
        elif content.strip():
            what, remedy = f"'{content[:60]}' is not a subject", "write <URI>, a tab and the label"
            findings.error("bad-line", what, remedy=remedy, file=path, line=line)
    report_similar_texts(texts.cleaned, findings, path)
    return texts, ids
