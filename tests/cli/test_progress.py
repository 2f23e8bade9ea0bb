"""Bars for people, nothing for pipes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest
from command_line import python

from gandalf.progress import duration_in_words

CODE = (
    "import time; from gandalf.progress import meter, track\n"
    "for _ in track(range(3), 'walking'): time.sleep(0.15)\n"
    "with meter('reading', 2) as bar:\n"
    "    bar.advance(1); time.sleep(0.15); bar.advance(1)\n"
    "print('done')\n"
)


def test_nothing_is_written_where_nobody_watches():
    done = python(CODE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


LINES = "import gandalf.progress as p; p.show_progress_by_lines(); p.EVERY = {every}\n"


@pytest.mark.parametrize(("every", "lines"), [(30.0, 0), (0.0, 5)])
def test_a_command_writes_lines_where_no_terminal_shows_bars(every, lines):
    done = python(LINES.format(every=every) + CODE)
    assert (done.returncode, done.stdout) == (0, "done\n")
    told = done.stderr.splitlines()
    assert len(told) == lines
    if told:
        assert re.fullmatch(r"walking: 33%, \d+ s left.*", told[0])  # a machine that is busy sleeps longer
        assert told[2].startswith("walking: 100%")
        assert told[-1] == "reading: 100%, 0 s left"


def test_a_bar_above_tells_it_all():
    nested = "from gandalf.progress import without_bars, track\nwith without_bars(): list(track([1], 'x'))\n"
    assert python(LINES.format(every=0.0) + nested).stderr == ""


def test_training_is_told_by_lines_with_its_figure():
    training = (
        "from gandalf.train.logs import TrainingBar\n"
        "with TrainingBar('astec', 400, done=100) as bar:\n"
        "    bar.show_figure('P@1 41.2'); bar.advance(100)\n"
    )
    (line,) = python(LINES.format(every=0.0) + training).stderr.splitlines()
    assert line.startswith("astec: 50%, ") and line.endswith("left, P@1 41.2")


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (44.6, "45 s"), (89, "89 s"), (90, "1.5 min"), (7200, "2.0 h")]
)
def test_lengths_of_time(seconds, words):
    assert duration_in_words(seconds) == words


def test_a_terminal_shows_what_goes_on():
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, check=True)
    shown = ""
    os.close(theirs)
    while "reading" not in shown:
        shown += os.read(ours, 4096).decode()
    assert done.stdout == b"done\n"
    assert "walking" in shown
