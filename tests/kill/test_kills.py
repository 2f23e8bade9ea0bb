"""Every writing command, killed at random moments, then checked, and started again to its end.

A moment is a call that changes names on the disk: the process ends there without a word and without cleaning
up. Bounded and seeded in `make test`; `make kill-test` draws more moments, and KILL_SEED=7 others.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from importlib.util import find_spec

import pytest
from command_line import done, run
from tiny_set import write_tiny_set
from train_command import SMALL

import gandalf
from gandalf.data.claim import is_leftover
from gandalf.model import load_model
from gandalf.slim import SlimPredictor

TRIES = int(os.environ.get("KILL_TRIES", "2"))  # moments for each command
SEED = int(os.environ.get("KILL_SEED", "0"))
MOMENTS = ("replace", "rename", "mkdir", "unlink", "rmdir", "fsync")
KILLED = 137

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


def model_is_whole(out):
    assert load_model(out).num_labels >= 5


def export_is_whole(out):
    assert SlimPredictor(out).num_labels == 5


def data_is_whole(out):
    assert len(gandalf.load(out).train) == 8


def file_is_whole(out):
    assert out.read_bytes().endswith(b"\n") or out.stat().st_size > 200


# Name -> words; what is in OUT before, "the same" being from an earlier run; the check.
COMMANDS = {
    "add-labels": (("add-labels", "MODEL", "LABELS", "-o", "OUT"), "nothing", model_is_whole),
    "add-labels over": (
        ("add-labels", "MODEL", "LABELS", "-o", "OUT", "--overwrite"),
        "the same",
        model_is_whole,
    ),
    "add-labels in place": (("add-labels", "OUT", "LABELS", "--in-place"), "the model", model_is_whole),
    "add-examples": (
        ("add-examples", "MODEL", "MORE", "-o", "OUT", "--overwrite"),
        "the same",
        model_is_whole,
    ),
    "augment": (("augment", "DATA", "OUT"), "nothing", data_is_whole),
    "augment over": (("augment", "DATA", "OUT", "--overwrite"), "the same", data_is_whole),
    "predict": (
        ("predict", "MODEL", "disk usage", "-o", "OUT.csv", "--overwrite"),
        "the same",
        file_is_whole,
    ),
    "graph": (("graph", "DATA", "--save", "OUT.npz"), "the same", file_is_whole),
    "export": (("export", "MODEL", "OUT", "--overwrite"), "the same", export_is_whole),
    "train": (
        ("train", "POINTS", "OUT", *SMALL, "--checkpoint-minutes", "0", "--resume"),
        "nothing",
        model_is_whole,
    ),
}
LONG = {"export", "train"}  # some seconds for each moment: in `make kill-test` alone


def child(words, last, told):
    """Run a command in a process that dies at one of its moments; 0: at none. Return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that are not in the child
        pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    met = 0

    def watched(call):
        def wrapped(*given, **more):
            nonlocal met
            met += 1
            if met == last:
                os._exit(KILLED)
            return call(*given, **more)

        return wrapped

    try:
        for name in MOMENTS:
            setattr(os, name, watched(getattr(os, name)))
        code = run(*words).exit_code
        told.write_text(str(met))
        os._exit(code)
    finally:
        os._exit(1)


@pytest.fixture
def places(small_folder, made_up, tmp_path):
    (tmp_path / "new.txt").write_text("zstd files\n")
    (tmp_path / "more.csv").write_text("text,labels\npack a folder,L0\n")
    (tmp_path / "work").mkdir()
    out = tmp_path / "work" / "out"
    found = {"MODEL": small_folder, "POINTS": made_up, "DATA": write_tiny_set(tmp_path / "data"), "OUT": out}
    found |= {f"OUT{suffix}": out.with_suffix(suffix) for suffix in (".csv", ".npz")}
    return found | {"LABELS": tmp_path / "new.txt", "MORE": tmp_path / "more.csv"}


def prepare(before, words, out, model):
    """Bring OUT into the state in which the command finds it."""
    if before != "the same" or not out.exists():
        shutil.rmtree(out, ignore_errors=True)
    if before == "the model":
        shutil.copytree(model, out)
    if before == "the same" and not out.exists():
        done(*words)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_the_old_or_the_new_and_does_its_work_again(name, places, tmp_path):
    if name in LONG and TRIES < 10:
        pytest.skip("takes minutes; make kill-test runs it")
    if name == "export" and find_spec("onnxscript") is None:
        pytest.skip("onnxscript is optional: extra [onnx]")
    pattern, before, is_whole = COMMANDS[name]
    words = [places.get(word, word) for word in pattern]
    out = next(places[word] for word in pattern if str(word).startswith("OUT"))
    told = tmp_path / "told"
    prepare(before, words, out, places["MODEL"])
    assert child(words, 0, told) == 0, run(*words).output
    writes = int(told.read_text())
    dice = random.Random(f"{SEED} {name}")
    for moment in dice.sample(range(1, writes + 1), min(writes, TRIES)):
        prepare(before, words, out, places["MODEL"])
        assert child(words, moment, told) == KILLED
        if before != "nothing":
            is_whole(out)  # the old or the new, under its name again if the kill came between two names
        if before == "nothing" and name != "train":
            shutil.rmtree(out, ignore_errors=True)  # whether it was the last moment or the first
        done(*words)
        is_whole(out)
        left = [path.name for path in out.parent.rglob("*") if is_leftover(path.name)]
        assert not left, f"{left} are left of moment {moment} of {writes}"
