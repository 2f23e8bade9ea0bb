"""What a run trains on: very many token ids stay on disk, and change nothing by that."""

from __future__ import annotations

import numpy as np
import torch

import gandalf
from gandalf.runs import material
from gandalf.runs.place import Place
from gandalf.runs.run import train
from gandalf.settings import override
from gandalf.systems import recipe


def test_token_ids_on_disk_give_the_same_model(tmp_path, monkeypatch):
    splits = gandalf.synthetic(300, 60, seed=1).splits
    short = override(recipe("astec"), ["training.steps=5", "encoder.dim=16", "device=cpu"])
    plain = train(splits, short, Place(tmp_path / "plain"))
    assert not (tmp_path / "plain" / "checkpoints" / "tokens.npy").exists()
    monkeypatch.setattr(material, "MANY_TEXTS", 10)
    mapped = train(splits, short, Place(tmp_path / "mapped"))
    table = np.load(tmp_path / "mapped" / "checkpoints" / "tokens.npy", mmap_mode="r")
    assert len(table) > 300  # training points and label points
    assert torch.equal(plain.model.head.rows, mapped.model.head.rows)


def test_one_point_alone_is_never_a_batch():
    """Label points go on to the end where there is but one training point: some layers need two."""
    points = gandalf.synthetic(40, 8, seed=0).splits.train[:1]
    made = material.augmented(points, recipe("inceptionxml").targets, seed=0)
    steps = material.order(
        made, override(recipe("astec"), ["training.steps=10", "training.batch=4"]), epoch=2
    )
    assert all(len(np.unique(steps.rows(step))) > 1 for step in range(10))
