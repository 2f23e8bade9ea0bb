"""`gandalf train` and `gandalf config`: what they print and leave, and what they refuse in a sentence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

import gandalf
from gandalf.cli.main import app
from gandalf.cli.recipe_options import NAMED, Asked
from gandalf.data.dataset import Dataset, Splits
from gandalf.model import load_model
from gandalf.recipe import Recipe
from gandalf.runs import run as run_module
from gandalf.settings import as_toml, from_dict, to_dict
from gandalf.systems import SYSTEMS, recipe
from gandalf.train import memory
from gandalf.train.loop import Training

SMALL = ("--set", "encoder.dim=16", "--batch", "32", "--steps", "8", "--device", "cpu", "--targets", "ratio")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "made-up"
    gandalf.export(gandalf.synthetic(300, 120, seed=1).splits, folder, "raw")
    return folder


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """A trained model's folder; no test changes it."""
    out = tmp_path_factory.mktemp("model") / "out"
    done(data, out, *SMALL)
    return out


def run(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(*arguments):
    """The sentence that the command ends with."""
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("error: "), result.stderr
    return result.stderr.removeprefix("error: ").rstrip()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- what it prints and leaves


def test_what_is_on_screen(data, tmp_path):
    shown = done(data, tmp_path / "out", *SMALL, "--targets", "calibrated")
    points = "285 training points and 120 label points (shrunk targets), 120 labels"
    assert shown.startswith(f"astec on made-up: {points}, 8 updates in ")
    assert "fallback: shrunk instead of calibrated: " in shown
    assert "On held-out training points: P@1 " in shown and " on new texts" in shown
    assert "text is a label's" in shown and "new text" in shown and "PSP@5" in shown
    text = gandalf.load(data).train.texts[0]
    assert shown.rstrip().splitlines()[-1] == f"  gandalf predict {tmp_path / 'out'} '{text}'"


def test_the_folder(model):
    names = {"README.md", "config.json", "labels.jsonl", "log.jsonl", "metrics.json", "model.safetensors"}
    assert set(content(model)) == names | {"recipe.toml", "words.json"}
    assert json.loads((model / "config.json").read_text())["files"] == sorted(content(model))
    trained = load_model(model)
    assert trained.num_labels == 120 and trained.calibration is not None
    card = (model / "README.md").read_text()
    assert "# astec, trained on made-up" in card and "| P@1 |" in card


def test_metrics_are_those_that_evaluate_gives(model, data, tmp_path):
    metrics = json.loads((model / "metrics.json").read_text())
    predictions = tmp_path / "predictions.npz"
    for command in (("predict", model, data, "-o", predictions), ("evaluate", predictions, data, "--json")):
        result = CliRunner().invoke(app, list(map(str, command)))
        assert result.exit_code == 0, result.output
    scored = json.loads(result.stdout)
    assert {name: metrics[name] for name in scored} == scored
    assert set(metrics) - set(scored) == {"validation", "training"}
    assert [each["step"] for each in metrics["validation"]] == [8]
    training = metrics["training"]
    assert (training["points"], training["label_points"], training["labels"]) == (285, 120, 120)
    assert training["steps"] == 8 and training["peak_memory_bytes"] > 10**7 and training["seconds"] > 0
    assert training["targets"] == {"targets_used": "ratio"}


def test_json_is_the_metrics(data, tmp_path):
    shown = done(data, tmp_path / "out", *SMALL, "--json")
    assert json.loads(shown) == json.loads((tmp_path / "out" / "metrics.json").read_text())


def test_without_test_split_and_label_points(data, tmp_path):
    splits = gandalf.load(data)
    gandalf.export(Splits(splits.train), tmp_path / "alone", "raw")
    shown = done(tmp_path / "alone", tmp_path / "out", *SMALL, "--targets", "none", "--validation", 0)
    assert ": 300 training points, 120 labels, 8 updates in " in shown and "P@1" not in shown
    assert set(json.loads((tmp_path / "out" / "metrics.json").read_text())) == {"validation", "training"}
    assert "Not measured on a test split." in (tmp_path / "out" / "README.md").read_text()


def test_the_recipe_left_trains_the_same_model_again(model, data, tmp_path):
    done(data, tmp_path / "out", "--config", model / "recipe.toml")
    assert content(tmp_path / "out")["model.safetensors"] == content(model)["model.safetensors"]


def test_tensorboard(data, tmp_path):
    pytest.importorskip("tensorboard")
    done(data, tmp_path / "out", *SMALL, "--tensorboard")
    assert any(name.startswith("events.out.tfevents") for name in content(tmp_path / "out"))
    done(data, tmp_path / "out", *SMALL, "--overwrite")
    assert not any(name.startswith("events.out.tfevents") for name in content(tmp_path / "out"))


# ---- the folder is never lost


def test_a_finished_run_is_not_touched(model, data):
    before = content(model)
    assert "holds a model already; choose another OUT" in fails(data, model, *SMALL)
    assert done(data, model, *SMALL, "--resume").endswith("the run is finished, and nothing was changed\n")
    assert json.loads(done(data, model, *SMALL, "--resume", "--json")) == json.loads(before["metrics.json"])
    assert "cannot both be resumed and begin anew" in fails(data, model, "--resume", "--overwrite")
    assert content(model) == before


@pytest.mark.parametrize("option", [(), ("--resume",), ("--overwrite",)])
@pytest.mark.parametrize("name", ["notes.txt", "config.json", "recipe.toml", "README.md"])
def test_foreign_files_are_not_touched(name, option, data, tmp_path):
    (tmp_path / name).write_text("{}")
    assert f"holds {name}, which is not part of a run" in fails(data, tmp_path, *SMALL, *option)
    assert content(tmp_path) == {name: b"{}"}


def test_a_foreign_file_beside_a_run_is_not_lost(data, tmp_path):
    done(data, tmp_path / "out", *SMALL)
    (tmp_path / "out" / "predictions.npz").write_bytes(b"x")
    before = content(tmp_path / "out")
    assert "holds predictions.npz, which is not part" in fails(data, tmp_path / "out", *SMALL, "--overwrite")
    assert content(tmp_path / "out") == before


def test_the_data_are_never_written_over(data):
    before = content(data)
    for option in ((), ("--overwrite",), ("--resume",)):
        assert "not part of a run" in fails(data, data, *SMALL, *option)
    assert content(data) == before


def test_a_file_is_no_folder(data, tmp_path):
    (tmp_path / "file").write_text("x")
    assert "is a file where a folder is to be written" in fails(data, tmp_path / "file", *SMALL)
    assert fails(data, tmp_path / "file" / "in", *SMALL).endswith("cannot be written (Not a directory)")


def test_bad_settings_and_data_leave_no_folder(data, tmp_path):
    fails(data, tmp_path / "out", *SMALL, "--steps", 0)
    fails(tmp_path / "nowhere", tmp_path / "out", *SMALL)
    fails(data, tmp_path / "out", *SMALL, "--strength", 3)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    fails(data, tmp_path / "out", *SMALL, "--strength", 3)
    assert content(tmp_path / "out") == {}  # one that was there stays


def test_overwrite_begins_anew(data, tmp_path):
    done(data, tmp_path / "out", *SMALL, "--set", "text.kind=subwords")
    assert "subwords.json" in content(tmp_path / "out")
    done(data, tmp_path / "out", *SMALL, "--overwrite")
    assert "subwords.json" not in content(tmp_path / "out")


def interrupted(monkeypatch, *arguments):
    """Run the command, with a Ctrl-C at the fifth step."""
    step = Training._train

    def stopping(self, batch, value):
        if self.step == 4:
            signal.raise_signal(signal.SIGINT)
        step(self, batch, value)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_train", stopping)
        return run(*arguments)


def test_ctrl_c_and_resume(model, data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    result = interrupted(monkeypatch, data, out, *SMALL)
    assert result.exit_code == 130 and result.stdout == ""
    assert result.stderr == "stopped after step 5 of 8; go on with the same command and --resume\n"
    assert set(content_names(out)) == {"checkpoints", "log.jsonl", "recipe.toml"}
    assert "holds a run that is not finished; go on with --resume" in fails(data, out, *SMALL)
    assert "other settings: seed was 0 and is 3" in fails(data, out, *SMALL, "--resume", "--seed", 3)
    done(data, out, *SMALL, "--resume")
    assert content(out)["model.safetensors"] == content(model)["model.safetensors"]
    assert not (out / "checkpoints").exists()


def content_names(folder):
    return [path.name for path in folder.iterdir()]


def test_ctrl_c_while_targets_are_chosen(data, tmp_path, monkeypatch):
    gandalf.export(gandalf.synthetic(600, 60, seed=1).splits, tmp_path / "more", "raw")
    asked = (*SMALL, "--targets", "auto", "--steps", "16")
    result = interrupted(monkeypatch, tmp_path / "more", tmp_path / "out", *asked)
    assert result.exit_code == 130 and result.stdout == ""
    said = (
        "stopped after step 5 of 8; nothing was saved yet: begin again with the same command and --resume\n"
    )
    assert result.stderr == said
    done(tmp_path / "more", tmp_path / "out", *asked, "--resume")


def test_other_data_are_not_resumed(data, tmp_path, monkeypatch):
    gandalf.export(gandalf.synthetic(300, 120, seed=5).splits, tmp_path / "other", "raw")
    interrupted(monkeypatch, data, tmp_path / "out", *SMALL)
    said = fails(tmp_path / "other", tmp_path / "out", *SMALL, "--resume")
    assert "is the checkpoint of a run on other data; start again without resuming" in said


def test_an_unfinished_run_can_begin_anew(model, data, tmp_path, monkeypatch):
    interrupted(monkeypatch, data, tmp_path / "out", *SMALL)
    done(data, tmp_path / "out", *SMALL, "--overwrite")
    assert content(tmp_path / "out")["model.safetensors"] == content(model)["model.safetensors"]


# ---- bad input


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--system", "astek"), "there is no system 'astek'; did you mean astec?"),
        (("--system", "xyz"), "there is no system 'xyz'; choose from astec, inceptionxml"),
        (("--targets", "calibrate"), 'not "calibrate"; did you mean "calibrated"?'),
        (
            ("--keep", "label"),
            "the setting 'targets.keep' must be one of both, labels, uniform, not \"label\"",
        ),
        (("--device", "gpu"), "the setting 'device' must be one of auto, cpu, cuda, not \"gpu\""),
        (("--set", "trainin.batch=3"), "there is no setting 'trainin.batch'; did you mean 'training.batch'?"),
        (("--set", "batch"), "'batch' changes no setting; write it as key=value"),
        (("--set", "rate=1"), "the setting 'rate' could be encoder.rate or head.rate"),
        (("--steps", "0"), "the setting 'training.steps' is 0, but it must be at least 1"),
        (("--batch", "-1"), "the setting 'training.batch' is -1, but it must be at least 0"),
        (("--validation", "1"), "the setting 'validation.share' is 1.0, but it must be in [0, 1)"),
        (("--share", "1.5"), "the setting 'targets.share' is 1.5, but it must be in [0, 1]"),
        (("--label-epochs", "2"), "the setting 'targets.label_epochs' is 2.0, but it must be in [0, 1]"),
        (("--scale", "nan"), "the setting 'targets.scale' must be a number"),
        (("--seed", "-1"), "the setting 'seed' is -1, but it must be from 0 to"),
        (("--strength", "3"), "a strength of shrinkage says nothing about ratio targets"),
        (
            ("--targets", "none", "--keep", "labels"),
            "without label points there is nothing to keep 'labels' of",
        ),
        (("--config", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (("--set", "validation.metric=P@2"), "'validation.metric' is P@2, but it must be one of P@1, P@3,"),
    ],
)
def test_bad_options(options, said, data, tmp_path):
    assert said in fails(data, tmp_path / "out", *SMALL, *options)


def test_what_is_no_number_is_refused(data, tmp_path):
    result = run(data, tmp_path / "out", "--epochs", "many")
    assert result.exit_code == 2 and "'--epochs'" in result.stderr


def write(folder, targets, texts=None, label_texts=None):
    points = Dataset(csr_array(np.asarray(targets, dtype=np.float32)), texts, label_texts)
    gandalf.export(Splits(points), folder, "raw" if texts else "xc")
    return folder


def test_tiny_data(tmp_path):
    one = write(tmp_path / "one", [[1]], ["a text"], ["a label"])
    said = fails(one, tmp_path / "out", *SMALL)
    assert "no validation share can be cut from 1 training points" in said and "--validation 0" in said
    done(one, tmp_path / "out", *SMALL, "--validation", 0)
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "out"), "a text"])
    assert result.exit_code == 0 and "a label" in result.stdout
    few = write(tmp_path / "few", [[1, 0], [0, 1], [1, 1]], ["a", "b", ""], ["x", ""])
    done(few, tmp_path / "few-out", *SMALL, "--batch", 1000, "--validation", 0)


def test_data_without_texts(tmp_path):
    splits = gandalf.synthetic(50, 20, seed=0, texts=False).splits
    features = csr_array(np.eye(50, dtype=np.float32))
    points = Dataset(splits.train.targets, features=features, label_features=csr_array(np.eye(20, 50)))
    gandalf.export(Splits(points), tmp_path / "features", "xc")
    assert "training needs texts, and this data set has none" in fails(
        tmp_path / "features", tmp_path / "out"
    )


def test_augmented_data_are_refused(data, tmp_path):
    result = CliRunner().invoke(app, ["augment", str(data), str(tmp_path / "more")])
    assert result.exit_code == 0, result.output
    assert "is already augmented, from made-up; give the original set" in fails(
        tmp_path / "more", tmp_path / "out"
    )


def test_too_little_memory(data, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda *_: 300 << 20)
    said = fails(data, tmp_path / "out", *SMALL, "--batch", 400_000, "--set", "labels.kind=every")
    assert "the memory of the device 'cpu' is not enough: training takes about" in said
    assert "; use --batch " in said


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are as on Linux")
def test_too_little_memory_for_real(data, tmp_path):
    """Under a limit of the address space: before or while the run takes it, one sentence."""
    code = (
        "import resource, sys, torch, safetensors.torch, gandalf.runs.output\n"
        "from gandalf.cli.main import app\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (600 << 20),) * 2)\n"
        "app(sys.argv[1:])"
    )
    arguments = ["train", data, tmp_path / "out", "--targets", "none", "--device", "cpu"]
    arguments += ["--set", "encoder.dim=400000", "--steps", "1"]
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 2 and process.stderr.count("\n") == 1, process.stderr
    assert "the memory of the device 'cpu' is not enough" in process.stderr


def test_memory_that_runs_out_on_the_way(data, tmp_path, monkeypatch):
    def starved(self, batch, value):
        raise MemoryError

    monkeypatch.setattr(run_module.Training, "_train", starved)
    said = fails(data, tmp_path / "out", *SMALL, "--set", "labels.kind=every")
    assert "the memory of the device 'cpu' is not enough" in said and said.endswith("; use --batch 16")


def test_missing_libraries_are_named(data, tmp_path):
    for command in (["train", data, tmp_path / "out"], ["predict", tmp_path / "out", "a text"]):
        code = "import sys; sys.modules['torch'] = None\nfrom gandalf.cli.main import app\napp(sys.argv[1:])"
        process = subprocess.run(
            [sys.executable, "-c", code, *map(str, command)], capture_output=True, text=True, check=False
        )
        assert process.returncode == 2 and process.stderr.count("\n") == 1
        assert process.stderr.endswith("needs torch; pip install 'gandalf-xmc[train]'\n")
    assert not (tmp_path / "out").exists()


# ---- recipes


def config(*arguments):
    result = CliRunner().invoke(app, ["config", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("system", SYSTEMS)
def test_config_prints_what_train_uses(system):
    printed = config("--system", system)
    assert from_dict(Recipe, tomllib.loads(printed)) == recipe(system)
    assert printed == as_toml(recipe(system))
    assert config() == config("--system", Recipe().system)


def test_config_needs_no_engine():
    code = "import sys; sys.modules['torch'] = None\nfrom gandalf.cli.main import app\napp(sys.argv[1:])"
    process = subprocess.run(
        [sys.executable, "-c", code, "config"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0 and process.stdout == config(), process.stderr


def test_who_comes_first(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[training]\nbatch = 11\nepochs = 12\nwarm_up = 0.2\n[encoder]\ndim = 13\n")
    printed = config(
        *("--system", "inceptionxml", "--config", file, "--batch", 21, "--epochs", 22, "--set", "batch=31")
    )
    found = from_dict(Recipe, tomllib.loads(printed))
    assert (found.training.batch, found.training.epochs, found.training.warm_up) == (31, 22.0, 0.2)
    assert (found.encoder.dim, found.encoder.kind, found.system) == (13, "inception", "inceptionxml")


def test_epochs_take_the_place_of_steps_in_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[training]\nsteps = 10\n")
    assert "# steps =" in config("--config", file, "--epochs", 2)
    assert "steps = 10" in config("--config", file)


def test_no_epochs_are_no_training(data, tmp_path):
    said = fails(data, tmp_path / "out", "--device", "cpu", "--epochs", "0")
    assert "the setting 'training.epochs' is 0.0, but it must be greater than 0" in said


def test_one_length_is_enough(data, tmp_path):
    result = run(data, tmp_path / "out", "--epochs", "2", "--steps", "5")
    assert result.exit_code == 2 and "--epochs and --steps both say how long to train" in result.stderr


def test_a_file_names_its_system(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(config("--system", "inceptionxml", "--epochs", 3))
    assert config("--config", file) == file.read_text()
    result = CliRunner().invoke(app, ["config", "--config", str(file), "--system", "astec"])
    assert result.exit_code == 2
    assert "is a recipe of the system inceptionxml, but the system is to be astec" in result.stderr
    assert config("--set", "system=inceptionxml", "--epochs", 3) == file.read_text()


@pytest.mark.parametrize("name", NAMED)
def test_every_named_option_changes_its_setting(name):
    values = {str: None, int: 7, float: 0.5}
    words = {"targets": "walk", "keep": "labels", "order": "tail", "device": "cuda"}
    path, option = NAMED[name]
    kind = option.__origin__.__args__[0]
    value = words.get(name, values[kind])
    changed = to_dict(Asked(named=((path, value),)).recipe())
    printed = tomllib.loads(config(f"--{name.replace('_', '-')}", value))
    for found in (changed, printed):
        for part in path.split("."):
            found = found[part]
        assert found == value
