"""Whatever happens to a file, reading it ends in a data set or in one sentence, never in a traceback."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_formats import CASES, small

from gandalf.data.load import load
from gandalf.errors import DataError, Findings

ODD = [b"", b"\0", b"\n", b"\n\n", b" ", b"\t", b":", b",", b"::", b'"', b"-", b"nan", b"1e999", b"9" * 30]
ODD += [b"[", b"{}", b"\xff", b"\xc3", "é".encode(), b"\\ud83d", b"null", b"true", b"1.5", b"x", b"\r"]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_give_one_sentence(name, data):
    with tempfile.TemporaryDirectory() as folder:
        CASES[name].write(small(), Path(folder))
        path = data.draw(st.sampled_from(sorted(Path(folder).iterdir())))
        content = path.read_bytes()
        for _ in range(data.draw(st.integers(1, 3))):
            start = data.draw(st.integers(0, len(content)))
            end = data.draw(st.integers(start, min(len(content), start + 8)))
            content = content[:start] + data.draw(st.sampled_from(ODD)) + content[end:]
        path.write_bytes(content)
        for strict in (True, False):
            try:
                found = load(folder, findings=Findings(strict=strict))
            except DataError as error:
                assert "\n" not in str(error)
            else:
                values = found.train.targets.data
                assert ((values > 0) & (values <= 1)).all()
                found.train.targets.check_format()


@pytest.mark.parametrize("name", CASES)
def test_a_file_cut_anywhere_gives_one_sentence(name, tmp_path):
    CASES[name].write(small(), tmp_path)
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for length in range(0, len(content), max(1, len(content) // 40)):
            path.write_bytes(content[:length])
            try:
                load(tmp_path)
            except DataError as error:
                assert "\n" not in str(error)
        path.write_bytes(content)
