"""Every writing command with no room for its output: one sentence, and what was there before stays.

A limit on the size of files stands for a full disk: beyond it the system refuses to write.
"""

from __future__ import annotations

import os

import pytest
from command_line import after_plan, run
from writing_commands import COMMANDS, TRIES, arguments, dice_of, forked, prepare

from gandalf.data.claim import is_leftover

resource = pytest.importorskip("resource")


def files(path):
    """The contents of a file, or of the files in a folder, by their names."""
    every = [path] if path.is_file() else sorted(path.rglob("*"))
    return {str(each.relative_to(path.parent)): each.read_bytes() for each in every if each.is_file()}


def no_room(words, size):
    """Run a command that may write files of so many bytes: its exit code, and what it said."""
    reads, writes = os.pipe()

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        result = run(*words)
        os.write(writes, result.stderr.encode()[-4_000:])
        return result.exit_code

    code = forked(work)
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        return code, said.read().decode()


@pytest.mark.parametrize("name", COMMANDS)
def test_without_room_for_its_output_a_command_leaves_what_was_there(name, places):
    _, before, is_whole = COMMANDS[name]
    words, out = arguments(name, places)
    prepare(before if before == "the model" else "the same", words, out, places["MODEL"])
    largest, dice, refused = max(map(len, files(out).values())), dice_of(f"full {name}"), 0
    for size in [0, *(dice.randrange(largest) for _ in range(TRIES - 1))]:
        prepare(before, words, out, places["MODEL"])
        kept = files(out)
        code, said = no_room(words, size)
        if code == 0:  # what is written now is smaller: a log, a card
            is_whole(out)
            continue
        refused += 1
        sentence = after_plan(said)
        assert code == 2 and sentence.startswith("error: ") and sentence.count("\n") == 1, f"{size}: {said}"
        assert "written" in sentence, f"{size}: {said}"
        if name != "train":  # which keeps its checkpoints
            assert files(out) == kept, f"{size} bytes"
        left = [path.name for path in out.parent.rglob("*") if is_leftover(path.name)]
        assert not left, f"{left} are left without room for more than {size} bytes"
    assert refused
