"""Every writing command, killed at random moments, then checked, and started again to its end.

A moment is a call that changes names on the disk: the process ends there without a word and without cleaning
up. Bounded and seeded in `make test`; `make kill-test` draws more moments, and KILL_SEED=7 others.
"""

from __future__ import annotations

import os
import shutil

import pytest
from command_line import done, run
from writing_commands import COMMANDS, TRIES, arguments, dice_of, forked, prepare

from gandalf.data.claim import is_leftover
from gandalf.model import load_model

pytestmark = pytest.mark.slow

MOMENTS = ("replace", "rename", "mkdir", "unlink", "rmdir", "fsync")
KILLED, NUM_LABELS = 137, 5


def child(words, last, told):
    """Run a command in a process that dies at one of its moments; 0: at none. Return how it ended."""
    met = 0

    def watched(call):
        def wrapped(*given, **more):
            nonlocal met
            met += 1
            if met == last:
                os._exit(KILLED)
            return call(*given, **more)

        return wrapped

    def work():
        for name in MOMENTS:
            setattr(os, name, watched(getattr(os, name)))
        code = run(*words).exit_code
        told.write_text(str(met))
        return code

    return forked(work)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_the_old_or_the_new_and_does_its_work_again(name, places, tmp_path):
    _, before, is_whole = COMMANDS[name]
    words, out = arguments(name, places)
    told = tmp_path / "told"
    prepare(before, words, out, places["MODEL"])
    assert child(words, 0, told) == 0, run(*words).output
    writes = int(told.read_text())
    for moment in dice_of(name).sample(range(1, writes + 1), min(writes, TRIES)):
        prepare(before, words, out, places["MODEL"])
        assert child(words, moment, told) == KILLED
        if before != "nothing":
            is_whole(out)  # the old or the new, under its name again if the kill came between two names
        if before == "nothing" and name != "train":
            shutil.rmtree(out, ignore_errors=True)  # whether it was the last moment or the first
        if before == "the model" and load_model(out).num_labels > NUM_LABELS:
            prepare(before, words, out, places["MODEL"])  # the label is in: the kill came after the work
        done(*words)
        is_whole(out)
        left = [path.name for path in out.parent.rglob("*") if is_leftover(path.name)]
        assert not left, f"{left} are left of moment {moment} of {writes}"
