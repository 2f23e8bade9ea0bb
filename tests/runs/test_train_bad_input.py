"""What `gandalf train` refuses, each in a sentence: bad options, odd data, too little memory."""

from __future__ import annotations

import sys
from dataclasses import replace

import command_line
import numpy as np
import pytest
from scipy.sparse import csr_array
from train_command import SMALL, done, fails, run

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.train import run_memory
from gandalf.train.loop import Training


@pytest.mark.parametrize("options", [SMALL, ("--set", 'search.parts=["linear"]', "--device", "cpu")])
def test_empty_texts(options, made_up, tmp_path):
    splits = gandalf.load(made_up)
    for name, empty in (("most", 180), ("half", 150), ("every", 300)):
        texts = [*[" "] * empty, *splits.train.texts[empty:]]
        gandalf.export(replace(splits, train=replace(splits.train, texts=texts)), tmp_path / name, "raw")
    most = run(tmp_path / "most", tmp_path / "out", *options).stderr
    assert most.count("180 of 300 training texts (60.0%) are empty; check which column") == 1
    assert "are empty" not in run(tmp_path / "half", tmp_path / "half-out", *options).stderr
    said = fails(tmp_path / "every", tmp_path / "none", *options)
    assert "every training text is empty" in said and "check which column" in said
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--system", "astek"), "there is no system 'astek'; did you mean astec?"),
        (("--system", "xyz"), "there is no system 'xyz'; choose from auto, astec, decaf, eclare"),
        (("--targets", "calibrate"), 'not "calibrate"; did you mean "calibrated"?'),
        (
            ("--keep", "label"),
            "the setting 'targets.keep' must be one of both, labels, half, uniform, not \"label\"",
        ),
        (("--device", "gpu"), "the setting 'device' must be one of auto, cpu, cuda, not \"gpu\""),
        (("--set", "trainin.batch=3"), "there is no setting 'trainin.batch'; did you mean 'training.batch'?"),
        (("--set", "batch"), "'batch' is not a change of a setting; write it as key=value"),
        (("--set", "rate=1"), "the setting 'rate' could be encoder.rate or head.rate"),
        (("--steps", "0"), "the setting 'training.steps' is 0, but it must be from 1 to 1,000,000,000"),
        (("--steps", "9" * 20), "but it must be from 1 to 1,000,000,000"),
        (("--batch", "-1"), "the setting 'training.batch' is -1, but it must be at least 0"),
        (("--validation", "1"), "the setting 'validation.share' is 1.0, but it must be in [0, 1)"),
        (("--share", "1.5"), "the setting 'targets.share' is 1.5, but it must be in [0, 1]"),
        (("--label-epochs", "2"), "the setting 'targets.label_epochs' is 2.0, but it must be in [0, 1]"),
        (("--scale", "nan"), "the setting 'targets.scale' must be a number"),
        (("--seed", "-1"), "the setting 'seed' is -1, but it must be from 0 to"),
        (("--strength", "3"), "a strength of shrinkage has no effect on ratio targets"),
        (
            ("--targets", "none", "--keep", "labels"),
            "without label points there is nothing to keep 'labels' of",
        ),
        (("--config", "nowhere.toml"), "nowhere.toml: cannot be read"),
        (("--set", "validation.metric=P@2"), "'validation.metric' is P@2, but it must be one of P@1, P@3,"),
    ],
)
def test_bad_options(options, said, made_up, tmp_path):
    assert said in fails(made_up, tmp_path / "out", *SMALL, *options)


def test_what_is_no_number_is_refused(made_up, tmp_path):
    result = run(made_up, tmp_path / "out", "--epochs", "many")
    assert result.exit_code == 2 and "'--epochs'" in result.stderr


def write(folder, targets, texts=None, label_texts=None):
    points = Dataset(csr_array(np.asarray(targets, dtype=np.float32)), texts, label_texts)
    gandalf.export(Splits(points), folder, "raw" if texts else "xc")
    return folder


def test_tiny_data(tmp_path):
    one = write(tmp_path / "one", [[1]], ["a text"], ["a label"])
    said = fails(one, tmp_path / "out", *SMALL)
    assert "no validation share can be cut from 1 training point" in said and "--validation 0" in said
    done(one, tmp_path / "out", *SMALL, "--validation", 0)
    assert "a label" in command_line.done("predict", tmp_path / "out", "a text")
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


def test_augmented_data_are_refused(made_up, tmp_path):
    command_line.done("augment", made_up, tmp_path / "more")
    assert "is already augmented, from made-up; give the original set" in fails(
        tmp_path / "more", tmp_path / "out"
    )


def test_too_little_memory(made_up, tmp_path, monkeypatch):
    monkeypatch.setattr(run_memory, "available_bytes", lambda *_: 300 << 20)
    said = fails(made_up, tmp_path / "out", *SMALL, "--batch", 400_000, "--set", "labels.kind=every")
    assert "the memory of the device 'cpu' is not enough: training takes about" in said
    assert "; use --batch " in said


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are as on Linux")
def test_too_little_memory_for_real(made_up, tmp_path):
    """Under a limit of the address space: before or while the run takes it, one sentence."""
    code = (
        "import resource, sys, torch, safetensors.torch, gandalf.runs.folder\n"
        "from gandalf.cli.main import app\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (600 << 20),) * 2)\n"
        "app(sys.argv[1:])"
    )
    arguments = ["train", made_up, tmp_path / "out", "--targets", "none", "--device", "cpu"]
    arguments += ["--set", "encoder.dim=400000", "--steps", "1"]
    process = command_line.python(code, *arguments)
    assert process.returncode == 2 and process.stderr.count("\n") == 1, process.stderr
    assert "the memory of the device 'cpu' is not enough" in process.stderr


def test_memory_that_runs_out_on_the_way(made_up, tmp_path, monkeypatch):
    def starved(self, batch, with_loss):
        raise MemoryError

    monkeypatch.setattr(Training, "_train_batch", starved)
    said = fails(made_up, tmp_path / "out", *SMALL, "--set", "labels.kind=every")
    assert "the memory of the device 'cpu' is not enough" in said and said.endswith("; use --batch 16")


def test_no_epochs_are_no_training(made_up, tmp_path):
    said = fails(made_up, tmp_path / "out", "--device", "cpu", "--epochs", "0")
    assert "the setting 'training.epochs' is 0.0, but it must be greater than 0" in said


def test_one_length_is_enough(made_up, tmp_path):
    result = run(made_up, tmp_path / "out", "--epochs", "2", "--steps", "5")
    assert result.exit_code == 2 and "--epochs and --steps both say how long to train" in result.stderr
    said = fails(made_up, tmp_path / "out", "--set", "training.epochs=5", "--steps", "10")
    assert said.startswith("--steps and --set training.epochs=5 both say how long to train")
