"""More ranks, every system, and torchrun as a user starts it: killed, stopped, resumed, refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rank_jobs
import torch
from safetensors.torch import load_file
from small_runs import small_splits
from small_systems import small_system
from test_ranks import COURSES, recipes

from gandalf.data.export import export
from gandalf.data.synthetic import synthetic
from gandalf.runs.folder import RunPlace, state_of
from gandalf.runs.session import run_training
from gandalf.train.logs import read_log
from gandalf.train.parallel.ranks import Ranks

pytestmark = pytest.mark.cluster

SYSTEMS = ("astec", "decaf", "eclare", "inceptionxml", "inceptionxml-lf", "siamesexml", "ngame", "renee")
SHORT = ("training.steps=10", "labels.kind=every", "validation.every=0.3", "encoder.last_dropout=0")
STEPS = 400


@pytest.fixture(scope="module")
def asked(small_pretrained):
    """All courses and all systems."""
    whole = {system: small_system(system, small_pretrained, *SHORT) for system in SYSTEMS}
    return recipes() | whole


@pytest.fixture(scope="module")
def alone(asked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        rank_jobs.nothing_is_dropped(patch.setattr)
        for name, recipe in asked.items():
            rank_jobs.keep(
                run_training(small_splits(), recipe, RunPlace(folder / name)), Ranks(), folder / name
            )
    return folder


@pytest.fixture(scope="module", params=[2, 4])
def several(asked, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"by-{request.param}")
    rank_jobs.over_ranks(request.param, rank_jobs.train_all, asked, folder)
    return folder


@pytest.mark.parametrize("name", [*COURSES, *SYSTEMS])
def test_ranks_train_the_model_of_one_process(name, alone, several):
    rank_jobs.assert_alike(alone / name, several / name)


# ---- torchrun


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "small"
    export(synthetic(500, 251, seed=2).splits, folder, "raw")
    return folder


def started(ranks: int, data: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    settings = ("encoder.dim=24", "training.batch=32", "device=cpu", "labels.block=40")
    sets = [part for setting in settings for part in ("--set", setting)]
    launched = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-addr", "127.0.0.1"]
    launched += ["--master-port", str(rank_jobs.free_port())]
    command = ["-m", "gandalf", "train", str(data), str(out), "--targets", "ratio", "--steps", str(STEPS)]
    return subprocess.Popen(
        [sys.executable, *(launched if ranks > 1 else []), *command, *sets, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


def finished(*given) -> tuple[str, str]:
    process = started(*given)
    out, errors = process.communicate(timeout=rank_jobs.PATIENCE)
    assert process.returncode == 0, out + errors
    return out, errors


def wait_for_checkpoint(process: subprocess.Popen[str], out: Path, number: int) -> None:
    end = time.monotonic() + rank_jobs.PATIENCE
    while time.monotonic() < end and process.poll() is None:
        names = os.listdir(out / "checkpoints") if (out / "checkpoints").is_dir() else []
        if any(name.startswith("checkpoint-") and int(name[11:]) >= number for name in names):
            return
        time.sleep(0.005)
    process.kill()
    raise AssertionError(f"no checkpoint: {process.communicate()}")


def process_of(rank: int, launcher: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    (found,) = (
        each for each in children if f"RANK={rank}" in Path(f"/proc/{each}/environ").read_text().split("\0")
    )
    return int(found)


def model(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model.safetensors")


@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_rank_stops_the_job_and_resuming_gives_the_unbroken_run(lost, data, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    finished(2, data, whole)
    process = started(2, data, out, "--checkpoint-minutes", "0")
    wait_for_checkpoint(process, out, 50)
    os.kill(process_of(lost, process), signal.SIGKILL)
    shown, said = process.communicate(timeout=rank_jobs.PATIENCE)
    assert process.returncode != 0 and shown == ""
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert line.startswith(f"error: rank {lost} of 2 was lost at step ")
    assert "; the last checkpoint is of step " in line and line.endswith("run the same command with --resume")
    assert state_of(out) == "unfinished"
    finished(2, data, out, "--resume")
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    steps = [[line["step"] for line in read_log(each / "log.jsonl")] for each in (out, whole)]
    assert steps[0] == steps[1]


def test_a_killed_job_goes_on_with_any_number_of_ranks(data, tmp_path):
    """Here nothing is dropped, since what a rank drops is its own."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    exact = ("--set", "encoder.dropout=0", "--set", "training.precision=float32")
    finished(1, data, whole, *exact)
    for number, ranks in enumerate((3, 1, 4)):
        process = started(ranks, data, out, *exact, "--checkpoint-minutes", "0", "--resume")
        wait_for_checkpoint(process, out, 50 * (number + 1))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=rank_jobs.PATIENCE)
    finished(2, data, out, *exact, "--resume")
    found, expected = model(out), model(whole)
    assert found.keys() == expected.keys()
    for name in found:
        scale = float(expected[name].abs().max())
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=2e-3 * scale, msg=name)
    assert sorted(os.listdir(out)) == sorted(os.listdir(whole))


def test_ctrl_c_leaves_a_checkpoint(data, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    finished(2, data, whole)
    process = started(2, data, out, "--checkpoint-minutes", "0")
    wait_for_checkpoint(process, out, 20)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=rank_jobs.PATIENCE)
    assert process.returncode != 0
    (line,) = (line for line in said.splitlines() if line.startswith("stopped after step "))
    assert line.endswith(f" of {STEPS}; go on with the same command and --resume")
    finished(2, data, out, "--resume")
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_folder_that_is_taken_is_refused_once(data, tmp_path):
    (tmp_path / "mine").write_text("kept")
    process = started(2, data, tmp_path)
    shown, said = process.communicate(timeout=rank_jobs.PATIENCE)
    assert process.returncode != 0 and shown == ""
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert line.startswith(f"error: {tmp_path}: holds mine, which is not part of a run")
    assert os.listdir(tmp_path) == ["mine"]


def test_more_ranks_than_labels_are_refused_once(tiny, tmp_path):
    process = started(5, tiny, tmp_path / "out", "--validation", "0")
    _, said = process.communicate(timeout=rank_jobs.PATIENCE)
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert line.startswith("error: 5 ranks cannot share 4 labels: each needs one of its own")
    assert not (tmp_path / "out").exists()
