"""The command line as a whole: what help lists, what it shows of options, and what is imported for it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import done, python, run

import gandalf
from gandalf.cli.listed import GROUPS, NAMES, load_command

CLI = Path(gandalf.__file__).parent / "cli"


def modules_after(*words: object) -> set[str]:
    """Modules that are imported when the command has run."""
    code = (
        "import sys\nfrom gandalf.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('\\nMODULES', *sys.modules)"
    )
    result = python(code, *words)
    assert result.returncode == 0, result.stderr
    return {*result.stdout.rpartition("MODULES")[2].split()}


def test_every_command_is_listed_once_in_a_group():
    assert len(set(NAMES)) == len(NAMES)
    shown = done("--help")
    places = [shown.index(f" {group} ") for group in GROUPS]
    assert places == sorted(places)
    for lines in GROUPS.values():
        for name, line in lines.items():
            assert f" {name} " in shown
            assert line.endswith(".") and load_command(name).name == name
    modules = {path.stem for path in CLI.glob("*.py") if path.read_text("utf-8").startswith('"""`gandalf ')}
    assert modules == {name.replace("-", "_") for name in NAMES}


@pytest.mark.parametrize("words", [(), ("predict",), ("train",), ("check",)])
def test_flags_are_shown_without_a_type(words):
    shown = done(*words, "--help")
    assert "--help" in shown and "<bool>" not in shown and "bool" not in shown.lower()


def test_a_command_that_is_not_there():
    result = run("predic")
    assert result.exit_code == 2 and "Did you mean 'predict'" in result.stderr


def test_help_imports_no_library_of_numbers():
    assert not {"numpy", "scipy", "torch", "gandalf.cli.train"} & modules_after("--help")
    assert "torch" not in modules_after("predict", "--help")


def test_a_prediction_of_one_text_imports_no_pytorch(small_folder):
    """PyTorch, its compiler and SciPy's optimisers take seconds of processor time."""
    found = modules_after("predict", small_folder, "gzip")
    assert "gandalf.cli.predict" in found
    assert not {"torch", "torch._dynamo", "scipy.optimize", "sympy"} & found


@pytest.mark.parametrize("name", NAMES)
def test_help_teaches_by_examples_on_a_narrow_terminal(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    prose = done(name, "--help").partition("╭")[0].strip()
    paragraphs = [[line.strip() for line in part.splitlines()] for part in re.split(r"\n\s*\n", prose)]
    examples = [part for part in paragraphs if part[0] in ("Example:", "Examples:")]
    assert any(line.startswith(f"gandalf {name}") for part in examples for line in part), prose
    assert "[bold]" not in prose
    for part in (part for part in paragraphs if part not in examples):
        for line, after in pairwise(part):  # a line is full: the next word would pass the edge
            assert len(f"{line} {after.split()[0]}") > 78, line
