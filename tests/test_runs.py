"""A run from data set to model: what it refuses, and that one broken off and resumed is like one unbroken."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import gandalf
from gandalf.data.dataset import Dataset, Splits
from gandalf.errors import DataError
from gandalf.recipe import Recipe
from gandalf.runs import output
from gandalf.runs.hooks import Interrupted
from gandalf.runs.limits import LIMITS, METRICS, check_recipe
from gandalf.runs.material import epoch_steps
from gandalf.runs.output import state_of, train_to_folder
from gandalf.runs.run import Place, Trained, train
from gandalf.runs.shortlists import Refresh
from gandalf.runs.validation import Validate
from gandalf.settings import override
from gandalf.systems import recipe
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.logs import read_log
from gandalf.train.loop import Training

SMALL = ("training.batch=32", "text.max_length=8", "device=cpu")
# Settings that leave their own traces in a checkpoint.
COURSES = {
    "every label": ("labels.kind=every", "labels.block=50"),
    "shortlist": ("labels.kind=shortlist", "labels.random=20", "labels.hard=3"),
    "patience": ("labels.kind=every", "validation.patience=1", "validation.every=0.4", "training.steps=200"),
    "two phases": ("targets.label_epochs=0.5", "targets.label_weight=0.5"),
    "sgd": ("head.optimiser=sgd", "encoder.optimiser=sgd", "targets.targets=none"),
    "float32": ("training.precision=float32", "validation.share=0"),
    "bfloat16": ("training.precision=bfloat16",),
}


def small(*settings: str, system: str = "astec") -> Recipe:
    dim = {"astec": 16, "inceptionxml": 64}[system]
    given = (f"encoder.dim={dim}", "targets.targets=ratio", "training.steps=40", *settings)
    return override(recipe(system), [*SMALL, *given])


@pytest.fixture(scope="module")
def splits() -> Splits:
    return gandalf.synthetic(300, 120, seed=1).splits


class KilledError(BaseException):
    """Stands for kill -9: nothing may catch it."""


def at_step(monkeypatch, number, action):
    """Do something before the step of that number is taken."""
    train_batch = Training._train

    def counted(self, batch, value):
        if self.step == number:
            action()
        train_batch(self, batch, value)

    monkeypatch.setattr(Training, "_train", counted)


def killed():
    raise KilledError


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    parts = {"encoder": trained.model.encoder, "head": trained.model.head}
    return {f"{part}.{name}": each for part, net in parts.items() for name, each in net.state_dict().items()}


def same(one: Trained, other: Trained) -> None:
    left, right = weights(one), weights(other)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert (one.history, one.steps, one.details) == (other.history, other.steps, other.details)
    assert one.model.calibration == other.model.calibration


def log_of(folder):
    return [
        {name: value for name, value in line.items() if name != "time"}
        for line in read_log(folder / "log.jsonl")
    ]


# ---- broken off and resumed


@pytest.mark.parametrize("system", ["astec", "inceptionxml"])
@pytest.mark.parametrize("course", COURSES)
def test_a_run_killed_again_and_again_ends_as_if_unbroken(course, system, splits, tmp_path, monkeypatch):
    chosen = small(*COURSES[course], system=system)
    unbroken = train(splits, chosen, Place(tmp_path / "unbroken"))
    rng = np.random.default_rng(0)
    kills = sorted(rng.choice(np.arange(1, unbroken.steps), size=3, replace=False))
    for number, step in enumerate([0, *kills]):  # at 0 there is no checkpoint to go on from
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            at_step(patch, step, killed)
            train(splits, chosen, Place(tmp_path / "broken", resume=number > 0, minutes=0))
    resumed = train(splits, chosen, Place(tmp_path / "broken", resume=True))
    same(unbroken, resumed)
    assert log_of(tmp_path / "broken") == log_of(tmp_path / "unbroken")
    assert unbroken.steps == (40 if course != "patience" else unbroken.history[-1]["step"])


def test_checkpoints_are_written_when_their_time_has_come(splits, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, tensors, state: saved.append(state["step"]))
    train(splits, small("training.steps=6"), Place(tmp_path, minutes=0))
    assert saved == [1, 2, 3, 4, 5]  # after the last update nothing is left to go on with
    saved.clear()
    train(splits, small("training.steps=6"), Place(tmp_path, minutes=10))
    assert saved == []


def test_a_run_that_had_run_out_of_patience_does_not_go_on(splits, tmp_path, monkeypatch):
    """Killed between the last validation and the model, it must not take one more step."""
    chosen = small(*COURSES["patience"])
    unbroken = train(splits, chosen, Place(tmp_path / "unbroken"))
    assert unbroken.steps < 200
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr("gandalf.runs.run.Validate.restore", lambda *_: killed())
        train(splits, chosen, Place(tmp_path / "broken", minutes=0))
    at_step(monkeypatch, unbroken.steps, killed)
    same(unbroken, train(splits, chosen, Place(tmp_path / "broken", resume=True)))


def test_with_patience_the_best_weights_are_kept(splits, monkeypatch):
    seen, validate = [], Validate.__call__

    def watched(self, training):
        seen.append({name.replace("/", "."): each.clone() for name, each in training.weights().items()})
        return validate(self, training)

    monkeypatch.setattr(Validate, "__call__", watched)
    trained = train(splits, small(*COURSES["patience"]))
    best = int(np.argmax([each["value"] for each in trained.history]))
    assert 0 < best < len(seen) - 1  # or nothing would be shown
    assert trained.kept == trained.history[best]
    assert all(torch.equal(each, seen[best][name]) for name, each in weights(trained).items())
    trained = train(splits, small())
    assert trained.kept == trained.history[-1]


def test_ctrl_c_is_answered_at_the_next_step(splits, tmp_path, monkeypatch):
    """Not only at the end of a stretch between two hooks, which may take minutes."""
    chosen = small("validation.share=0", "training.batch=2", "training.steps=300")
    assert epoch_steps(splits.train, 2) // 20 > 7  # steps between two lines of the log
    unbroken = train(splits, chosen, Place(tmp_path / "unbroken"))
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    with monkeypatch.context() as patch, pytest.raises(Interrupted, match="after step 15 of 300") as stopped:
        at_step(patch, 14, lambda: signal.raise_signal(signal.SIGINT))
        train(splits, chosen, Place(tmp_path / "broken"))
    assert stopped.value.saved
    assert Checkpoints(tmp_path / "broken" / "checkpoints").latest()[1]["step"] == 15
    assert signal.getsignal(signal.SIGINT) is before
    same(unbroken, train(splits, chosen, Place(tmp_path / "broken", resume=True)))
    assert log_of(tmp_path / "broken") == log_of(tmp_path / "unbroken")


def test_ctrl_c_at_the_last_step_changes_nothing(splits, monkeypatch):
    at_step(monkeypatch, 39, lambda: signal.raise_signal(signal.SIGINT))
    assert train(splits, small()).steps == 40


def test_a_second_ctrl_c_ends_at_once(splits, tmp_path, monkeypatch):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_step(monkeypatch, 5, twice)
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(splits, small(), Place(tmp_path))
    assert not isinstance(stopped.value, Interrupted) and not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("seed=1", "other settings: seed was 0 and is 1"),
        ("head.momentum=0.5", "other settings: head.momentum was 0.9 and is 0.5"),
        ("targets.delta=0.2", "other settings: targets.delta was 0.1 and is 0.2"),
    ],
)
def test_other_settings_are_not_resumed(change, sentence, splits, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 5, killed)
        train(splits, small(), Place(tmp_path, minutes=0))
    with pytest.raises(DataError, match=sentence):
        train(splits, small(change), Place(tmp_path, resume=True))


def test_other_data_are_not_resumed(splits, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 5, killed)
        train(splits, small(), Place(tmp_path, minutes=0))
    texts = ["another", *splits.train.texts[1:]]
    other = replace(splits, train=replace(splits.train, texts=texts))
    with pytest.raises(DataError, match="a run on other data"):
        train(other, small(), Place(tmp_path, resume=True))


def test_time_is_counted_over_all_parts_of_a_run(splits, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 30, killed)
        train(splits, small(), Place(tmp_path, minutes=0))
    before = Checkpoints(tmp_path / "checkpoints").latest()[1]["seconds"]
    assert train(splits, small(), Place(tmp_path, resume=True)).seconds > before > 0


def test_hard_negatives_are_looked_up_once_an_epoch_and_not_again_on_resuming(splits, tmp_path, monkeypatch):
    steps, look_up = [], Refresh.__call__
    monkeypatch.setattr(Refresh, "__call__", lambda s, t: steps.append(t.step) or look_up(s, t))
    chosen = small(*COURSES["shortlist"])
    epoch = epoch_steps(splits.train[:285], 32)
    train(splits, chosen)
    assert steps == [0, *range(epoch, 40, epoch), 40]
    steps.clear()
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, epoch + 2, killed)
        train(splits, chosen, Place(tmp_path, minutes=0))
    train(splits, chosen, Place(tmp_path, resume=True))
    assert steps == [0, *range(epoch, 40, epoch), 40]


# ---- what is refused, and what works however small it is


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_that_of_a_setting(name):
    with pytest.raises(DataError, match=f"the setting '{name}' is -1.*, but it must be"):
        check_recipe(override(Recipe(), [f"{name}=-1"]))
    check_recipe(Recipe())


def test_the_figures_that_may_decide_are_those_that_there_are(splits):
    truth = splits.test.targets
    assert set(METRICS) == set(gandalf.evaluate(truth, splits).filtered.values)


@pytest.mark.parametrize("value", ["inf", "0", "0.0"])
def test_epochs_are_a_positive_number(value):
    with pytest.raises(DataError, match=r"'training.epochs' is (inf|0.0), but it must be greater than 0"):
        check_recipe(override(Recipe(), [f"epochs={value}"]))


@pytest.mark.parametrize("system", ["astec", "inceptionxml"])
@pytest.mark.parametrize("kind", ["every", "shortlist"])
@pytest.mark.parametrize(("points", "labels"), [(1, 1), (1, 3), (5, 1), (3, 2)])
def test_however_small(points, labels, kind, system):
    texts = [f"text {number}" for number in range(points)]
    targets = gandalf.Dataset(np.eye(1, labels).repeat(points, axis=0)).targets
    data = Splits(Dataset(targets, texts, [f"label {number}" for number in range(labels)]))
    settings = ("validation.share=0", f"labels.kind={kind}", "training.steps=3", "training.batch=7")
    chosen = small(*settings, system=system)
    if points == 1 and system == "inceptionxml":
        assert len(data.train) == 1  # with label points there are more, but they are left out here
        with pytest.raises(DataError, match="compares the points of an update, and one is too few"):
            train(data, override(chosen, ["targets.targets=none"]))
    trained = train(data, chosen)
    assert trained.steps == 3 and all(each.isfinite().all() for each in weights(trained).values())


def test_an_inception_of_too_few_numbers(splits):
    with pytest.raises(DataError, match=r"need words of at least 64 numbers, not 63; set encoder.dim to 64"):
        train(splits, small("encoder.dim=63", system="inceptionxml"))


def test_empty_texts_are_texts(splits):
    texts = ["", " ", *splits.train.texts[2:]]
    data = replace(
        splits, train=replace(splits.train, texts=texts, label_texts=["", *splits.train.label_texts[1:]])
    )
    assert train(data, small("training.steps=3")).steps == 3


def test_without_texts_or_labels_there_is_nothing_to_learn(splits):
    with pytest.raises(DataError, match="training needs texts, and this data set has none"):
        train(Splits(Dataset(splits.train.targets)), small())
    empty = Dataset(splits.train.targets * 0, splits.train.texts, splits.train.label_texts)
    with pytest.raises(DataError, match="no training point has a label"):
        train(Splits(empty), small())


def test_counts_are_no_targets(splits):
    """Without label points, too, where no graph looks at them."""
    counts = replace(splits.train, targets=3 * splits.train.targets)
    with pytest.raises(DataError, match=r"targets lie between 1 and 3, not in \(0, 1\]; divide counts"):
        train(Splits(counts), small("targets.targets=none"))


def test_a_training_that_goes_astray_is_ended(splits, monkeypatch):
    train_batch = Training._train

    def astray(self, batch, value):
        if self.step == 5:
            self.head.rows.data[3] = float("nan")
        train_batch(self, batch, value)

    monkeypatch.setattr(Training, "_train", astray)
    with pytest.raises(DataError, match="the loss at step 6 is no number any more; learn more slowly"):
        train(splits, small("labels.kind=every"))


# ---- the folder


def test_a_killed_writer_leaves_a_run_that_can_be_resumed(splits, tmp_path, monkeypatch):
    """Whatever file of the model was the last to be written: without config.json it is none."""
    from gandalf.model import save

    out, whole = tmp_path / "out", tmp_path / "whole"
    train_to_folder(splits, small(), Place(whole))
    for name in ("save_file", "model_card", "_write_json"):
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            patch.setattr(save, name, lambda *_: killed())
            train_to_folder(splits, small(), Place(out, resume=out.exists(), minutes=0))
        assert state_of(out) == "unfinished" and (out / "checkpoints").is_dir()
    train_to_folder(splits, small(), Place(out, resume=True))
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
    train_to_folder(splits, small("training.steps=2"), Place(tmp_path / "out"))
    remove, removed = output._remove, []

    def removing(path):
        if len(removed) == before:
            killed()
        removed.append(path)
        remove(path)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(output, "_remove", removing)
        train_to_folder(splits, small("training.steps=2"), Place(tmp_path / "out"), overwrite=True)
    assert state_of(tmp_path / "out") == "unfinished"
    train_to_folder(splits, small("training.steps=2"), Place(tmp_path / "out", resume=True))
    assert state_of(tmp_path / "out") == "finished"


def test_a_test_split_that_cannot_be_scored_costs_no_model(splits, tmp_path):
    test = replace(splits.test, texts=None)
    outcome = train_to_folder(replace(splits, test=test), small(), Place(tmp_path / "out"))
    assert state_of(tmp_path / "out") == "finished" and outcome.scores is None
    assert outcome.notes[0].startswith("no figures on the test split: testing needs texts")


def test_too_little_memory_to_score_costs_no_model(splits, tmp_path, monkeypatch):
    def fails(model, splits):
        raise MemoryError

    monkeypatch.setattr(output, "test_scores", fails)
    outcome = train_to_folder(splits, small(), Place(tmp_path / "out"))
    assert state_of(tmp_path / "out") == "finished" and outcome.scores is None
    assert outcome.notes == ("no figures on the test split: there was not enough memory to predict it",)


def test_targets_are_chosen_once_for_a_run(splits, tmp_path, monkeypatch):
    """A resumed run goes on with what was chosen, whatever a second look would say."""
    chosen, asked = [], small("targets.targets=auto")

    def choose(given, wanted):
        assert given is splits and wanted == asked
        chosen.append(["ratio", "self"][len(chosen)])
        recipe = override(wanted, [f"targets.targets={chosen[-1]}", "targets.label_weight=0.5"])
        return SimpleNamespace(recipe=recipe, table=[{"targets": "ratio", "P@1": 12.5}])

    monkeypatch.setitem(sys.modules, "gandalf.runs.auto", SimpleNamespace(choose=choose))
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 20, killed)
        train_to_folder(splits, asked, Place(tmp_path / "out", minutes=0))
    outcome = train_to_folder(splits, asked, Place(tmp_path / "out", resume=True))
    assert chosen == ["ratio"] and outcome.metrics["choice"] == [{"targets": "ratio", "P@1": 12.5}]
    fixed = small("targets.targets=ratio", "targets.label_weight=0.5")
    same(outcome.trained, train_to_folder(splits, fixed, Place(tmp_path / "fixed")).trained)
    assert "choice.json" not in json.loads((tmp_path / "out" / "config.json").read_text())["files"]
    with pytest.raises(DataError, match="is finished, and there is nothing to resume"):
        train_to_folder(splits, asked, Place(tmp_path / "out", resume=True))
