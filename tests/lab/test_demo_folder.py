"""`gandalf demo` as a command: what it prints and leaves, and that nothing of anyone's is lost."""

from __future__ import annotations

import json

import command_line
import pytest
from small_demo import NAMES, done, fails, small

import gandalf
from gandalf.data.dataset import Splits

pytestmark = pytest.mark.slow


def test_what_is_printed(made_demo):
    out, shown = made_demo
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("training ")] == [
        f"{name}:" for name in NAMES
    ]
    for text in (
        "PSP@5",
        "C@5",
        "new texts (1,502)",
        "known items",
        "compress a file",
        "default - G, new texts",
    ):
        assert text in shown
    assert f"gandalf predict {out / 'model'} 'compress a file'" in shown and str(out / "index.html") in shown
    assert f"gandalf serve {out / 'model'} --baseline {out / 'baseline'} --data man   # a page" in shown
    assert sorted(path.name for path in out.iterdir()) == [
        "baseline",
        "index.html",
        "model",
        "predictions",
        "results.json",
    ]
    assert not list(out.parent.glob(".*"))


def test_json_is_the_results(tmp_path):
    gandalf.export(small(), tmp_path / "data", "raw")
    shown = done(tmp_path / "out", "--data", tmp_path / "data", "--steps", 2, "--json")
    assert json.loads(shown) == json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))


def test_a_demo_is_replaced_only_when_told_to(made_demo, tmp_path):
    before = (made_demo[0] / "results.json").read_bytes()
    assert "holds a demo already; choose another OUT" in fails(made_demo[0])
    assert (made_demo[0] / "results.json").read_bytes() == before
    gandalf.export(small(), tmp_path / "data", "raw")
    out, arguments = tmp_path / "out", ("--data", tmp_path / "data", "--steps", 2)
    done(out, *arguments)
    done(out, *arguments, "--seed", 1, "--overwrite")
    assert json.loads((out / "results.json").read_text("utf-8"))["recipe"]["seed"] == 1


@pytest.mark.parametrize(
    "inside", ["mine.txt", "model/mine.txt", "baseline/mine.txt", "predictions/mine.txt"]
)
def test_what_is_someone_elses_is_never_removed(tmp_path, inside):
    gandalf.export(small(), tmp_path / "data", "raw")
    out, arguments = tmp_path / "out", ("--data", tmp_path / "data", "--steps", 2)
    done(out, *arguments)
    (out / inside).write_text("mine", "utf-8")
    assert "mine.txt" in fails(out, *arguments, "--overwrite")
    assert (out / inside).read_text("utf-8") == "mine" and (out / "index.html").is_file()


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("mine", "utf-8")
    assert "index.html, which is not part of a demo" in fails(tmp_path, "--overwrite")
    assert "is a file, but a folder is needed" in fails(tmp_path / "index.html")


def test_bad_input_costs_no_earlier_demo(tmp_path):
    gandalf.export(small(), tmp_path / "data", "raw")
    done(tmp_path / "out", "--data", tmp_path / "data", "--steps", 2)
    assert "no bundled data set" in fails(tmp_path / "out", "--data", tmp_path / "nothing", "--overwrite")
    gandalf.export(Splits(small().train), tmp_path / "alone", "raw")
    assert "no test split" in fails(tmp_path / "out", "--data", tmp_path / "alone", "--overwrite")
    assert (tmp_path / "out" / "model" / "config.json").is_file()


def test_bad_input_leaves_nothing(tmp_path):
    splits = small()
    gandalf.export(Splits(splits.train), tmp_path / "alone", "raw")
    assert "has no test split" in fails(tmp_path / "out", "--data", tmp_path / "alone")
    assert "no bundled data set" in fails(tmp_path / "out", "--data", tmp_path / "nothing")
    assert "did you mean astec?" in fails(tmp_path / "out", "--system", "aztec")
    gandalf.export(splits, tmp_path / "data", "raw")
    assert "is part of the data" in fails(tmp_path / "data" / "out", "--data", tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "data"]


def test_the_command_line_starts_without_the_engine():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from typer.testing import CliRunner\nfrom gandalf.cli.main import app\n"
        "found = CliRunner().invoke(app, ['demo', 'nowhere'])\nprint(found.exit_code, found.stderr)"
    )
    result = command_line.python(code)
    assert result.stdout.startswith("2 error: the demo needs torch; pip install"), result.stderr
