"""The folder of a run, whenever its writer is killed: unfinished or whole, never half a model."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from small_runs import KilledError, at_step, killed, same, small, small_splits

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.runs import folder as output
from gandalf.runs import start
from gandalf.runs.folder import RunPlace, state_of
from gandalf.runs.start import train_to_folder
from gandalf.settings import override


@pytest.fixture
def splits() -> Splits:
    return small_splits()


def test_a_killed_writer_leaves_a_run_that_can_be_resumed(splits, tmp_path, monkeypatch):
    """Whatever file of the model was the last to be written: without config.json it is none."""
    from gandalf.model import save, weights

    out, whole = tmp_path / "out", tmp_path / "whole"
    train_to_folder(splits, small(), RunPlace(whole))
    for home, name in ((weights, "save_file"), (save, "model_card"), (save, "write_json")):
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(home, name, lambda *_: killed())
            train_to_folder(splits, small(), RunPlace(out, resume=out.exists(), minutes=0))
        assert state_of(out) == "unfinished" and (out / "checkpoints").is_dir()
    train_to_folder(splits, small(), RunPlace(out, resume=True))
    assert state_of(out) == "finished"
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in whole.iterdir())
    assert (out / "config.json").read_bytes() == (whole / "config.json").read_bytes()
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert json.loads((out / "config.json").read_bytes())["files"] == sorted(
        path.name for path in out.iterdir()
    )


@pytest.mark.parametrize("before", [1, 3, 6])
def test_killed_while_an_old_run_is_removed(before, splits, tmp_path, monkeypatch):
    """What is left is an unfinished run, not a model without its weights or a folder of no one's."""
    train_to_folder(splits, small("training.steps=2"), RunPlace(tmp_path / "out"))
    remove, removed = output.remove, []

    def removing(path):
        if len(removed) == before:
            killed()
        removed.append(path)
        remove(path)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(output, "remove", removing)
        train_to_folder(splits, small("training.steps=2"), RunPlace(tmp_path / "out"), overwrite=True)
    assert state_of(tmp_path / "out") == "unfinished"
    train_to_folder(splits, small("training.steps=2"), RunPlace(tmp_path / "out", resume=True))
    assert state_of(tmp_path / "out") == "finished"


def test_a_test_split_that_cannot_be_scored_costs_no_model(splits, tmp_path):
    test = replace(splits.test, texts=None)
    outcome = train_to_folder(replace(splits, test=test), small(), RunPlace(tmp_path / "out"))
    assert state_of(tmp_path / "out") == "finished" and outcome.scores is None
    assert outcome.notes[-1].startswith("no figures on the test split: testing needs texts")


def test_too_little_memory_to_score_costs_no_model(splits, tmp_path, monkeypatch):
    def fails(model, splits):
        raise MemoryError

    monkeypatch.setattr(start, "test_scores", fails)
    outcome = train_to_folder(splits, small(), RunPlace(tmp_path / "out"))
    assert state_of(tmp_path / "out") == "finished" and outcome.scores is None
    assert outcome.notes[-1] == "no figures on the test split: there was not enough memory to predict it"


def test_targets_are_chosen_once_for_a_run(splits, tmp_path, monkeypatch):
    """A resumed run goes on with what was chosen, whatever a second look would say."""
    chosen, asked = [], small("targets.targets=auto")

    def choose(given, wanted):
        assert given is splits and wanted == asked
        chosen.append(["ratio", "self"][len(chosen)])
        recipe = override(wanted, [f"targets.targets={chosen[-1]}", "targets.label_weight=0.5"])
        return SimpleNamespace(recipe=recipe, table=[{"targets": "ratio", "P@1": 12.5}])

    monkeypatch.setitem(sys.modules, "gandalf.runs.choose", SimpleNamespace(choose=choose))
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 20, killed)
        train_to_folder(splits, asked, RunPlace(tmp_path / "out", minutes=0))
    outcome = train_to_folder(splits, asked, RunPlace(tmp_path / "out", resume=True))
    assert chosen == ["ratio"] and outcome.metrics["choice"] == [{"targets": "ratio", "P@1": 12.5}]
    fixed = small("targets.targets=ratio", "targets.label_weight=0.5")
    same(outcome.trained, train_to_folder(splits, fixed, RunPlace(tmp_path / "fixed")).trained)
    assert "choice.json" not in json.loads((tmp_path / "out" / "config.json").read_text())["files"]
    with pytest.raises(DataError, match="is finished, and there is nothing to resume"):
        train_to_folder(splits, asked, RunPlace(tmp_path / "out", resume=True))
