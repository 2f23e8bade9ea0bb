"""An encoder that stays as it is reads each text once: the same model, sooner."""

from __future__ import annotations

import pytest
import torch
from small_runs import same, small, small_splits
from small_systems import begun, small_system, write_pretrained

from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.train import encoding, loop


@pytest.fixture
def splits():
    return small_splits()


@pytest.fixture
def asked(splits, tmp_path):
    """Steps enough to meet every point several times."""
    folder = write_pretrained(tmp_path / "t", splits)
    return small_system("ngame", folder, "training.steps=40", "training.batch=32", "targets.targets=ratio")


def reading(training):
    """How many texts the encoder is given from here on."""
    seen = []
    whole = training.encoder.forward
    training.encoder.forward = lambda ids: seen.append(len(ids)) or whole(ids)
    return seen


def test_every_text_is_read_once(splits, asked):
    running, material = begun(splits, asked, "classifier")
    seen = reading(running.training)
    running.training.run()
    assert sum(seen) == len(material.points) < 40 * 32


def test_the_model_is_the_one_that_reads_every_batch(splits, asked, monkeypatch):
    kept = run_training(splits, asked)
    monkeypatch.setattr(loop, "is_worth_storing", lambda *given: False)
    anew = run_training(splits, asked)
    torch.testing.assert_close(kept.model.head.rows, anew.model.head.rows, rtol=1e-3, atol=1e-4)
    assert kept.steps == anew.steps


def test_a_resumed_run_ends_with_the_same_weights(splits, asked, tmp_path):
    whole = run_training(splits, asked, RunPlace(tmp_path / "whole", minutes=0))
    broken = run_training(splits, asked, RunPlace(tmp_path / "whole", resume=True, minutes=0))
    same(whole, broken)


@pytest.mark.parametrize(
    ("met", "free", "expected"),
    [(100, None, False), (101, None, True), (101, 4 * 8 * 400, True), (101, 4 * 8 * 400 - 4, False)],
)
def test_when_it_is_worth_it(met, free, expected, monkeypatch):
    monkeypatch.setattr(encoding, "available_bytes", lambda device: free)
    points = type("Hundred", (), {"__len__": lambda self: 100})()
    assert encoding.is_worth_storing(points, 8, met, torch.device("cpu")) is expected


def test_where_there_is_no_room_every_batch_is_read(splits, asked, monkeypatch):
    asked_for = []
    monkeypatch.setattr(loop, "is_worth_storing", lambda *given: asked_for.append(given))
    running, _ = begun(splits, asked, "classifier")
    seen = reading(running.training)
    running.training.run()
    assert sum(seen) == 40 * 32 and len(asked_for) == 1


def test_words_that_stay_are_read_once_too(splits):
    """A bag of words with rows of label texts, frozen after its siamese stage."""
    pairs = ("siamese.kind=contrastive", "siamese.pair_epochs=2", "siamese.pair_batch=32")
    settings = (*pairs, "encoder.frozen=true", "training.steps=40", "training.batch=32", "head.kind=gated")
    running, material = begun(splits, small(*settings), "classifier")
    seen = reading(running.training)
    running.training.run()
    assert sum(seen) == len(material.points)
