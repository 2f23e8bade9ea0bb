"""The log of a resumed run is the log of an unbroken one; bars for people, nothing for pipes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from command_line import python
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gandalf.errors import DataError
from gandalf.train.logs import LOG, RunLog, read_log
from gandalf.train.trackers import TRACKERS

BAR = (
    "import time; from gandalf.train.logs import TrainingBar\n"
    "with TrainingBar('stage [1] of 2', 4_000, done=1_000) as bar:\n"
    "    print(bar.visible)\n"
    "    for step in range(3):\n"
    "        bar.advance(1_000, loss=0.12345 if step else None)\n"
    "        bar.show_figure('P@1 41.2')\n"
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
    with RunLog(None, trackers=["tensorboard"]) as log:
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
    with RunLog(tmp_path, trackers=["tensorboard"]) as log:
        for step in range(1, 6):
            log.write("train", step, loss=float(step), name="x", figures={"P@1": step / 8})
    with RunLog(tmp_path, trackers=["tensorboard"], resumed=3) as log:
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
        RunLog(tmp_path, trackers=["tensorboard"])
    assert not list(tmp_path.iterdir())
    RunLog(tmp_path).close()


@pytest.fixture
def mlflow_client(tmp_path, monkeypatch):
    tracking = pytest.importorskip("mlflow.tracking", reason="needs the extra mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return tracking.MlflowClient()


@pytest.mark.filterwarnings("ignore")  # of MLflow's own parts
def test_mlflow_shows_the_same_figures_in_one_run(tmp_path, mlflow_client):
    folder = tmp_path / "run"
    with RunLog(folder, trackers=["mlflow"]) as log:
        for step in range(1, 4):
            log.write("train", step, loss=float(step), name="x", figures={"P@1": step / 8})
    with RunLog(folder, trackers=["mlflow"], resumed=3) as log:
        log.write("train", 4, loss=40.0)
    (first,) = [line for line in read_log(folder / LOG) if line["kind"] == "tracked"]
    experiment = mlflow_client.get_experiment_by_name("gandalf")
    (run,) = mlflow_client.search_runs([experiment.experiment_id])
    assert run.info.run_id == first["id"] and run.info.run_name == "run"
    told = mlflow_client.get_metric_history(first["id"], "train/loss")
    assert [(each.step, each.value) for each in told] == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0)]
    rates = mlflow_client.get_metric_history(first["id"], "train/figures/P_at_1")
    assert [each.value for each in rates] == [1 / 8, 2 / 8, 3 / 8]
    with RunLog(tmp_path / "other", trackers=["mlflow"]) as log:
        log.write("train", 1, loss=1.0)
    assert len(mlflow_client.search_runs([experiment.experiment_id])) == 2


@pytest.mark.filterwarnings("ignore")  # of its own parts
def test_weights_and_biases_gets_the_same_figures(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = tmp_path / "run"
    with RunLog(folder, trackers=["wandb"]) as log:
        log.write("train", 1, loss=0.5, figures={"P@1": 0.25})
    (line,) = [line for line in read_log(folder / LOG) if line["kind"] == "tracked"]
    (written,) = (tmp_path / "wandb").glob(f"offline-run-*-{line['id']}/*.wandb")
    names = (b"train/loss", b"train/figures/P@1")
    for _ in range(100):  # its own process writes the file, and may do so after the run's end
        if all(name in written.read_bytes() for name in names):
            return
        time.sleep(0.1)
    pytest.fail(f"{written} holds {written.read_bytes()!r:.200}")


class Kept:
    """Stands in for a tracker: keeps what it is told."""

    opened: ClassVar[list] = []

    def __init__(self, folder, resumed, before):
        self.id, self.told, self.closed = before or f"id{len(self.opened)}", [], False
        self.opened.append(self)

    def add_scalar(self, tag, scalar_value, global_step):
        self.told.append((tag, scalar_value, global_step))

    def close(self):
        self.closed = True


def test_a_resumed_run_goes_on_in_the_run_of_its_tracker(tmp_path, monkeypatch):
    monkeypatch.setattr(Kept, "opened", [])
    monkeypatch.setitem(TRACKERS, "kept", Kept)
    for resumed in (None, 3, None):
        with RunLog(tmp_path, trackers=["kept"], resumed=resumed) as log:
            log.write("train", 4, loss=0.5, name="x", figures={"P@1": 1.0, "far": float("inf")})
    assert [each.id for each in Kept.opened] == ["id0", "id0", "id2"]
    expected = [("train/loss", 0.5, 4), ("train/figures/P@1", 1.0, 4)]
    assert all(each.told == expected and each.closed for each in Kept.opened)


@pytest.mark.parametrize(
    ("module", "name"), [("mlflow.tracking", "mlflow"), ("wandb", "wandb"), (None, "comet")]
)
def test_a_tracker_that_is_not_there_is_a_sentence(tmp_path, monkeypatch, module, name):
    if module is not None:
        monkeypatch.setitem(sys.modules, module, None)
    sentence = "there is no tracker 'comet'" if module is None else rf"gandalf-xmc\[{name}\]"
    with pytest.raises(DataError, match=sentence):
        RunLog(tmp_path, trackers=[name])
    assert not list(tmp_path.iterdir())


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
