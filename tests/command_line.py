"""The command line as a user meets it: it does what was asked, or ends with one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from gandalf.cli.main import app


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> str:
    """What the command prints."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def done_json(*words: object) -> Any:
    return json.loads(done(*words, "--json"))


def fails(*words: object) -> str:
    """The sentence that the command ends with; it has printed nothing else, unless training had begun."""
    result = run(*words)
    assert result.exit_code == 2 and result.stdout == "", result.output
    said = after_plan(result.stderr)
    assert said.count("\n") == 1 and said.startswith("error: "), result.stderr
    return said.removeprefix("error: ").rstrip()


def after_plan(stderr: str) -> str:
    """What stands below the line that tells how much memory training will take, where there is one."""
    first, _, rest = stderr.partition("\n")
    return rest if first.startswith("training takes about") and first.endswith("are free") else stderr


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, where libraries can be hidden and limits set."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
