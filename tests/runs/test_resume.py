"""Real processes, killed and interrupted: the model in the end is that of an unbroken run, to the bit.

Bitwise on a CPU. The hard negatives of a shortlist come from an index that several threads may build; one
thread is set here, so that the test holds on any machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gandalf
from gandalf.runs.folder import state_of
from gandalf.train.logs import read_log

pytestmark = pytest.mark.slow

STEPS = 60
SETTINGS = {
    "every": ("labels.kind=every", "labels.block=100"),
    "shortlist": ("labels.kind=shortlist", "labels.random=20", "labels.hard=3"),
}
PATIENCE = 120  # seconds that a step may take on a machine that is busy


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "small"
    gandalf.export(gandalf.synthetic(500, 250, seed=2).splits, folder, "raw")
    return folder


def command(data: Path, out: Path, *more: str) -> list[str]:
    settings = ("encoder.dim=24", "training.batch=32", "device=cpu")
    sets = [part for setting in settings for part in ("--set", setting)]
    named = ["--targets", "ratio", "--steps", str(STEPS)]
    return [sys.executable, "-m", "gandalf", "train", str(data), str(out), *named, *sets, *more]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(arguments: list[str]) -> str:
    process = start(arguments)
    out, errors = process.communicate(timeout=10 * PATIENCE)
    assert process.returncode == 0, out + errors
    return out


def wait_for(happened, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if happened():
            return
        time.sleep(0.0005)
    process.kill()
    raise AssertionError(f"it did not happen: {process.communicate()}")


def lines(out: Path) -> int:
    """Lines of the log so far."""
    path = out / "log.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def being_written(out: Path) -> bool:
    """Whether a checkpoint is half written at this moment."""
    folder = out / "checkpoints"
    names = os.listdir(folder) if folder.is_dir() else []
    return any(name.startswith(".checkpoint-") and name.endswith(".part") for name in names)


def log_of(out: Path) -> list[dict[str, object]]:
    return [
        {name: value for name, value in line.items() if name != "time"}
        for line in read_log(out / "log.jsonl")
    ]


def assert_same(out: Path, whole: Path) -> None:
    assert state_of(out) == state_of(whole) == "finished"
    assert sorted(os.listdir(out)) == sorted(os.listdir(whole))
    same = {"model.safetensors", "config.json", "labels.jsonl", "words.json", "recipe.toml"}
    for name in same:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert log_of(out) == log_of(whole)
    one, other = (json.loads((each / "metrics.json").read_text()) for each in (out, whole))
    for each in (one, other):
        assert each["training"].pop("seconds") > 0 and each["training"].pop("peak_memory_bytes") > 0
        assert len([row.pop("seconds") for row in each["baselines"]]) == 2
        each["baselines"] = each["baselines"][0]  # omikuji, which makes the other, takes no seed
    assert one == other


@pytest.mark.parametrize("labels", SETTINGS)
def test_killed_at_any_moment(labels, data, tmp_path):
    sets = [part for setting in SETTINGS[labels] for part in ("--set", setting)]
    out, whole = tmp_path / "out", tmp_path / "whole"
    finish(command(data, whole, *sets))
    often = command(data, out, *sets, "--checkpoint-minutes", "0", "--resume")
    moments = [
        lambda: (out / "recipe.toml").exists(),
        lambda: lines(out) > 7,
        lambda: lines(out) > 15 and being_written(out),
        lambda: lines(out) > 30 and being_written(out),
        lambda: lines(out) > 45,
    ]
    for moment in moments:
        process = start(often)
        wait_for(moment, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL and state_of(out) == "unfinished"
    finish(command(data, out, *sets, "--resume"))
    assert_same(out, whole)


def test_killed_while_the_model_is_written(data, tmp_path):
    """Or just after that, when the checkpoints are still to be removed."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    finish(command(data, whole))
    process = start(command(data, out, "--checkpoint-minutes", "0"))
    wait_for(lambda: (out / "labels.jsonl").exists(), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(command(data, out, "--resume"))
    assert_same(out, whole)


@pytest.mark.parametrize(
    ("labels", "sent"), list(zip(SETTINGS, (signal.SIGINT, signal.SIGTERM), strict=True))
)
def test_ctrl_c_and_the_signal_of_kill(labels, sent, data, tmp_path):
    sets = [part for setting in SETTINGS[labels] for part in ("--set", setting)]
    sets += ["--steps", "300"]
    out, whole = tmp_path / "out", tmp_path / "whole"
    finish(command(data, whole, *sets))
    process = start(command(data, out, *sets))
    wait_for(lambda: lines(out) > 20, process)
    process.send_signal(sent)
    shown, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and shown == ""
    plan, said = said.split("\n", 1)
    assert plan.startswith("training takes about") and "labels at a time" in plan
    assert said.startswith("stopped after step ") and said.count("\n") == 1
    assert said.endswith(" of 300; go on with the same command and --resume\n")
    finish(command(data, out, *sets, "--resume"))
    assert_same(out, whole)
