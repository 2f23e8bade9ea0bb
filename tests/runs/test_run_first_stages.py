"""A siamese stage that several runs share: made once, and every run is as if it had made it itself."""

from __future__ import annotations

import threading

import pytest
import torch
from small_runs import same, small, small_splits
from small_systems import small_system, write_pretrained

from gandalf.errors import DataError
from gandalf.runs import choose as auto
from gandalf.runs import session as runs
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.runs.stages import begin_stage
from gandalf.train.loop import Training

pytestmark = pytest.mark.slow

PAIRS = ("siamese.pair_batch=32", "siamese.pair_epochs=3", "training.steps=6")
KINDS = (("siamese.kind=contrastive", *PAIRS), ("siamese.kind=triplet", *PAIRS))


@pytest.fixture
def splits():
    return small_splits()


@pytest.fixture
def begun(monkeypatch):
    """The stages that runs trained, by name, as they end."""
    names = []
    whole = runs.TrainingRun._train_stage

    def seen(self, log, fresh):
        names.append(self.stage.name)
        whole(self, log, fresh)

    monkeypatch.setattr(runs.TrainingRun, "_train_stage", seen)
    return names


@pytest.mark.parametrize("settings", KINDS)
def test_the_model_is_the_one_of_a_run_by_itself(settings, splits, tmp_path, begun):
    place = RunPlace(first_stages=tmp_path / "kept")
    none = run_training(splits, small(*settings, "targets.targets=none"), place)
    alone = run_training(splits, small(*settings, "targets.targets=ratio"))
    begun.clear()
    shared = run_training(splits, small(*settings, "targets.targets=ratio"), place)
    assert begun == ["classifier"]
    assert none.taken_over is None and alone.taken_over is None and shared.taken_over is not None
    same(shared, alone)
    assert shared.steps == alone.steps and shared.history == alone.history
    assert shared.seconds > shared.taken_over["seconds"] > 0


@pytest.mark.parametrize(
    "change",
    [
        "seed=1",
        "siamese.pair_rate=0.002",
        "siamese.pair_epochs=4",
        "text.max_length=3",
        "encoder.dim=8",
        "encoder.dropout=0.2",
        "validation.share=0.3",
    ],
)
def test_a_stage_that_would_be_another_is_made_anew(change, splits, tmp_path, begun):
    place = RunPlace(first_stages=tmp_path)
    run_training(splits, small(*KINDS[0]), place)
    begun.clear()
    run_training(splits, small(*KINDS[0], change), place)
    assert begun == ["siamese", "classifier"]


@pytest.mark.parametrize(
    ("takes_part", "stages"), [("true", ["siamese", "classifier"]), ("false", ["classifier"])]
)
def test_label_points_make_it_another_where_they_take_part(takes_part, stages, splits, tmp_path, begun):
    settings = ("siamese.kind=decoupled", *PAIRS, f"siamese.label_points={takes_part}")
    place = RunPlace(first_stages=tmp_path)
    run_training(splits, small(*settings, "targets.targets=none"), place)
    begun.clear()
    run_training(splits, small(*settings, "targets.targets=ratio"), place)
    assert begun == stages


@pytest.mark.parametrize("change", ["head.rate=0.02", "encoder.rate=0.01", "targets.label_weight=0.5"])
def test_what_comes_later_does_not_make_it_another(change, splits, tmp_path, begun):
    place = RunPlace(first_stages=tmp_path)
    run_training(splits, small(*KINDS[0]), place)
    begun.clear()
    run_training(splits, small(*KINDS[0], change), place)
    assert begun == ["classifier"]


def test_ngame_and_renee_share_one(splits, tmp_path, begun):
    folder, place = write_pretrained(tmp_path / "t", splits), RunPlace(first_stages=tmp_path / "kept")
    run_training(splits, small_system("ngame", folder, "training.steps=2"), place)
    renee = small_system("renee", folder, "training.steps=2")
    begun.clear()
    found = run_training(splits, renee, place)
    assert begun == ["classifier"]
    same(found, run_training(splits, renee))


def test_runs_at_the_same_time_make_it_once(splits, tmp_path, begun):
    place = RunPlace(first_stages=tmp_path)
    threads = [
        threading.Thread(target=run_training, args=(splits, small(*KINDS[0], f"head.rate=0.0{rate}"), place))
        for rate in (1, 2, 3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(begun) == ["classifier"] * 3 + ["siamese"]


def test_one_that_was_broken_off_is_not_kept(splits, tmp_path, monkeypatch, begun):
    place = RunPlace(first_stages=tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(Training, "_train_batch", _fail)
        with pytest.raises(DataError, match="on purpose"):
            run_training(splits, small(*KINDS[0]), place)
    begun.clear()
    run_training(splits, small(*KINDS[0]), place)
    assert begun == ["siamese", "classifier"]


def _fail(*given, **named):
    raise DataError("on purpose")


def test_auto_makes_it_once_for_all_that_it_tries(splits, begun, monkeypatch):
    monkeypatch.setattr(auto, "FEW", 20)
    auto.choose(splits, small(*KINDS[0], "targets.targets=auto"))
    assert begun.count("siamese") == 1 and begun.count("classifier") >= 5


def test_each_stage_drops_its_own_share(splits, tmp_path, monkeypatch):
    folder = write_pretrained(tmp_path / "t", splits)
    seen = []

    def noted(name, material, encoder, before, head=None):
        running = begin_stage(name, material, encoder, before, head)
        inside = {m.p for m in encoder.model.modules() if isinstance(m, torch.nn.Dropout)}
        seen.append((name, encoder.dropout.p, inside))
        return running

    monkeypatch.setattr(runs, "begin_stage", noted)
    run_training(splits, small_system("renee", folder, "training.steps=1"))
    (first, low, inside), (second, high, inside_too) = seen
    assert (first, low, second, high) == ("siamese", 0.1, "classifier", 0.5)
    assert inside == inside_too


def test_the_last_dropout_of_convolutions_is_their_own(splits):
    model = run_training(splits, small("encoder.kind=inception", "encoder.dim=64", "training.steps=1")).model
    last = model.encoder.last_dropout.p
    model.encoder.set_dropout(0.125)
    assert model.encoder.last_dropout.p == last != 0.125
    assert model.encoder.dropout.p == 0.125
