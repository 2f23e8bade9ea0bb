"""Kinds from outside the package: one file and a line in a table, and a model trains, stays and loads."""

from __future__ import annotations

import numpy as np
import pytest
from small_runs import small, small_splits
from toy_kinds import ToyEncoder

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.nets.kinds import ENCODERS
from gandalf.runs.session import train


def test_an_encoder_from_outside_the_package_trains_a_model(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"encoder\.kind.*toy"):
        small("encoder.kind=toy")
    monkeypatch.setitem(ENCODERS, "toy", "toy_kinds:ENCODER")
    before = ToyEncoder.started
    trained = train(small_splits(), small("encoder.kind=toy", "training.steps=60", "labels.kind=every"))
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
