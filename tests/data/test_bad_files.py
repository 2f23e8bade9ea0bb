"""Damaged files, missing extras, matrices instead of lines: each ends in its sentence too."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest
import zstandard
from small_files import MANY, folder_of, raw

from gandalf.data.formats import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError, Findings


def test_what_can_be_read_of_a_truncated_file_is_kept(tmp_path):
    findings = Findings(strict=False)
    found = load(folder_of(tmp_path, raw(gzip.compress(MANY)[:-3000])), findings=findings)
    assert [p.kind for p in findings.problems] == ["truncated-file"]
    assert 0 < len(found.train) < 2000
    assert found.train.texts == [str(number * 7919) for number in range(len(found.train))]
    assert findings.problems[0].line == len(found.train) + 1


def test_truncated_zstd(tmp_path):
    packed = zstandard.ZstdCompressor().compress(MANY)
    for damaged in (packed[:-100], packed[:5], packed[:9] + b"\xff" * 99):
        with pytest.raises(DataError, match=r"trn.json:\d+: .*damaged.*download or copy it again"):
            load(folder_of(tmp_path, raw(damaged)))


@pytest.mark.parametrize(
    ("module", "name", "content", "extra"),
    [
        ("zstandard", "t.csv.zst", b"\x28\xb5\x2f\xfd", "zstd"),
        ("pyarrow", "t.parquet", b"PAR1", "parquet"),
    ],
)
def test_a_missing_extra_is_named(module, name, content, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # importing it now fails as if it were not installed
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"needs {module}; pip install 'gandalf-xmc\[{extra}\]'"):
        load(tmp_path / name)


@pytest.mark.parametrize(
    ("index", "value", "sentence"),
    [
        (2, 1.0, r"Y.trn.npz: row 1: label 2 is out of range: there are 2 labels"),
        (0, np.nan, r"Y.trn.npz: row 1: the value of label 0 is nan"),
        (0, -1.0, r"Y.trn.npz: row 1: the value of label 0 is -1, and targets cannot be negative"),
    ],
)
def test_matrices_have_rows_where_files_have_lines(index, value, sentence, tmp_path):
    parts = {"data": np.array([1.0, value]), "indices": np.array([0, index]), "indptr": np.array([0, 1, 2])}
    np.savez(tmp_path / "Y.trn.npz", format=np.array(b"csr"), shape=np.array([2, 2]), **parts)
    with pytest.raises(DataError, match=sentence):
        load(tmp_path)


def test_pickled_matrices_are_refused(tmp_path):
    with open(tmp_path / "Y.trn.npz", "wb") as file:
        np.savez(file, data=np.array([{}], dtype=object), format=np.array(b"csr"))
    with pytest.raises(DataError, match="cannot be read as a SciPy sparse matrix"):
        load(tmp_path)


def test_a_column_that_was_asked_for_and_is_not_there(tmp_path):
    (tmp_path / "t.csv").write_text("text,labels\na,b\n")
    for option in ("text_column", "label_column", "weight_column"):
        with pytest.raises(
            DataError, match=r"t.csv: there is no column 'Foo'; the columns are: text, labels"
        ):
            load(tmp_path / "t.csv", options=TableOptions(**{option: "Foo"}))
