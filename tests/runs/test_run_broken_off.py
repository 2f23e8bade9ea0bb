"""A run that was broken off and resumed ends as if unbroken, and one that must not be resumed is not."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import KilledError, at_step, killed, same, small, small_splits, weights

from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.runs import session as runs
from gandalf.runs import stages
from gandalf.runs.folder import RunPlace
from gandalf.runs.prepare import epoch_steps
from gandalf.runs.session import run_training
from gandalf.runs.validation import Validate
from gandalf.runs.watch import Interrupted
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.logs import read_log
from gandalf.train.loop import Training

pytestmark = pytest.mark.slow

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
    "gated rows": ("head.kind=gated", "encoder.residual=decaf", "head.start=text"),
    "attention": ("head.kind=attention", "encoder.residual=eclare", "head.start=graph-text"),
    "frozen rows": ("head.kind=attention", "head.rows=frozen", "labels.kind=shortlist"),
    "drawn labels first": ("siamese.kind=contrastive", "siamese.pair_batch=40", "siamese.pair_epochs=5"),
    "clusters first": ("siamese.kind=triplet", "siamese.pair_batch=32", "siamese.pair_epochs=6"),
    "pairs alone": ("siamese.kind=triplet", "siamese.alone=true", "siamese.pair_epochs=6"),
}
# Held points enough to see a rise, and then none.
RISING = ("validation.share=0.3", "validation.metric=P@5", "validation.patience=2", "validation.every=2")
PAIRS = ("drawn labels first", "clusters first", "pairs alone")


@pytest.fixture
def splits() -> Splits:
    return small_splits()


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
    unbroken = run_training(splits, chosen, RunPlace(tmp_path / "unbroken"))
    rng = np.random.default_rng(0)
    kills = sorted(rng.choice(np.arange(1, unbroken.steps), size=3, replace=False))
    for number, step in enumerate([0, *kills]):  # at 0 there is no checkpoint to go on from
        with monkeypatch.context() as patch, pytest.raises(KilledError):
            at_step(patch, step, killed)
            run_training(splits, chosen, RunPlace(tmp_path / "broken", resume=number > 0, minutes=0))
    resumed = run_training(splits, chosen, RunPlace(tmp_path / "broken", resume=True))
    same(unbroken, resumed)
    assert log_of(tmp_path / "broken") == log_of(tmp_path / "unbroken")
    assert (unbroken.steps == 40) == (course not in ("patience", *PAIRS))
    assert course not in ("patience", *PAIRS) or unbroken.steps == unbroken.history[-1]["step"]


def test_checkpoints_are_written_when_their_time_has_come(splits, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, tensors, state: saved.append(state["step"]))
    run_training(splits, small("training.steps=6"), RunPlace(tmp_path, minutes=0))
    assert saved == [1, 2, 3, 4, 5, 6]
    saved.clear()
    run_training(splits, small("training.steps=6"), RunPlace(tmp_path, minutes=10))
    assert saved == [6]  # calibration and scoring are still to come


def test_a_run_that_had_run_out_of_patience_does_not_go_on(splits, tmp_path, monkeypatch):
    """Killed between the last validation and the model, it must not take one more step."""
    chosen = small(*COURSES["patience"])
    unbroken = run_training(splits, chosen, RunPlace(tmp_path / "unbroken"))
    assert unbroken.steps < 200
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr("gandalf.runs.validation.Validate.restore", lambda *_: killed())
        run_training(splits, chosen, RunPlace(tmp_path / "broken", minutes=0))
    at_step(monkeypatch, unbroken.steps, killed)
    same(unbroken, run_training(splits, chosen, RunPlace(tmp_path / "broken", resume=True)))


def test_with_patience_the_best_weights_are_kept(splits, monkeypatch):
    seen, validate = [], Validate.__call__

    def watched(self, training):
        seen.append({name.replace("/", "."): each.clone() for name, each in training.weights().items()})
        return validate(self, training)

    monkeypatch.setattr(Validate, "__call__", watched)
    trained = run_training(splits, small(*COURSES["patience"], *RISING))
    best = int(np.argmax([each["value"] for each in trained.history]))
    assert 0 < best < len(seen) - 1  # or nothing would be shown
    assert trained.kept == trained.history[best]
    assert all(torch.equal(each, seen[best][name]) for name, each in weights(trained).items())


def test_a_run_is_never_worse_than_its_start(splits, tmp_path, monkeypatch):
    """Where training ruins everything, the weights of the start are kept, resumed or not."""
    starts, validate = [], Validate.__call__

    def ruined(self, training):
        if training.step:
            training.head.bias.data.copy_(1000.0 * torch.arange(len(training.head.bias)))
        else:
            starts.append({name.replace("/", "."): t.clone() for name, t in training.weights().items()})
        return validate(self, training)

    monkeypatch.setattr(Validate, "__call__", ruined)
    ruinous = small("validation.share=0.3")
    trained = run_training(splits, ruinous, RunPlace(tmp_path / "unbroken"))
    assert trained.history[0]["step"] == 0 and trained.kept == trained.history[0]
    assert trained.history[-1]["value"] < trained.history[0]["value"] - 5
    assert all(torch.equal(each, starts[0][name]) for name, each in weights(trained).items())
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 20, killed)
        run_training(splits, ruinous, RunPlace(tmp_path / "broken", minutes=0))
    same(trained, run_training(splits, ruinous, RunPlace(tmp_path / "broken", resume=True)))


def test_the_last_weights_stay_unless_earlier_ones_were_better_by_more_than_noise(splits):
    trained = run_training(splits, small("validation.share=0.3"))
    best = max(trained.history, key=lambda each: each["value"])
    noise = (best["value"] * (100 - best["value"]) / 90) ** 0.5
    assert best["value"] - trained.history[-1]["value"] < noise
    assert trained.kept == trained.history[-1] and "kept" not in trained.kept


def test_ctrl_c_is_answered_at_the_next_step(splits, tmp_path, monkeypatch):
    """Not only at the end of a stretch between two hooks, which may take minutes."""
    chosen = small("validation.share=0", "training.batch=2", "training.steps=300")
    assert epoch_steps(splits.train, 2) // 20 > 7  # steps between two lines of the log
    unbroken = run_training(splits, chosen, RunPlace(tmp_path / "unbroken"))
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    with monkeypatch.context() as patch, pytest.raises(Interrupted, match="after step 15 of 300") as stopped:
        at_step(patch, 14, lambda: signal.raise_signal(signal.SIGINT))
        run_training(splits, chosen, RunPlace(tmp_path / "broken"))
    assert stopped.value.saved
    assert Checkpoints(tmp_path / "broken" / "checkpoints").latest()[1]["step"] == 15
    assert signal.getsignal(signal.SIGINT) is before
    same(unbroken, run_training(splits, chosen, RunPlace(tmp_path / "broken", resume=True)))
    assert log_of(tmp_path / "broken") == log_of(tmp_path / "unbroken")


def test_ctrl_c_at_the_last_step_changes_nothing(splits, monkeypatch):
    at_step(monkeypatch, 39, lambda: signal.raise_signal(signal.SIGINT))
    assert run_training(splits, small()).steps == 40


def test_a_second_ctrl_c_ends_at_once(splits, tmp_path, monkeypatch):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    at_step(monkeypatch, 5, twice)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run_training(splits, small(), RunPlace(tmp_path))
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
        run_training(splits, small(), RunPlace(tmp_path, minutes=0))
    with pytest.raises(DataError, match=sentence):
        run_training(splits, small(change), RunPlace(tmp_path, resume=True))


def test_other_data_are_not_resumed(splits, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 5, killed)
        run_training(splits, small(), RunPlace(tmp_path, minutes=0))
    texts = ["another", *splits.train.texts[1:]]
    other = replace(splits, train=replace(splits.train, texts=texts))
    with pytest.raises(DataError, match="a run on other data"):
        run_training(other, small(), RunPlace(tmp_path, resume=True))


def test_time_is_counted_over_all_parts_of_a_run(splits, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 30, killed)
        run_training(splits, small(), RunPlace(tmp_path, minutes=0))
    before = Checkpoints(tmp_path / "checkpoints").latest()[1]["seconds"]
    assert run_training(splits, small(), RunPlace(tmp_path, resume=True)).seconds > before > 0


def test_hard_negatives_are_looked_up_once_an_epoch_and_not_again_on_resuming(splits, tmp_path, monkeypatch):
    steps, look_up = [], stages.refresh_shortlist
    monkeypatch.setattr(stages, "refresh_shortlist", lambda *g: steps.append(g[-1].step) or look_up(*g))
    chosen = small(*COURSES["shortlist"])
    epoch = epoch_steps(splits.train[:285], 32)
    run_training(splits, chosen)
    assert steps == [0, *range(epoch, 40, epoch), 40]
    steps.clear()
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, epoch + 2, killed)
        run_training(splits, chosen, RunPlace(tmp_path, minutes=0))
    run_training(splits, chosen, RunPlace(tmp_path, resume=True))
    assert steps == [0, *range(epoch, 40, epoch), 40]


def test_what_breaks_off_after_the_last_update_costs_no_training(splits, tmp_path, monkeypatch):
    whole = run_training(splits, small("training.steps=6"))
    with monkeypatch.context() as broken:
        broken.setattr(runs.TrainingRun, "result", _broken_off)
        with pytest.raises(KeyboardInterrupt):
            run_training(splits, small("training.steps=6"), RunPlace(tmp_path))
    monkeypatch.setattr(
        Training, "_train_batch", lambda *given, **named: pytest.fail("it was trained already")
    )
    same(run_training(splits, small("training.steps=6"), RunPlace(tmp_path, resume=True)), whole)


def _broken_off(*given):
    raise KeyboardInterrupt
