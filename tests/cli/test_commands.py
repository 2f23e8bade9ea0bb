"""The command line as a whole: what help lists, what it shows of options, and what is imported for it."""

from __future__ import annotations

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
