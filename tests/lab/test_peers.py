"""Other people's trainers: how points reach them, how they are run, and the table of `gandalf bench`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from command_line import done, done_json, fails
from command_line import run as run_command
from scipy.sparse import csr_array
from small_runs import small_splits
from tiny_set import write_tiny_set

import gandalf
from gandalf.data.export import FORMATS
from gandalf.data.harden import COPIES
from gandalf.errors import DataError
from gandalf.lab import peers
from gandalf.lab.peers import OURS, PEERS, POINTS, SOFT, Trainer, interpreter, measured, run, script

# Says the most frequent labels of the training file to everybody, as the scripts in examples/ do theirs.
POPULAR = """
import json, os, sys
import numpy as np
from scipy.sparse import csr_matrix, load_npz, save_npz
data, model, out = sys.argv[1:]
targets, test = load_npz(f"{data}/Y.trn.npz"), load_npz(f"{data}/Y.tst.npz")
scores = np.asarray(targets.sum(axis=0)).ravel().astype(np.float32)
os.mkdir(model); np.save(f"{model}/scores.npy", scores)
save_npz(out, csr_matrix(np.tile(scores, (test.shape[0], 1))))
print("half a bar ", end="")
print(json.dumps({"train_seconds": 1.5, "predict_seconds": 0.25}))
"""
FAKE = Trainer("popular.py", "numpy", ("popular",), "npz", "any")
ABSENT = Trainer("x.py", "surely_no_such_module", ("absent",), "npz", "any")


@pytest.fixture
def popular(tmp_path, monkeypatch):
    path = tmp_path / "popular.py"
    path.write_text(POPULAR, "utf-8")
    monkeypatch.setattr(peers, "script", lambda trainer: path)
    return path


def test_every_trainer_has_its_script_its_format_and_a_way_for_soft_targets():
    for trainer in (PEERS | OURS).values():
        assert script(trainer).is_file()
        assert trainer.soft in SOFT
        assert FORMATS[trainer.format].carries_soft or trainer.soft != "weights"


@pytest.mark.parametrize("there", [True, False])
def test_a_trainer_that_needs_a_gpu_is_left_out_where_there_is_none(there, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: there)
    wants = replace(FAKE, on_gpu=True)
    assert (interpreter("popular", wants) is not None) == there
    assert interpreter("popular", FAKE) is not None
    assert [name for name, trainer in PEERS.items() if trainer.on_gpu] == ["mnrl-head"]


def test_every_example_says_how_it_is_run():
    for trainer in PEERS.values():
        text = script(trainer).read_text("utf-8")
        assert f"--format {trainer.format}" in text
        assert f"python examples/{trainer.script} data model predictions.npz" in text
        assert all(package in text for package in trainer.packages)


def test_points_are_the_training_points_and_then_a_point_for_each_label():
    train = small_splits().train
    for name, made in POINTS.items():
        points = made(train)
        assert len(points) == len(train) + (0 if name == "D" else train.num_labels)
        assert (points.targets[: len(train)] != train.targets).nnz == 0
    assert np.array_equal(
        POINTS["D + Z1"](train).targets[len(train) :].toarray(), np.eye(train.num_labels, dtype=np.float32)
    )


def test_copies_are_drawn_so_that_their_mean_is_the_soft_target():
    soft = gandalf.Dataset(csr_array(np.full((3000, 2), [0.25, 1.0], dtype=np.float32)))
    drawn = SOFT["copies"](soft, 0).targets.toarray()
    assert drawn.shape == (COPIES * 3000, 2) and set(drawn.ravel()) == {0.0, 1.0}
    np.testing.assert_allclose(drawn.mean(axis=0), [0.25, 1.0], atol=4 * 0.5 / (COPIES * 3000) ** 0.5)
    one, other = drawn[:3000], drawn[3000:6000]
    assert not np.array_equal(one, other)
    assert SOFT["weights"](soft, 0) is soft


def test_a_trainer_is_scored_by_the_original_frequencies(popular):
    splits = small_splits()
    points = POINTS["D + ratio"](splits.train)
    found = run(FAKE, sys.executable, splits, points, threads=1)
    votes = np.asarray((points.targets > 0).sum(axis=0)).ravel().astype(np.float32)
    expected = gandalf.evaluate(csr_array(np.tile(votes, (len(splits.test), 1))), splits)
    assert {name: found.scores[name] for name in ("P@1", "PSP@5")} == {
        name: expected[name] for name in ("P@1", "PSP@5")
    }
    assert (found.train_seconds, found.predict_ms) == (1.5, 250 / len(splits.test))
    assert found.model_mb == pytest.approx((128 + 4 * splits.train.num_labels) / 1e6)
    if sys.platform == "linux":
        assert found.peak_mb > 5


def test_soft_targets_reach_it_as_they_were_asked_to(popular):
    splits = small_splits()
    points = POINTS["D + ratio"](splits.train)
    for soft in ("weights", "threshold"):
        votes = np.asarray(SOFT[soft](points, 0).targets.sum(axis=0)).ravel().astype(np.float32)
        expected = gandalf.evaluate(csr_array(np.tile(votes, (len(splits.test), 1))), splits)["P@5"]
        assert run(FAKE, sys.executable, splits, points, soft, threads=1).scores["P@5"] == expected


def test_weights_are_refused_by_a_format_without_them():
    points = POINTS["D + ratio"](small_splits().train)
    with pytest.raises(DataError, match="omikuji takes no weights; choose from threshold"):
        run(PEERS["omikuji"], sys.executable, small_splits(), points, "weights", threads=1)


def test_a_script_that_fails_is_named_with_what_it_said_last(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("print('before')\nraise SystemExit('no such file')\n", "utf-8")
    with pytest.raises(DataError, match=r"bad\.py failed: no such file"):
        measured([sys.executable, str(path)], 1)
    path.write_text("print('nothing to tell')\n", "utf-8")
    with pytest.raises(DataError, match="failed: nothing to tell"):
        measured([sys.executable, str(path)], 1)


def test_an_environment_of_its_own_comes_before_this_one(tmp_path):
    assert interpreter("x", ABSENT) is None
    assert interpreter("x", FAKE) == sys.executable
    own = tmp_path / "x" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    assert interpreter("x", ABSENT, tmp_path) == str(own)


def test_bench_prints_a_row_for_each_trainer_and_a_note_for_what_is_missing(tmp_path, popular, monkeypatch):
    monkeypatch.setattr("gandalf.cli.bench.PEERS", {"popular": FAKE, "absent": ABSENT})
    data = write_tiny_set(tmp_path / "tiny")
    found = done_json("bench", data, "--trainer", "popular", "--trainer", "absent", "--threads", "1")
    assert [(row["trainer"], row["points"]) for row in found["rows"]] == [
        ("popular", "D"),
        ("popular", "D + calibrated"),
    ]
    assert found["rows"][0]["P@1"] == 100.0  # label 0 is the most frequent one that the filter lets through
    assert found["notes"] == ["absent: not installed; pip install 'absent'"]
    shown = done("bench", data, "--trainer", "popular", "--threads", "1")
    assert "D + calibrated" in shown and "predict ms" in shown


def test_without_a_test_split_training_points_are_held_out(tmp_path, popular, monkeypatch):
    monkeypatch.setattr("gandalf.cli.bench.PEERS", {"popular": FAKE})
    gandalf.export(gandalf.Splits(train=small_splits().train), tmp_path / "data", "raw")
    found = done_json("bench", tmp_path / "data", "--trainer", "popular", "--threads", "1")
    assert found["rows"] and not found["notes"]


def test_bench_fails_where_no_trainer_gave_a_row(tmp_path, popular, monkeypatch):
    monkeypatch.setattr("gandalf.cli.bench.PEERS", {"popular": FAKE, "absent": ABSENT})
    popular.write_text("raise SystemExit('no memory')", "utf-8")
    words = ("bench", write_tiny_set(tmp_path / "tiny"), "--trainer", "popular", "--trainer", "absent")
    result = run_command(*words)
    assert result.exit_code == 1
    assert result.stdout.count("failed: no memory") == 2 and "absent: not installed" in result.stdout
    result = run_command(*words, "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["rows"] == []


def test_bench_without_its_folder_or_points_to_hold_out_says_what_to_do(tmp_path):
    missing = tmp_path / "nosuch"
    said = fails("bench", "man", "--venvs", missing)
    assert said.startswith(f"{missing}: is no folder of virtual environments")
    (tmp_path / "one.csv").write_text("text,labels\nred fish,fish\n", "utf-8")
    said = fails("bench", tmp_path / "one.csv")
    assert "no validation share can be cut" in said and said.endswith("add a test split")


def test_an_unknown_trainer_is_answered_with_the_known_ones():
    assert fails("bench", "man", "--trainer", "vw").startswith("there is no trainer 'vw'; choose from astec")


@pytest.mark.skipif(find_spec("omikuji") is None, reason="omikuji is an optional library: extra [parabel]")
def test_omikuji_and_parabel_run_as_they_are(tmp_path):
    gandalf.export(small_splits(), tmp_path / "data", "raw")
    words = [word for name in ("parabel", "omikuji") for word in ("--trainer", name)]
    found = done_json("bench", tmp_path / "data", *words, "--threads", "1")
    assert not found["notes"], found["notes"]
    assert [row["trainer"] for row in found["rows"]] == ["parabel", "omikuji", "omikuji"]
    chance = 100 / small_splits().train.num_labels
    assert all(row["P@1"] > 5 * chance and row["model_mb"] > 0 for row in found["rows"])


def test_the_examples_stand_alone():
    for path in script(PEERS["omikuji"]).parent.glob("with_*.py"):
        text = path.read_text("utf-8")
        assert ("import gandalf" in text) == (path.name == "with_gandalf.py")


STUBS = ("fasttext", "gandalf.data.dataset", "libmultilabel.linear", "napkinxc.datasets", "napkinxc.models")
STUBS += ("omikuji", "pecos.utils", "pecos.xmc.xlinear.model", "torch")
STUBS += ("sentence_transformers.sentence_transformer.losses",)
STUBS += ("sklearn.multiclass", "sklearn.svm")


def example(name, *arguments):
    """Run an example as it stands, whichever libraries are installed: its checks come before their work."""
    path = script(PEERS["omikuji"]).parent / name
    code = (
        "import runpy, sys; from unittest.mock import MagicMock\n"
        f"for name in {STUBS!r}:\n"
        "    parts = name.split('.')\n"
        "    sys.modules |= {'.'.join(parts[: n + 1]): MagicMock() for n in range(len(parts))}\n"
        f"sys.argv = {[name, *map(str, arguments)]!r}\n"
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("name", sorted({trainer.script for trainer in (PEERS | OURS).values()}))
def test_an_example_without_arguments_says_which_it_takes(name):
    found = example(name)
    assert found.returncode == 2 and not found.stdout
    assert re.match(rf"usage: python \S*{name} DATA MODEL PREDICTIONS\.npz", found.stderr)
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(("name", "more"), [("with_omikuji.py", ()), ("with_gandalf.py", ("astec",))])
def test_an_example_leaves_a_model_folder_that_is_there_alone(name, more, tmp_path):
    old = tmp_path / "model" / "tree0.cbor"
    old.parent.mkdir()
    old.write_text("old", "utf-8")
    found = example(name, tmp_path / "data", old.parent, tmp_path / "out.npz", *more)
    assert found.returncode == 2
    assert found.stderr == f"{old.parent} exists already: name a new folder for the model\n"
    assert [path.name for path in old.parent.iterdir()] == ["tree0.cbor"] and old.read_text("utf-8") == "old"
