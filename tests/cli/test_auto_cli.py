"""`--targets auto` from Python and by command: what is chosen is trained, and the reason is shown."""

from __future__ import annotations

import json
import re

import command_line
import pytest
from made_up_choice import asked, best_of, faked, made_up

import gandalf
from gandalf.errors import DataError
from gandalf.runs.choose import LIGHT_WEIGHT, choose
from gandalf.runs.start import train


def test_train_trains_what_was_chosen(monkeypatch):
    faked(monkeypatch, best_of({"self": 0.9, "self with weight 0.3": 1.0}))
    trained = train(made_up(), asked("training.steps=1"))
    assert trained.details["targets_used"] == "self" and trained.label_points == 180
    assert trained.model.config["recipe"]["targets"]["label_weight"] == LIGHT_WEIGHT


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "made-up"
    gandalf.export(made_up(), folder, "raw")
    return folder


def command(data, out, *more):
    fixed = ("--targets", "auto", "--steps", "2", "--device", "cpu")
    return command_line.run("train", data, out, *fixed, *more)


def test_the_table_is_shown_before_the_training(data, tmp_path, monkeypatch):
    faked(monkeypatch, best_of({"self": 0.9}))
    result = command(data, tmp_path / "out")
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert shown.startswith("Targets tried on held-out training points ")
    assert "P@1 on new texts, against the default" in shown and "text is a label's" not in shown
    choice = json.loads((tmp_path / "out" / "metrics.json").read_text())["choice"]
    before = shown.partition("Baselines on the same held-out points")[0]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in before.splitlines() if "│" in line]
    assert [row[1:3] for row in rows] == [
        [each["targets"], f"{each['label_weight']:g}"] for each in choice["tried"]
    ]
    assert [row[1] for row in rows if row[0] == "*"] == ["self"]
    assert [row[1] for row in rows if row[-1] == "the default"] == ["shrunk"]
    for row, each in zip(rows, choice["tried"], strict=True):
        assert row[3:6] == [f"{each['figures'][name]:.2f}" for name in ("P@1", "new_text", "PSP@5")]
        if found := each["difference"]:
            assert row[6] == f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"
    assert shown.index(f"Targets: {choice['why']}") < shown.index("astec on made-up")
    assert choice["chosen"] == {"targets": "self", "label_weight": 1.0}


def test_json_holds_the_table_and_nothing_else_is_printed(data, tmp_path, monkeypatch):
    faked(monkeypatch, best_of({"none": 0.9}))
    result = command(data, tmp_path / "out", "--json")
    printed = json.loads(result.stdout)["choice"]
    faked(monkeypatch, best_of({"none": 0.9}))
    expected = choose(gandalf.load(data), asked("text.min_count=2")).table
    assert printed == json.loads(json.dumps(expected))


def test_without_a_table_the_reason_alone_is_shown(tmp_path):
    gandalf.export(made_up(100, 10), tmp_path / "few", "raw")
    result = command(tmp_path / "few", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert re.match(r"Targets: shrunk targets, by default: only \d+ points could be held", result.stdout)


def test_a_run_that_begins_is_preceded_by_the_choice(data, tmp_path, monkeypatch):
    """A training that fails has told what was chosen."""
    faked(monkeypatch, best_of({"ratio": 0.9}))

    def fails(*_):
        raise DataError("stopped here")

    monkeypatch.setattr("gandalf.runs.start.train_with_memory", fails)
    result = command(data, tmp_path / "out")
    assert result.exit_code == 2 and "Targets: ratio: " in result.stdout
