"""Which checkpoints and model folders of older releases a run takes as they are, and which it refuses."""

from __future__ import annotations

import json

import pytest
from small_runs import KilledError, at_step, killed, same, small, small_splits

from gandalf.errors import DataError
from gandalf.model import load_model, save_model
from gandalf.model_folder import HASHES
from gandalf.recipe import Recipe
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import comparable_settings, run_training
from gandalf.settings import differing, override, to_dict
from gandalf.systems import recipe
from gandalf.train.checkpoint import Checkpoints

PAIRS = ("siamese.pair_batch=32", "siamese.pair_epochs=2")


def new_settings(asked: Recipe) -> list[str]:
    """Settings that checkpoints of commit 0f17dd6 and before lack, for which they would be refused."""
    found = comparable_settings(asked)
    there = {"encoder.attention": "attention" in found["encoder"], "rates": "rates" in found}
    there["siamese.cluster_share"] = "cluster_share" in found["siamese"]
    return [name for name, is_there in there.items() if is_there]


@pytest.mark.parametrize(
    ("system", "settings", "expected"),
    [
        ("astec", ("training.batch=1024",), []),
        ("decaf", (), []),
        ("inceptionxml", (), ["encoder.attention"]),
        ("inceptionxml", ("encoder.attention=self",), []),
        ("siamesexml", (), ["siamese.cluster_share"]),
        ("ngame", (), ["siamese.cluster_share"]),
        ("renee", ("siamese.kind=none",), []),
        ("renee", ("siamese.kind=none", "training.batch=1024"), ["rates"]),
    ],
)
def test_older_checkpoints_stand_where_nothing_has_changed(system, settings, expected):
    asked = override(recipe(system), ("training.batch=256", *settings))
    assert new_settings(asked) == expected


def test_other_settings_still_differ():
    one, other = (comparable_settings(override(Recipe(), (f"head.rate={rate}",))) for rate in (0.1, 0.2))
    assert differing(one, other) == ["head.rate"]
    assert "cluster_share" in to_dict(Recipe())["siamese"]  # a copy was changed


@pytest.mark.parametrize(
    ("settings", "system", "lacks", "sentence"),
    [
        (("encoder.attention=self",), "inceptionxml", "encoder attention", None),
        ((), "inceptionxml", "encoder attention", "encoder.attention"),
        (("siamese.kind=triplet", *PAIRS), "astec", "siamese cluster_share", "siamese.cluster_share"),
    ],
)
def test_a_checkpoint_without_a_setting(settings, system, lacks, sentence, tmp_path, monkeypatch):
    """It is as one of commit 0f17dd6, which knew none of these: resumed if it was the same, else refused."""
    asked = small("training.steps=4", *settings, system=system)
    table, name = lacks.split()
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        save = Checkpoints.save

        def as_before(self, tensors, state):
            config = json.loads(json.dumps(state["config"]))
            config[table].pop(name, None)
            kept = state["fingerprint"] if config == state["config"] else "another"
            save(self, tensors, {**state, "config": config, "fingerprint": kept})

        patch.setattr(Checkpoints, "save", as_before)
        at_step(patch, 3, killed)
        run_training(small_splits(), asked, RunPlace(tmp_path / "run", minutes=0))
    resumed = RunPlace(tmp_path / "run", resume=True)
    if sentence is None:
        same(run_training(small_splits(), asked, resumed), run_training(small_splits(), asked))
        return
    with pytest.raises(DataError, match=sentence):
        run_training(small_splits(), asked, resumed)


def test_a_model_folder_without_a_kind_of_attention_predicts_by_itself(tmp_path):
    """New folders say `cross`; one that says nothing is of before, and its second attention is `self`."""
    asked = small("training.steps=3", "encoder.rate=0.2", system="inceptionxml")
    model = run_training(small_splits(), asked).model
    save_model(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    stored = json.loads(path.read_text("utf-8"))
    assert stored["encoder"]["attention"] == "cross"
    texts = small_splits().test.texts[:20]
    found = load_model(tmp_path / "model").vectors(texts)
    del (
        stored["encoder"]["attention"],
        stored["config"]["encoder"]["attention"],
        stored[HASHES],
    )  # nor had folders of before any
    path.write_text(json.dumps(stored), "utf-8")
    before = load_model(tmp_path / "model").vectors(texts)
    assert float((found - before).abs().max()) > 1e-5
    model.encoder.crosses = False
    assert float((before - model.vectors(texts)).abs().max()) < 1e-6
