"""What other readers take for something else is refused or told, never silently misread."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from gandalf.data.load import load
from gandalf.errors import DataError, Findings


def test_entries_beyond_the_pointers_are_not_dropped(tmp_path):
    parts = {"data": np.ones(4), "indices": np.array([0, 1, 2, 0]), "indptr": np.array([0, 1, 2])}
    np.savez(tmp_path / "Y.trn.npz", format=np.array(b"csr"), shape=np.array([2, 3]), **parts)
    with pytest.raises(DataError, match="the pointers do not end where the entries do"):
        load(tmp_path)


@pytest.mark.parametrize("number", ["1_0", "\u0661", "\uff11", "1_0::0.5", "1::0_5", "1::\u0661"])
def test_numbers_that_only_python_reads_are_refused(number, tmp_path):
    (tmp_path / "train.txt").write_text(f"0\ta text\n{number}\tanother\n", "utf-8")
    (tmp_path / "output-items.txt").write_text("".join(f"label {at}\n" for at in range(20)))
    with pytest.raises(DataError, match="is neither a label number nor number::weight") as error:
        load(tmp_path)
    assert error.value.problem.line == 2


@pytest.mark.parametrize("pair", ["1_0:1", "\u0661:1", "1:1_0", "1:\u0661"])
def test_pairs_that_only_python_reads_are_refused(pair, tmp_path):
    (tmp_path / "trn_X_Y.txt").write_text(f"2 20\n0:1\n{pair}\n", "utf-8")
    with pytest.raises(DataError, match="write whole numbers") as error:
        load(tmp_path)
    assert error.value.problem.line == 3


def test_a_weight_that_only_python_reads_is_part_of_a_name(tmp_path):
    (tmp_path / "train.csv").write_text("text,labels\na text,gzip::1_0\n", "utf-8")
    assert load(tmp_path).train.label_texts == ["gzip::1_0"]


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl"])
def test_lines_that_end_in_carriage_returns_are_refused(name, tmp_path):
    line = '{"text": "a", "labels": ["x"]}\r' if name.endswith("l") else "text,labels\ra,x\rb,y\r"
    (tmp_path / name).write_bytes(line.replace(",", "\t" if name.endswith("tsv") else ",").encode() * 2)
    with pytest.raises(DataError, match="the lines end in a carriage return alone"):
        load(tmp_path)


def test_windows_line_ends_and_returns_within_a_line_are_read(tmp_path):
    (tmp_path / "train.tsv").write_bytes(b"text\tlabels\r\na\rb\tx\r\nc\ty\r\n")
    assert load(tmp_path).train.texts == ["a b", "c"]


def test_an_empty_test_file_is_told(tmp_path):
    (tmp_path / "train.csv").write_text("text,labels\na,x\n")
    (tmp_path / "test.csv").write_text("text,labels\n")
    found = Findings()
    load(tmp_path, findings=found)
    assert [problem.kind for problem in found.problems] == ["empty-test"]


def test_csr_matrices_are_read_as_before(tmp_path):
    from scipy.sparse import save_npz

    save_npz(tmp_path / "Y.trn.npz", csr_array(np.array([[1.0, 0], [0.5, 1]])))
    assert load(tmp_path).train.targets.toarray().tolist() == [[1, 0], [0.5, 1]]
