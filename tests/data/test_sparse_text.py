"""The fast reader of sparse text against a plain one, over every spelling of the same lines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gandalf.data import sparse_text
from gandalf.data.files import TextBlock
from gandalf.data.matrix_builder import FEATURE, LABEL
from gandalf.data.sparse_text import read_combined, read_sparse, shortest_texts, write_sparse
from gandalf.errors import Findings

COLUMNS = 7
pairs = st.tuples(
    st.integers(0, COLUMNS - 1).map(str) | st.sampled_from(["+3", "06"]),
    st.sampled_from(["1", "1.0", "0.5", ".25", "2e-1", "0", "1E0", "+0.125", "3."]),
).map(":".join)
gaps = st.sampled_from([" ", "  ", "\t"])
ends = st.sampled_from(["\n", "\r\n", " \n"])


@st.composite
def bodies(draw):
    """Lines of pairs, and the text they are written as."""
    lines = draw(st.lists(st.lists(pairs, max_size=4), min_size=1, max_size=6))
    text = "".join(draw(gaps).join(line) + draw(ends) for line in lines)
    # The last newline may be missing, unless the last line is empty and would go with it.
    return lines, text.removesuffix("\n") if lines[-1] and draw(st.booleans()) else text


def plainly(lines, columns):
    dense = np.zeros((len(lines), columns), dtype=np.float32)
    for row, line in enumerate(lines):
        for pair in line:
            index, value = pair.split(":")
            dense[row, int(index)] = max(dense[row, int(index)], np.float32(float(value)))
    return dense


def reading(text, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.txt"
        path.write_bytes(text.encode())
        return read(path)


@given(bodies())
def test_read_sparse_equals_a_plain_reader(body):
    lines, text = body
    findings = Findings(per_kind=100)
    found = reading(f"{len(lines)} {COLUMNS}\n{text}", lambda path: read_sparse(path, LABEL, findings))
    assert found.dtype == np.float32 and found.has_sorted_indices
    assert found.toarray().tolist() == plainly(lines, COLUMNS).tolist()
    assert (found.data > 0).all()
    warned = set()
    for number, line in enumerate(lines, start=2):
        kept = [int(pair.split(":")[0]) for pair in line if float(pair.split(":")[1])]
        if len(kept) != len(set(kept)):
            warned.add(("duplicate-label", number))
    assert {(problem.kind, problem.line) for problem in findings.problems} == warned


@given(bodies(), st.lists(st.lists(st.integers(0, 3), max_size=3, unique=True), min_size=6, max_size=6))
def test_read_single_equals_a_plain_reader(body, labels):
    lines, _ = body
    labels = labels[: len(lines)]
    rows = [f"{','.join(map(str, of))} {' '.join(line)}" for of, line in zip(labels, lines, strict=True)]
    text = f"{len(lines)} {COLUMNS} 4\n" + "".join(f"{row}\n" for row in rows)
    features, targets = reading(text, lambda path: read_combined(path, Findings()))
    assert features.toarray().tolist() == plainly(lines, COLUMNS).tolist()
    expected = plainly([[f"{label}:1" for label in of] for of in labels], 4)
    assert targets.toarray().tolist() == expected.tolist()


@given(bodies())
def test_fast_and_line_by_line_parsing_agree(body):
    _, text = body
    text = text if text.endswith("\n") else text + "\n"
    fast = sparse_text._parse_pairs(text.encode())
    assert fast is not None, "well-formed lines must take the fast path"
    slow = [sparse_text._pairs_of_line(None, line, 1) for line in text.encode().split(b"\n")[:-1]]
    assert fast.counts.tolist() == [len(indices) for indices, _ in slow]
    assert fast.indices.tolist() == [index for indices, _ in slow for index in indices]
    assert fast.values.tolist() == [np.float32(value) for _, values in slow for value in values]


@pytest.mark.parametrize(
    "line", ["1:2:3", "1 :2", "1: 2", ":1", "1:", "1:x", "1.5:1", "1:1,2:1", "1:0x1", "1:1_0", "é:1", "1;1"]
)
def test_odd_lines_never_take_the_fast_path(line):
    assert sparse_text._parse_pairs(f"0:1\n{line}\n2:1\n".encode()) is None


@given(st.lists(st.lists(st.sampled_from("12, :;x\n"), max_size=12).map("".join), max_size=4).map("\n".join))
def test_lines_are_cut_alike_fast_and_slow(text):
    block = TextBlock(2, f"{text}\n".encode())
    fast, slow = sparse_text._split_block(block), sparse_text._split_by_line(block)
    assert [words(part) for part in fast] == [words(part) for part in slow]


def words(block):
    return [line.split() for line in block.data.split(b"\n")]


def test_blocks_meet_where_lines_end(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((3000, 40)) < 0.3, rng.random((3000, 40)), 0).astype(np.float32)
    write_sparse(csr_array(dense), tmp_path / "m.txt")
    monkeypatch.setattr("gandalf.data.compression._READ_BYTES", 1000)
    monkeypatch.setattr(
        sparse_text, "read_blocks", lambda path, findings: sparse_text_blocks(path, findings, 5000)
    )
    assert (read_sparse(tmp_path / "m.txt", FEATURE, Findings()).toarray() == dense).all()
    (tmp_path / "m.txt").write_text((tmp_path / "m.txt").read_text() + "0:1\n")
    findings = Findings(strict=False)
    read_sparse(tmp_path / "m.txt", FEATURE, findings)
    assert findings.problems[0].what == "the header says 3,000 rows, but 3,001 follow"


def sparse_text_blocks(path, findings, size):
    from gandalf.data.files import read_blocks

    blocks = list(read_blocks(path, findings, size))
    assert len(blocks) > 10
    return blocks


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_shortest_reads_back(values):
    values = np.asarray(values, dtype=np.float32)
    texts = shortest_texts(values)
    assert [np.float32(float(text)) for text in texts] == values.tolist()
    # How many zeros a very large number gets differs between versions of NumPy; targets are small.
    small = [text for text, value in zip(texts, values, strict=True) if 1e-4 <= abs(value) <= 1]
    assert all(len(text) <= 15 for text in small)


def test_features_may_be_negative_and_blank_lines_at_the_end_are_no_rows(tmp_path):
    (tmp_path / "m.txt").write_text("2 3\n0:-1.5 2:1\n\n\n\n")
    found = read_sparse(tmp_path / "m.txt", FEATURE, Findings())
    assert found.toarray().tolist() == [[-1.5, 0, 1], [0, 0, 0]]
