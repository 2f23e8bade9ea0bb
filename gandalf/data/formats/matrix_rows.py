"""Read the texts and features of the rows of a matrix from files beside the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scipy.sparse import csr_array

from gandalf.data.formats.texts import read_texts
from gandalf.data.matrix_builder import fit_rows, row_findings
from gandalf.data.sentences import counted
from gandalf.errors import Findings


@dataclass(frozen=True)
class MatrixRows:
    """The rows of a matrix file; each file beside it must have one line or row for each of them."""

    file: Path  # the matrix
    number: int
    findings: Findings
    are_labels: bool = False

    def read_texts(self, path: Path | None) -> list[str] | None:
        """Read a file with one text on each line; return None without a file."""
        if path is None:
            return None
        return self.fit_texts(read_texts(path, self.findings, of_labels=self.are_labels), path)

    def fit_texts(self, texts: list[str], path: Path) -> list[str]:
        """Return the texts of a file, cut or filled up to the rows; report a wrong number of lines."""
        remedy = "both files must have one line for each row, in the same order"
        self._check_number(len(texts), "line", remedy, path, None)
        return texts[: self.number] + [""] * (self.number - len(texts))

    def fit_features(self, features: csr_array, path: Path) -> csr_array:
        """Return the features of a file, cut or filled up to the rows; report a wrong number of rows."""
        remedy = "both files must have the same rows, in the same order"
        self._check_number(features.shape[0], "row", remedy, path, None if path.suffix == ".npz" else 1)
        return fit_rows(features, self.number)

    def _check_number(self, found: int, noun: str, remedy: str, path: Path, line: int | None) -> None:
        if found != self.number:
            what = f"has {counted(found, noun)}, but {self.file.name} needs {self.number:,}"
            findings = row_findings(self.findings, found, self.number)
            findings.error("header-mismatch", what, remedy=remedy, file=path, line=line)
