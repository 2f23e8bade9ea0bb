"""No two runs write into one folder, and a run that was killed locks nobody out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from small_runs import at_step, small, small_splits
from train_command import SMALL, content, done, fails

import gandalf
from gandalf.cli.options import Source
from gandalf.data.claim import LOCK
from gandalf.errors import DataError
from gandalf.model import write_model
from gandalf.runs.folder import alone_in, state_of

TAKEN = "another run is writing there; wait until it has ended, or choose another name"
OPTIONS = [(), ("--resume",), ("--overwrite",)]
HOLD = """
import sys
from pathlib import Path
from gandalf.runs.folder import alone_in
with alone_in(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def lock_of(folder):
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def another_run(folder):
    """A process of its own that writes in the folder until its input ends, or until it is killed."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "mine\n"
        yield process


def unfinished(folder, monkeypatch):
    """What a run leaves that was stopped at its third step."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        at_step(patch, 2, lambda: signal.raise_signal(signal.SIGINT))
        gandalf.train(small_splits(), small(), out=folder)
    assert state_of(folder) == "unfinished"


@pytest.mark.parametrize("state", ["new", "unfinished", "finished"])
def test_a_second_run_is_refused_whatever_is_there(state, made_up, trained, tmp_path, monkeypatch):
    out = trained if state == "finished" else tmp_path / "out"
    if state == "unfinished":
        unfinished(out, monkeypatch)
    with another_run(out):
        before = {path.name for path in out.iterdir()}
        assert lock_of(out).exists() and state_of(out) == state
        for option in OPTIONS:
            assert fails(made_up, out, *SMALL, *option) == f"{out}: {TAKEN}"
        with pytest.raises(DataError, match=TAKEN):
            gandalf.train(small_splits(), small(), out=out, overwrite=True)
        assert {path.name for path in out.iterdir()} == before
    assert not lock_of(out).exists()
    assert out.exists() == (state != "new")  # the other run had made it, and left nothing there


def test_a_killed_run_locks_nobody_out(made_up, trained, tmp_path):
    out = tmp_path / "out"
    with another_run(out) as process:
        process.kill()
    assert not content(out) and lock_of(out).exists() and state_of(out) == "new"
    done(made_up, out, *SMALL)
    assert content(out).keys() == content(trained).keys()
    assert content(out)["config.json"] == content(trained)["config.json"]


def test_a_run_that_was_killed_is_resumed_though_its_lock_lies_there(trained, made_up, tmp_path, monkeypatch):
    unfinished(tmp_path / "out", monkeypatch)
    with another_run(tmp_path / "out") as process:
        process.kill()
    assert lock_of(tmp_path / "out").exists() and state_of(tmp_path / "out") == "unfinished"
    resumed = gandalf.train(small_splits(), small(), out=tmp_path / "out", resume=True)
    assert resumed.steps == 40 and state_of(tmp_path / "out") == "finished"
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["files"] == files
    assert not lock_of(tmp_path / "out").exists()


@pytest.mark.parametrize("option", OPTIONS)
def test_a_lock_that_was_left_makes_no_folder_foreign_and_no_foreign_one_a_run(option, made_up, tmp_path):
    out = tmp_path / "out"
    done(made_up, out, *SMALL)
    (out / LOCK).touch()
    assert state_of(out) == "finished"
    if option:
        done(made_up, out, *SMALL, *option)
    else:
        assert "holds a model already" in fails(made_up, out, *SMALL)
    assert state_of(out) == "finished"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text("{}")
    (foreign / LOCK).touch()
    assert "holds config.json, which is not part of a run" in fails(made_up, foreign, *SMALL, *option)
    assert content(foreign) == {"config.json": b"{}", LOCK: b""}


def test_a_run_holds_its_folder_from_the_data_to_the_end(made_up, tmp_path, monkeypatch):
    out, met = tmp_path / "out", []

    def meet(what):
        with ThreadPoolExecutor() as another, pytest.raises(DataError, match=TAKEN):
            another.submit(claim).result()
        met.append(what)

    def claim():
        with alone_in(out):
            pass

    load, write = Source.load_original, "gandalf.runs.start.write_model"
    monkeypatch.setattr(Source, "load_original", lambda self: meet("data") or load(self))
    monkeypatch.setattr(write, lambda *given, **more: meet("model") or write_model(*given, **more))
    at_step(monkeypatch, 3, lambda: meet("step"))
    done(made_up, out, *SMALL)
    assert met == ["data", "step", "model"]
    with alone_in(out):  # and no longer
        pass
    assert state_of(out) == "finished"


def test_folders_that_were_made_for_nothing_are_removed(made_up, tmp_path):
    (tmp_path / "mine").mkdir()
    for out in ("a/b/out", "mine", "mine/out"):
        assert "there is no file or folder" in fails(tmp_path / "nowhere", tmp_path / out, *SMALL)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_a_folder_that_cannot_be_locked(tmp_path):
    lock_of(tmp_path / "out").mkdir()
    with pytest.raises(DataError, match=r"cannot be written \(Is a directory\)"), alone_in(tmp_path / "out"):
        pass
