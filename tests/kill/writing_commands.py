"""Commands that write, what they find under the name of OUT, and how their output is checked."""

from __future__ import annotations

import os
import random
import shutil
import warnings

from command_line import done
from train_command import SMALL

import gandalf
from gandalf.model import load_model
from gandalf.slim import SlimPredictor

TRIES = int(os.environ.get("KILL_TRIES", "2"))  # tries for each command; `make kill-test` sets more
SEED = int(os.environ.get("KILL_SEED", "0"))


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


def arguments(name, places):
    """The words of a command, and the file or folder that it writes."""
    pattern = COMMANDS[name][0]
    return [places.get(word, word) for word in pattern], next(
        places[word] for word in pattern if str(word).startswith("OUT")
    )


def prepare(before, words, out, model):
    """Bring OUT into the state in which the command finds it."""
    if before != "the same" or not out.exists():
        shutil.rmtree(out, ignore_errors=True)
    if before == "the model":
        shutil.copytree(model, out)
    if before == "the same" and not out.exists():
        done(*words)


def forked(work):
    """Do something in a process that ends when it is done; return how it ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that are not in the child
        pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os._exit(work())
    finally:
        os._exit(1)


def dice_of(name):
    """The same moments on every run, and others for another seed."""
    return random.Random(f"{SEED} {name}")
