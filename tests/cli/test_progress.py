"""Bars for people, nothing for pipes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from command_line import python

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


def test_a_terminal_shows_what_goes_on():
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, check=True)
    shown = ""
    os.close(theirs)
    while "reading" not in shown:
        shown += os.read(ours, 4096).decode()
    assert done.stdout == b"done\n"
    assert "walking" in shown
