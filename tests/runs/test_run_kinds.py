"""Kinds from outside the package: one file and a line in a table, and a model trains, stays and loads."""

from __future__ import annotations

import numpy as np
import pytest
from small_runs import small, small_splits
from toy_kinds import ToyEncoder

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.nets.kinds import ENCODERS, HEADS
from gandalf.runs.session import run_training
from gandalf.train.pairs import PAIR_LOSSES


def test_an_encoder_from_outside_the_package_trains_a_model(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"encoder\.kind.*toy"):
        small("encoder.kind=toy")
    monkeypatch.setitem(ENCODERS, "toy", "toy_kinds:ENCODER")
    before = ToyEncoder.started
    trained = run_training(
        small_splits(), small("encoder.kind=toy", "training.steps=60", "labels.kind=every")
    )
    assert isinstance(trained.model.encoder, ToyEncoder) and ToyEncoder.started == before + 1
    assert trained.model.encoder.dropout.p == 0.3  # of astec, set when a stage begins
    first, last = trained.history[0]["P@1"], trained.history[-1]["P@1"]
    assert last > first + 5
    save_model(trained.model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    texts = small_splits().test.texts[:20]
    np.testing.assert_allclose(again.best(texts, 5)[1], trained.model.best(texts, 5)[1], rtol=1e-5)
    monkeypatch.delitem(ENCODERS, "toy")
    with pytest.raises(DataError, match="there is no encoder 'toy'"):
        load_model(tmp_path / "model")


def test_a_head_from_outside_the_package_trains_a_model(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"head\.kind.*toy"):
        small("head.kind=toy")
    monkeypatch.setitem(HEADS, "toy", "toy_kinds:HEAD")
    little, trained = (
        run_training(
            small_splits(), small("head.kind=toy", "encoder.residual=decaf", f"training.steps={steps}")
        )
        for steps in (1, 60)
    )
    assert lead_of_true_labels(trained.model) > lead_of_true_labels(little.model) + 0.3
    save_model(trained.model, tmp_path / "model")  # whatever the head, a folder holds one plain table
    monkeypatch.delitem(HEADS, "toy")
    texts = small_splits().test.texts[:20]
    again = load_model(tmp_path / "model")
    np.testing.assert_allclose(again.best(texts, 5)[1], trained.model.best(texts, 5)[1], rtol=1e-5)


def test_a_loss_of_pairs_from_outside_the_package_trains_an_encoder(monkeypatch):
    pairs = ("siamese.kind=toy", "siamese.pair_batch=32", "siamese.alone=true")
    with pytest.raises(DataError, match=r"siamese\.kind.*toy"):
        small(*pairs)
    monkeypatch.setitem(PAIR_LOSSES, "toy", "toy_kinds:LOSS")
    little, much = (
        lead_of_true_labels(
            run_training(small_splits(), small(*pairs, f"siamese.pair_epochs={epochs}")).model
        )
        for epochs in (0.1, 6)
    )
    assert much > little + 0.1


def lead_of_true_labels(model):
    """How much higher true labels score than all labels do, on the training texts."""
    points = small_splits().train
    every = np.tile(np.arange(points.num_labels), (len(points), 1))
    scores = model.score(points.texts, every)
    return scores[points.targets.nonzero()].mean() - scores.mean()
