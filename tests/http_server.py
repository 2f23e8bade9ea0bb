"""`gandalf serve` as a process of its own on loopback, and an application without one."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager

import httpx

TOKEN = "0123456789abcdef"
PATIENCE = 120  # seconds that a test waits on a machine that is busy
BEARER = {"authorization": f"Bearer {TOKEN}"}


@contextmanager
def process(*words: object):
    """The running command and its address; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "gandalf", "serve", *map(str, words), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            found = None
            while found is None:
                line = started.stdout.readline()
                assert line, started.stderr.read()
                found = re.search(r"serving at (http://\S+/)", line)
            yield started, found.group(1)
        finally:
            started.kill()


def token_file(folder):
    path = folder / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def refused(answer: httpx.Response, status: int) -> str:
    """The one sentence that an answer holds."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json" and list(answer.json()) == ["error"]
    sentence = answer.json()["error"]
    assert sentence and "\n" not in sentence
    return sentence
