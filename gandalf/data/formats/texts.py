"""Collect the texts of any layout: clean them, and report empty and near-duplicate texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gandalf.data.dataset import Dataset
from gandalf.data.files import read_lines, write_lines
from gandalf.data.matching import text_groups, text_key
from gandalf.errors import Findings

# Line ends and other control characters, which a terminal would obey, become spaces. Byte order marks are
# removed.
_ONE_LINE: dict[int, int | None] = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], ord(" ")
) | {0xFEFF: None}
_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell a lone surrogate (\\ud83d), but UTF-8 cannot


def clean(text: str) -> str:
    """Return the text on one line, in Unicode's composed form (NFC), without spaces at its ends."""
    if text.isascii() and text.isprintable():
        return text.strip()
    text = unicodedata.normalize("NFC", text.translate(_ONE_LINE)).strip()
    return _SURROGATE.sub("\ufffd", text)


class Texts:
    """Collect cleaned texts, and report empty or invalid ones."""

    def __init__(self, file: Path, findings: Findings, *, of_labels: bool = False) -> None:
        self.file, self.findings, self.cleaned = file, findings, list[str]()
        self._of_labels = of_labels

    def add(self, text: str, line: int) -> None:
        """Append one text."""
        if not text.isascii() and _SURROGATE.search(text):
            what, remedy = "the text has half of a surrogate pair", "write the whole character"
            self.findings.error("broken-utf8", what, remedy=remedy, file=self.file, line=line)
        self.cleaned.append(clean(text))
        if not self.cleaned[-1]:
            self._report_empty(line)

    def add_cell(self, value: Any, line: int) -> None:  # noqa: ANN401  a cell can hold anything
        """Append the text of a table's cell."""
        if isinstance(value, bytes):
            what, remedy = "the text is bytes that are not UTF-8", "write it as UTF-8"
            self.findings.error("broken-utf8", what, remedy=remedy, file=self.file, line=line)
            value = value.decode("utf-8", "replace")
        self.add("" if value is None else str(value), line)

    def _report_empty(self, line: int) -> None:
        if self._of_labels:
            kind, what = "missing-label-text", "the label has no text, so nothing can be learned from it"
        else:
            kind, what = "empty-text", "the text is empty"
        remedy = "write the text" if self._of_labels else "write the text, or leave the point out"
        self.findings.warn(kind, what, remedy=remedy, file=self.file, line=line)


class LabelTexts(Texts):
    """Collect label texts and other label texts."""

    def __init__(self, file: Path, findings: Findings) -> None:
        super().__init__(file, findings, of_labels=True)
        self.others = list[tuple[int, str]]()  # pairs (label, text)

    def add_label(self, name: Any, others: Iterable[Any], line: int) -> None:  # noqa: ANN401  cells
        """Append a label; drop other texts that are empty or equal to the label text."""
        self.add_cell(name, line)
        texts = Texts(self.file, Findings(strict=False))  # do not report empty other texts
        for other in others:
            texts.add_cell(other, line)
        more = dict.fromkeys(text for text in texts.cleaned if text and text != self.cleaned[-1])
        self.others += [(len(self.cleaned) - 1, text) for text in more]


def read_texts(path: Path, findings: Findings, *, of_labels: bool = False) -> list[str]:
    """Read a file with one text on each line."""
    texts = Texts(path, findings, of_labels=of_labels)
    for line, text in read_lines(path, findings):
        texts.add(text, line)
    if of_labels:
        report_similar_texts(texts.cleaned, findings, path)
    return texts.cleaned


def other_texts_of(labels: Dataset) -> list[list[str]]:
    """Return the other texts of each label."""
    found: list[list[str]] = [[] for _ in range(labels.num_labels)]
    for label, text in labels.other_label_texts or ():
        found[label].append(text)
    return found


def write_texts(texts: Sequence[str], path: Path) -> None:
    """Write a file with one text on each line."""
    write_lines(path, (f"{clean(text)}\n" for text in texts))


def report_similar_texts(
    label_texts: Sequence[str], findings: Findings, file: Path | None, *, first_line: int = 1
) -> None:
    """Note labels that share a text, and labels whose texts differ in punctuation or spaces only."""

    def note(kind: str, what: str, remedy: str, first: int, second: int) -> None:
        lines = "" if file is None else f" (lines {first + first_line} and {second + first_line})"
        example = f"such as '{label_texts[first]}' and '{label_texts[second]}'{lines}"
        line = None if file is None else first + first_line
        findings.note(kind, f"{what}, {example}", remedy=remedy, file=file, line=line)

    (same,) = text_groups(label_texts)
    shared = np.isin(same, np.flatnonzero(np.bincount(same[same >= 0], minlength=1) > 1))
    if shared.any():
        first, second = np.flatnonzero(same == same[np.argmax(shared)])[:2].tolist()
        what = f"{int(shared.sum())} labels share their text with another label"
        remedy = "nothing to do if they are different things with the same name"
        note("shared-label-text", what, remedy, first, second)
    deleted = _Punctuation()
    (bare,) = text_groups([text_key(text).translate(deleted) for text in label_texts])
    alike = _similar_but_not_equal(bare, same)
    if alike.any():
        first = int(np.argmax(alike))
        second = int(np.argmax((bare == bare[first]) & (same != same[first])))
        what = f"{int(alike.sum())} labels differ from another in punctuation or spaces only"
        note("near-duplicate-label-text", what, "merge them if they mean the same", first, second)


def _similar_but_not_equal(bare: npt.NDArray[np.int64], same: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark labels whose bare text equals that of a label with a different text."""  # shape: (L,)
    texts = np.unique(np.stack([bare, same]), axis=1)  # shape: (2, distinct texts)
    several = np.flatnonzero(np.bincount(texts[0][texts[0] >= 0], minlength=1) > 1)
    return np.isin(bare, several)


class _Punctuation(dict[int, int | None]):
    """A table for `str.translate` that deletes punctuation and spaces of every script, filled on first
    use."""

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.category(chr(code))[0] in "PZ" else code
        return self[code]
