"""The folder of `gandalf train`: nothing in it is lost, and a run that was stopped goes on."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from command_line import after_plan
from train_command import SMALL, content, done, fails, run

import gandalf
from gandalf.train.loop import Training


def test_a_finished_run_is_not_touched(trained, made_up):
    before = content(trained)
    assert "holds a model already; choose another folder" in fails(made_up, trained, *SMALL)
    resumed = (made_up, trained, *SMALL, "--resume")
    said = "the run is finished, and nothing was changed; its settings stand in recipe.toml\n"
    assert done(*resumed).endswith(said)
    assert json.loads(done(*resumed, "--json")) == json.loads(before["metrics.json"])
    said = fails(*resumed, "--seed", 3)
    assert "holds the finished run of other settings: seed was 0 and is 3; choose another folder" in said
    assert "cannot both be resumed and begin anew" in fails(made_up, trained, "--resume", "--overwrite")
    assert content(trained) == before


def test_a_finished_run_of_other_data_is_not_resumed(trained, made_up, tmp_path):
    splits = gandalf.load(made_up)
    gandalf.export(replace(splits, train=splits.train[:299]), tmp_path / "other", "raw")
    said = fails(tmp_path / "other", trained, *SMALL, "--resume")
    differing = 'name was "made-up" and is "other", points was 300 and is 299'
    assert f"holds the finished run of other data: {differing}; choose another folder" in said


@pytest.mark.parametrize("option", [(), ("--resume",), ("--overwrite",)])
@pytest.mark.parametrize("name", ["notes.txt", "config.json", "recipe.toml", "README.md"])
def test_foreign_files_are_not_touched(name, option, made_up, tmp_path):
    (tmp_path / name).write_text("{}")
    assert f"holds {name}, which is not part of a run" in fails(made_up, tmp_path, *SMALL, *option)
    assert content(tmp_path) == {name: b"{}"}


def test_a_foreign_file_beside_a_run_is_not_lost(made_up, tmp_path):
    done(made_up, tmp_path / "out", *SMALL)
    (tmp_path / "out" / "predictions.npz").write_bytes(b"x")
    before = content(tmp_path / "out")
    assert "holds predictions.npz, which is not part" in fails(
        made_up, tmp_path / "out", *SMALL, "--overwrite"
    )
    assert content(tmp_path / "out") == before


def test_the_data_are_never_written_over(made_up):
    before = content(made_up)
    for option in ((), ("--overwrite",), ("--resume",)):
        assert "not part of a run" in fails(made_up, made_up, *SMALL, *option)
    assert content(made_up) == before


def test_a_file_is_no_folder(made_up, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "is a file, but a folder is needed" in fails(made_up, tmp_path / "file", *SMALL)
    assert fails(made_up, tmp_path / "file" / "in", *SMALL).endswith("cannot be written (Not a directory)")


def test_bad_settings_and_data_leave_no_folder(made_up, tmp_path):
    fails(made_up, tmp_path / "out", *SMALL, "--steps", 0)
    fails(tmp_path / "nowhere", tmp_path / "out", *SMALL)
    fails(made_up, tmp_path / "out", *SMALL, "--strength", 3)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    fails(made_up, tmp_path / "out", *SMALL, "--strength", 3)
    assert content(tmp_path / "out") == {}  # one that was there stays


def test_overwrite_begins_anew(made_up, tmp_path):
    done(made_up, tmp_path / "out", *SMALL, "--set", "text.kind=subwords")
    assert "subwords.json" in content(tmp_path / "out")
    done(made_up, tmp_path / "out", *SMALL, "--overwrite")
    assert "subwords.json" not in content(tmp_path / "out")


def interrupted(monkeypatch, *arguments):
    """Run the command, with a Ctrl-C at the fifth step."""
    step = Training._train_batch

    def stopping(self, batch, with_loss):
        if self.step == 4:
            signal.raise_signal(signal.SIGINT)
        step(self, batch, with_loss)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train_batch", stopping)
        return run(*arguments)


def test_ctrl_c_and_resume(trained, made_up, tmp_path, monkeypatch):
    out = tmp_path / "out"
    result = interrupted(monkeypatch, made_up, out, *SMALL)
    assert result.exit_code == 130 and result.stdout == ""
    said = "stopped after step 5 of 8; go on with the same command and --resume\n"
    assert after_plan(result.stderr) == said != result.stderr
    assert {path.name for path in out.iterdir()} == {"checkpoints", "log.jsonl", "recipe.toml"}
    assert "holds a run that is not finished; go on with --resume" in fails(made_up, out, *SMALL)
    assert "other settings: seed was 0 and is 3" in fails(made_up, out, *SMALL, "--resume", "--seed", 3)
    done(made_up, out, *SMALL, "--resume")
    assert content(out)["model.safetensors"] == content(trained)["model.safetensors"]
    assert not (out / "checkpoints").exists()


def test_ctrl_c_while_targets_are_chosen(tmp_path, monkeypatch):
    gandalf.export(gandalf.synthetic(600, 60, seed=1).splits, tmp_path / "more", "raw")
    asked = (*SMALL, "--targets", "auto", "--steps", "16")
    result = interrupted(monkeypatch, tmp_path / "more", tmp_path / "out", *asked)
    assert result.exit_code == 130 and result.stdout == ""
    said = (
        "stopped after step 5 of 8; nothing was saved yet: begin again with the same command and --resume\n"
    )
    assert result.stderr == said
    done(tmp_path / "more", tmp_path / "out", *asked, "--resume")


def test_other_data_are_not_resumed(made_up, tmp_path, monkeypatch):
    gandalf.export(gandalf.synthetic(300, 120, seed=5).splits, tmp_path / "other", "raw")
    interrupted(monkeypatch, made_up, tmp_path / "out", *SMALL)
    said = fails(tmp_path / "other", tmp_path / "out", *SMALL, "--resume")
    assert "is the checkpoint of a run on other data; start again without resuming" in said


def test_an_unfinished_run_can_begin_anew(trained, made_up, tmp_path, monkeypatch):
    interrupted(monkeypatch, made_up, tmp_path / "out", *SMALL)
    done(made_up, tmp_path / "out", *SMALL, "--overwrite")
    assert content(tmp_path / "out")["model.safetensors"] == content(trained)["model.safetensors"]
