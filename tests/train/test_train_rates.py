"""How rates follow the batch: the rule, in the stages of every system, and in the rows that are trained."""

from __future__ import annotations

import pytest
import torch
from command_line import done
from small_runs import same, small, small_splits
from small_systems import begun, whole

from gandalf.runs import stages
from gandalf.runs.plan import resolved
from gandalf.runs.session import run_training
from gandalf.systems import NETWORKS, recipe
from gandalf.train.rates import at_batch


@pytest.fixture(scope="module")
def stage_of(small_pretrained):
    """A stage of a system on the small set, with its order, labels and rates."""

    def of(system, *settings, stage="classifier"):
        return begun(small_splits(), whole(system, small_pretrained, *settings), stage)[0].training.stage

    return of


def test_the_rule_by_hand():
    assert [at_batch(100.0, "sgd", batch) for batch in (32, 256, 1024, 384)] == [12.5, 100.0, 400.0, 150.0]
    assert [at_batch(5e-3, "adamw", batch) for batch in (32, 256, 1024)] == [5e-3] * 3
    assert at_batch(1e-3, "sgd", 1024, 512) == 2e-3


@pytest.mark.parametrize(("batch", "rate"), [(64, 25.0), (256, 100.0), (1024, 400.0)])
def test_renees_rows_have_the_rate_of_their_batch(batch, rate, stage_of):
    """And the decay of always: at four times the rate a row shrinks four times as much, a fourth as often."""
    stage = stage_of("renee", f"training.batch={batch}")
    assert (stage.head.rate, stage.head.weight_decay) == (rate, 5e-8)
    assert (stage.encoder.rate, stage.order.batch) == (1e-4, batch)  # by AdamW


def test_a_gpu_raises_the_batch_of_renee_and_so_the_rate(monkeypatch):
    """What docs/lab/results.md has of Docs with head.rate=400, without being told."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    found = resolved(recipe("renee"), 80_000, 79_000)
    assert found.training.batch == 1024
    assert at_batch(found.head.rate, found.head.optimiser, found.training.batch) == 400.0


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
@pytest.mark.parametrize("system", NETWORKS)
def test_at_a_batch_of_256_rates_are_those_that_are_set_to_the_bit(system, optimiser, stage_of):
    asked = (f"head.optimiser={optimiser}", f"encoder.optimiser={optimiser}")
    settings = ("encoder.rate=0.0123", "encoder.words_rate=0.0234", "head.rate=0.0345", "training.batch=256")
    stage = stage_of(system, *asked, *settings)
    assert (stage.encoder.rate, stage.encoder.words_rate, stage.head.rate) == (0.0123, 0.0234, 0.0345)


@pytest.mark.parametrize("system", NETWORKS)
def test_by_adam_rates_stay_whatever_the_batch(system, stage_of):
    for batch in (32, 1024):
        stage = stage_of(system, "head.optimiser=adamw", f"training.batch={batch}")
        own = recipe(system)
        expected = (own.encoder.rate, own.encoder.words_rate, own.head.rate)
        assert (stage.encoder.rate, stage.encoder.words_rate, stage.head.rate) == expected


def test_layers_by_sgd_follow_and_words_do_not(stage_of):
    stage = stage_of("astec", "encoder.optimiser=sgd", "training.batch=1024")
    assert (stage.encoder.rate, stage.encoder.words_rate, stage.head.rate) == (4e-3, 5e-3, 5e-3)


@pytest.mark.parametrize(
    ("optimiser", "batch", "rate"), [("sgd", 512, 4e-4), ("sgd", 1024, 8e-4), ("adamw", 1024, 4e-4)]
)
def test_pairs_have_a_batch_of_their_own(optimiser, batch, rate, stage_of):
    settings = (f"encoder.optimiser={optimiser}", f"siamese.pair_batch={batch}", "training.batch=32")
    assert stage_of("ngame", *settings, stage="siamese").encoder.rate == pytest.approx(rate)


def test_rows_are_trained_at_the_rate_of_the_batch(monkeypatch):
    """32 points at a time by a rate of 8: as by a rate of 1 before the rule, to the bit."""
    settings = ("head.optimiser=sgd", "encoder.optimiser=sgd", "training.steps=5", "training.batch=32")
    found = run_training(small_splits(), small(*settings, "head.rate=8", "encoder.rate=0.08"))
    monkeypatch.setattr(stages, "at_batch", lambda rate, *rest: rate)
    same(found, run_training(small_splits(), small(*settings, "head.rate=1", "encoder.rate=0.01")))


def test_the_rule_is_said_where_a_rate_is_printed():
    assert "a batch of 256, and grows with the batch" in done("systems", "renee")
    assert "a batch of 256" not in done("systems", "astec")
    printed = done("config", "--system", "renee").splitlines()
    above = printed[printed.index("rate = 100.0") - 1]
    assert above.startswith("#") and "sgd" in above and "batch 256" in above
