"""The log of a resumed run is the log of an unbroken one; bars for people, nothing for pipes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import numpy as np
import pytest
import torch
from command_line import python
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gandalf.errors import DataError
from gandalf.train.logs import LOG, RunLog, read_log

BAR = (
    "import time; from gandalf.train.logs import TrainingBar\n"
    "with TrainingBar('stage [1] of 2', 4_000, done=1_000) as bar:\n"
    "    print(bar.visible)\n"
    "    for step in range(3):\n"
    "        bar.advance(1_000, loss=0.12345 if step else None)\n"
    "        bar.validated('P@1 41.2')\n"
    "        time.sleep(0.15)\n"
)


def steps(log: RunLog, first: int, last: int) -> None:
    for step in range(first, last):
        log.write("train", step, loss=1 / (step + 1))
        if step % 3 == 0:
            log.write("validation", step, **{"P@1": 0.1 + 0.2, "bins": [step, None]})


def timeless(path) -> list[dict]:
    lines = read_log(path)
    assert all(line.pop("time") > 1e9 for line in lines)
    return lines


def test_lines_are_there_as_soon_as_they_are_written(tmp_path):
    log = RunLog(tmp_path / "new" / "run")
    log.write(
        "train", 3, loss=0.5, name="é", rate=np.float32(0.25), norm=torch.tensor(2.0), worst=float("nan")
    )
    log.write("validation", 3, figures={"P@1": 1.0, "far": float("inf")}, ids=(1, 2))
    path = tmp_path / "new" / "run" / LOG
    assert timeless(path) == [
        {"kind": "train", "step": 3, "loss": 0.5, "name": "é", "rate": 0.25, "norm": 2.0, "worst": None},
        {"kind": "validation", "step": 3, "figures": {"P@1": 1.0, "far": None}, "ids": [1, 2]},
    ]
    log.close()


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with RunLog(None, tensorboard=True) as log:
        log.write("train", 1, loss=0.5)
    assert not list(tmp_path.iterdir())


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20))
def test_a_resumed_log_equals_an_unbroken_one(tmp_path_factory, one, other, torn):
    """Killed at a step, in the middle of a line, and resumed from an earlier one."""
    resumed, killed = sorted((one, other))
    folder = tmp_path_factory.mktemp("run")
    with RunLog(folder / "whole") as log:
        steps(log, 1, 10)
    with RunLog(folder / "broken") as log:
        steps(log, 1, killed + 1)
    with open(folder / "broken" / LOG, "ab") as file:
        file.write(b'{"kind": "train", "st'[:torn])
    with RunLog(folder / "broken", resumed=resumed) as log:
        assert all(line["step"] <= resumed for line in read_log(folder / "broken" / LOG))
        steps(log, resumed + 1, 10)
    assert timeless(folder / "broken" / LOG) == timeless(folder / "whole" / LOG)
    assert len(timeless(folder / "whole" / LOG)) == 12


def test_a_new_run_starts_a_new_log(tmp_path):
    for _ in range(2):
        with RunLog(tmp_path) as log:
            log.write("train", 1, loss=0.5)
        assert len(read_log(tmp_path / LOG)) == 1


def test_a_resumed_run_without_a_log_starts_one(tmp_path):
    with RunLog(tmp_path, resumed=5) as log:
        log.write("train", 6, loss=0.5)
    assert [line["step"] for line in timeless(tmp_path / LOG)] == [6]


@pytest.mark.parametrize("content", ["nonsense\n", "[1]\n", "3\n", '{"kind": "train"}\n', '{"step": "x"}\n'])
def test_a_foreign_file_is_a_sentence_and_stays(tmp_path, content):
    (tmp_path / LOG).write_text(content)
    with pytest.raises(DataError, match=r"log\.jsonl: is not the log of a run"):
        RunLog(tmp_path, resumed=1)
    assert (tmp_path / LOG).read_text() == content


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        RunLog(tmp_path / "taken")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_a_sentence(tmp_path):
    log = RunLog(tmp_path)
    log._file.close()
    log._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    with log, pytest.raises(DataError, match=r"log\.jsonl: cannot be written \(No space left"):
        log.write("train", 1, loss=0.5)


def test_tensorboard_shows_the_same_figures(tmp_path):
    with RunLog(tmp_path, tensorboard=True) as log:
        for step in range(1, 6):
            log.write("train", step, loss=float(step), name="x", figures={"P@1": step / 8})
    with RunLog(tmp_path, tensorboard=True, resumed=3) as log:
        log.write("train", 4, loss=40.0)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["scalars"] == ["train/loss", "train/figures/P@1"]
    told = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert told == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]
    assert [event.value for event in events.Scalars("train/figures/P@1")] == [1 / 8, 2 / 8, 3 / 8]
    assert len(read_log(tmp_path / LOG)) == 4


def test_a_missing_tensorboard_is_told_up_front(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DataError, match=r"needs tensorboard; pip install 'gandalf-xmc\[tensorboard\]'"):
        RunLog(tmp_path, tensorboard=True)
    assert not list(tmp_path.iterdir())
    RunLog(tmp_path).close()


def test_no_bar_where_nobody_watches():
    done = python(BAR)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_a_terminal_shows_the_training():
    ours, theirs = pty.openpty()
    wide = {**os.environ, "COLUMNS": "140", "TERM": "xterm"}
    command = [sys.executable, "-c", BAR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=wide) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:  # how Linux says that the other side has closed
            pass
        assert process.stdout.read() == b"True\n"
    os.close(ours)
    text = shown.decode()
    for part in ("stage [1] of 2", "loss 0.1235", "points/s", "P@1 41.2", "0:00:0"):
        assert part in text, part


def test_every_line_is_strict_json(tmp_path):
    with RunLog(tmp_path) as log:
        log.write("train", 1, loss=float("nan"), best=float("-inf"))

    def refuse(constant):
        raise ValueError(constant)

    line = json.loads((tmp_path / LOG).read_text(), parse_constant=refuse)
    assert line["loss"] is None and line["best"] is None
