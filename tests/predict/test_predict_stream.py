"""`gandalf predict MODEL -`: lines of standard input are answered as they come."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from predict_command import fails
from small_model import LABELS
from text_files import TEXTS
from typer.testing import CliRunner

from gandalf.cli.main import app
from gandalf.errors import DataError
from gandalf.predict import stream
from gandalf.predict.stream import texts_of_stream


def piped(content, *words):
    return CliRunner().invoke(app, ["predict", *map(str, words)], input=content)


class Typed:
    """A stream that gives what was typed piece by piece."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def read1(self, size):
        return self.pieces.pop(0) if self.pieces else b""


def test_lines_are_handed_on_as_soon_as_they_are_whole():
    half, other_half = "thr\u00e9e".encode()[:4], "thr\u00e9e".encode()[4:]
    typed = Typed(b"one\ntw", b"o\n", half, other_half + b"\r\n\nla", b"st")
    chunks = texts_of_stream(typed)
    assert next(chunks).texts == ["one"]
    assert len(typed.pieces) == 4  # nothing more was read than was needed
    assert [chunk.texts for chunk in chunks] == [["two"], ["thr\u00e9e", ""], ["last"]]


def test_much_at_once_is_cut_into_chunks(monkeypatch):
    monkeypatch.setattr(stream, "CHUNK", 2)
    assert [len(chunk.texts) for chunk in texts_of_stream(io.BytesIO(b"a\n" * 5))] == [2, 2, 1]


def test_bytes_that_are_no_text_are_named_by_line():
    with pytest.raises(DataError, match="line 2 of standard input is not UTF-8 at byte 3"):
        list(texts_of_stream(io.BytesIO(b"a\nab\xff\n")))


def test_every_line_gets_a_line(small_folder, small_predictor):
    result = piped("\n".join(TEXTS), small_folder, "-", "--top", 2)
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    assert [record["row"] for record in records] == list(range(len(TEXTS)))
    assert [record["text"] for record in records] == TEXTS
    ids, _ = small_predictor.predict(TEXTS, 2)
    assert [record["labels"] for record in records] == [[at for at in row if at >= 0] for row in ids.tolist()]
    assert records[0]["label_texts"] == [LABELS[at] for at in records[0]["labels"]]


def test_standard_input_into_a_file(small_folder, tmp_path):
    result = piped("gzip\nbzip2\n", small_folder, "-", "-o", tmp_path / "o.csv", "--top", 1)
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "o.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["row", "0", "1"]
    assert "up to 1 label for each of 2 texts" in result.stdout


def test_a_file_called_like_a_model_is_not_standard_input(small_folder):
    assert "no file or folder" in fails(small_folder, "./-")


def test_an_answer_comes_while_the_pipe_is_open(small_folder):
    command = [sys.executable, "-m", "gandalf", "predict", str(small_folder), "-", "--top", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for text in ("gzip", "disk usage"):
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["text"] == text
        process.stdin.close()
        assert process.wait(120) == 0
