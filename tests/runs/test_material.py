"""What a run trains on: very many token ids stay on disk, and change nothing by that."""

from __future__ import annotations

import numpy as np
import torch

import gandalf
from gandalf.runs import prepare as material
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.settings import override
from gandalf.systems import recipe


def test_token_ids_on_disk_give_the_same_model(tmp_path, monkeypatch):
    splits = gandalf.synthetic(300, 60, seed=1).splits
    short = override(recipe("astec"), ["training.steps=5", "encoder.dim=16", "device=cpu"])
    plain = run_training(splits, short, RunPlace(tmp_path / "plain"))
    assert not (tmp_path / "plain" / "checkpoints" / "tokens.npy").exists()
    monkeypatch.setattr(material, "MANY_TEXTS", 10)
    mapped = run_training(splits, short, RunPlace(tmp_path / "mapped"))
    table = np.load(tmp_path / "mapped" / "checkpoints" / "tokens.npy", mmap_mode="r")
    assert len(table) > 300  # training points and label points
    assert torch.equal(plain.model.head.rows, mapped.model.head.rows)


def test_one_point_alone_is_never_a_batch():
    """Label points go on to the end where there is but one training point: some layers need two."""
    points = gandalf.synthetic(40, 8, seed=0).splits.train[:1]
    made = material.with_label_points(points, recipe("inceptionxml").targets, seed=0)
    steps = material.point_order(
        made, override(recipe("astec"), ["training.steps=10", "training.batch=4"]), epoch=2
    )
    assert all(len(np.unique(steps.rows(step))) > 1 for step in range(10))


def test_label_points_stay_with_their_own_label_in_the_last_phase():
    points = gandalf.synthetic(40, 8, seed=0).splits.train
    asked = override(
        recipe("astec"),
        ["training.steps=10", "training.batch=16", "targets.label_epochs=0.6", "targets.own_weight=0.3"],
    )
    made = material.with_label_points(points, asked.targets, seed=0)
    made = material.with_own_label_points(made, points, asked.targets, seed=0)
    tokens = material.fit_tokens(points, asked.text, asked.encoder)
    looped = material.points_for_loop(made, tokens, asked.targets)
    order = material.point_order(made, asked, epoch=4)
    early = {int(row) for step in range(6) for row in order.rows(step)}
    late = {int(row) for step in range(6, 10) for row in order.rows(step)}
    own = range(40 + 8, 40 + 8 + 8)
    assert early <= set(range(40 + 8)) and late <= {*range(40), *own} and late & set(own)
    assert (looped.targets[list(own)].toarray() == np.eye(8)).all()
    assert [made.points.texts[row] for row in own] == list(points.label_texts)
    np.testing.assert_allclose(looped.weights[[0, 40, 48]], [1.0, 1.0, 0.3])


def test_without_an_own_weight_the_last_phase_has_training_points_alone():
    points = gandalf.synthetic(40, 8, seed=0).splits.train
    asked = recipe("astec")
    made = material.with_label_points(points, asked.targets, seed=0)
    assert material.with_own_label_points(made, points, asked.targets, seed=0) is made
    assert made.phases[1].tolist() == list(range(40))
