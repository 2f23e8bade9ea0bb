"""Texts as every layout hands them on: one line, NFC, and reported where they are empty or alike."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gandalf.data.files import read_lines, written
from gandalf.data.matching import text_groups, text_key
from gandalf.errors import Findings

# Whatever some reader takes for the end of a line becomes a space; a byte order mark does not belong here.
_ONE_LINE: dict[int, int | None] = dict.fromkeys(
    map(ord, "\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029\x00"), ord(" ")
) | {0xFEFF: None}


def clean(text: str) -> str:
    """The text on one line, in Unicode's composed form, without spaces at its ends."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return unicodedata.normalize("NFC", text.translate(_ONE_LINE)).strip()


class Texts:
    """Collects cleaned texts, and says where one is empty or no text at all."""

    def __init__(self, file: Path, findings: Findings, *, of_labels: bool = False) -> None:
        self.file, self.findings, self.found = file, findings, list[str]()
        self._of_labels = of_labels

    def add(self, text: str, line: int) -> None:
        """Append one text."""
        text = clean(text)
        if not text:
            self._report_empty(line)
        elif not text.isascii():
            text = self._encodable(text, line)
        self.found.append(text)

    def _report_empty(self, line: int) -> None:
        if self._of_labels:
            kind, what = "missing-label-text", "the label has no text, so nothing can be learned from it"
        else:
            kind, what = "empty-text", "the text is empty"
        remedy = "write the text" if self._of_labels else "write the text, or leave the point out"
        self.findings.warn(kind, what, remedy=remedy, file=self.file, line=line)

    def _encodable(self, text: str, line: int) -> str:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            # JSON can spell half of a surrogate pair (\ud83d), which no UTF-8 file can hold.
            what, remedy = "the text holds half of a surrogate pair", "write the whole character"
            self.findings.error("broken-utf8", what, remedy=remedy, file=self.file, line=line)
            return text.encode("utf-8", "replace").decode("utf-8")
        return text


def read_texts(path: Path, findings: Findings, *, of_labels: bool = False) -> list[str]:
    """One text a line."""
    texts = Texts(path, findings, of_labels=of_labels)
    for line, text in read_lines(path, findings):
        texts.add(text, line)
    if of_labels:
        report_alike(texts.found, findings, path)
    return texts.found


def write_texts(texts: Sequence[str], path: Path) -> None:
    """One text a line."""
    with written(path) as file:
        file.writelines(f"{clean(text)}\n" for text in texts)


def fit_texts(texts: list[str], rows: int, says: Path, path: Path, findings: Findings) -> list[str]:
    """The texts, `rows` of them; another number than `says` calls for is reported and mended."""
    if len(texts) != rows:
        findings.error(
            "header-mismatch",
            f"holds {len(texts)} lines, and {says.name} calls for {rows}",
            remedy="both files must have one line for each row, in the same order",
            file=path,
        )
    return texts[:rows] + [""] * (rows - len(texts))


def report_alike(label_texts: Sequence[str], findings: Findings, file: Path | None) -> None:
    """Note labels that share a text, and labels whose texts differ in punctuation or spaces only."""
    (same,) = text_groups(label_texts)
    repeated = same[same >= 0]
    shared = np.isin(same, np.flatnonzero(np.bincount(repeated, minlength=1) > 1))
    if shared.any():
        first, second = np.flatnonzero(same == same[np.flatnonzero(shared)[0]])[:2]
        findings.note(
            "shared-label-text",
            f"{int(shared.sum())} labels share their text with another label, "
            f"such as {_pair(label_texts, int(first), int(second), file)}",
            remedy="nothing to do if they are different things of one name",
            file=file,
            line=None if file is None else int(first) + 1,
        )
    (bare,) = text_groups([text_key(text).translate(_PUNCTUATION) for text in label_texts])
    alike = _grouped_apart(bare, same)
    if alike.any():
        first = np.flatnonzero(alike)[0]
        second = np.flatnonzero((bare == bare[first]) & (same != same[first]))[0]
        findings.note(
            "near-duplicate-label-text",
            f"{int(alike.sum())} labels have texts that differ from another's in punctuation or spaces only, "
            f"such as {_pair(label_texts, int(first), int(second), file)}",
            remedy="merge the labels if they mean the same",
            file=file,
            line=None if file is None else int(first) + 1,
        )


def _grouped_apart(
    bare: np.ndarray[tuple[int], np.dtype[np.int64]], same: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Labels that share their bare text with a label whose text is another one."""  # shape: (L,)
    texts = np.unique(np.stack([bare, same]), axis=1)  # shape: (2, distinct texts)
    several = np.flatnonzero(np.bincount(texts[0][texts[0] >= 0], minlength=1) > 1)
    return np.isin(bare, several)


def _pair(label_texts: Sequence[str], first: int, second: int, file: Path | None) -> str:
    where = "" if file is None else f" (lines {first + 1} and {second + 1})"
    return f"'{label_texts[first]}' and '{label_texts[second]}'{where}"


class _Punctuation(dict[int, int | None]):
    """Translation table that deletes punctuation and spaces of every script, filled as characters turn up."""

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.category(chr(code))[0] in "PZ" else code
        return self[code]


_PUNCTUATION = _Punctuation()
