"""Blocks of labels follow from the memory there is, unless somebody chose them; the plan is told first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_runs import KilledError, at_step, killed, same, small, small_splits
from train_command import SMALL, run

from gandalf.errors import DataError
from gandalf.runs import shape as shapes
from gandalf.runs.place import Place
from gandalf.runs.run import train
from gandalf.runs.shape import plan_in_words, with_fitting_blocks
from gandalf.train import memory
from gandalf.train.memory import RunShape, memory_plan
from gandalf.train.ranks import ONE

SHAPE = RunShape(labels=100_000, dim=64, batch=256, block=32_768)
RECIPE = small("labels.kind=every")


def free(monkeypatch, size):
    monkeypatch.setattr(memory, "available_bytes", lambda *_: size)


def needed(shape):
    """By hand: a tenth and 256 MiB to spare."""
    return int(1.1 * memory_plan(shape).total) + (256 << 20)


def fitted(before=None, ranks=ONE, shape=SHAPE):
    recipe, found = with_fitting_blocks(RECIPE, shape, ranks, before or {})
    assert recipe == replace(RECIPE, labels=replace(RECIPE.labels, block=found.block))
    assert found == replace(shape, block=found.block)
    return found.block


@pytest.mark.parametrize("block", [32_768, 16_384, 8_192, 2_048])
def test_blocks_are_halved_until_they_fit(block, monkeypatch):
    free(monkeypatch, needed(replace(SHAPE, block=block)))
    assert fitted() == block
    free(monkeypatch, needed(replace(SHAPE, block=block)) - 2)
    assert fitted() == block // 2


def test_where_nothing_fits_blocks_are_small_and_the_run_is_refused_for_something_else(monkeypatch):
    free(monkeypatch, 1000)
    assert fitted() == 256
    with pytest.raises(DataError, match="no batch is small enough"):
        memory.require_memory(replace(SHAPE, block=256))


def test_where_nobody_tells_what_is_free_blocks_stay(monkeypatch):
    free(monkeypatch, None)
    assert fitted() == SHAPE.block


def test_a_run_that_is_resumed_keeps_its_blocks(monkeypatch):
    free(monkeypatch, 1000)
    assert fitted(before={"labels": {"block": 777}}) == 777


def test_a_shortlist_is_as_large_as_it_is(monkeypatch):
    free(monkeypatch, 1000)
    shape = replace(SHAPE, shortlist=True)
    assert with_fitting_blocks(RECIPE, shape, ONE, {}) == (RECIPE, shape)


class Crowded(type(ONE)):
    """One of two ranks, of which the other has room for an eighth of a block."""

    def __init__(self):
        self.asked = 0

    def any(self, flag):
        self.asked += 1
        return flag or self.asked <= 3


def test_all_ranks_take_the_blocks_of_the_one_with_least_room(monkeypatch):
    free(monkeypatch, None)
    assert fitted(ranks=Crowded()) == SHAPE.block // 8


def tight(monkeypatch, block):
    """Memory for a run with such blocks, and for no larger ones."""
    monkeypatch.setattr(shapes, "SMALLEST_BLOCK", 4)
    monkeypatch.setattr(shapes, "roomy", lambda shape, *_: shape.block <= block)


def test_a_run_takes_blocks_that_fit_and_goes_on_with_them(monkeypatch, tmp_path):
    asked = small("labels.kind=every", "training.steps=6", "training.precision=float32")
    with monkeypatch.context() as patch:
        tight(patch, 40)
        unbroken = train(small_splits(), asked, Place(tmp_path / "unbroken"))
        assert unbroken.model.config["labels"]["block"] == 30  # 120 labels, halved twice
        with pytest.raises(KilledError):
            at_step(patch, 3, killed)
            train(small_splits(), asked, Place(tmp_path / "broken", minutes=0))
    resumed = train(small_splits(), asked, Place(tmp_path / "broken", resume=True))  # with room for more
    same(unbroken, resumed)
    assert resumed.model.config["labels"]["block"] == 30


def test_blocks_that_were_chosen_stay(monkeypatch):
    asked = small("labels.kind=every", "labels.block=100", "training.steps=1")
    tight(monkeypatch, 40)
    assert train(small_splits(), asked).model.config["labels"]["block"] == 100


def test_the_plan_in_words():
    plan = str(memory_plan(SHAPE))
    assert plan_in_words(SHAPE) == f"{plan}; 32,768 labels at a time"
    assert plan_in_words(replace(SHAPE, labels=50, block=70), 10**9).endswith(
        "; 50 labels at a time; 1.0 GB are free"
    )


def test_the_plan_is_told_before_training_starts(made_up, tmp_path):
    result = run(made_up, tmp_path / "out", *SMALL, "--json")
    assert result.exit_code == 0 and result.stdout.startswith("{")
    told = result.stderr.splitlines()[0]
    assert (
        told.startswith("training takes about") and "labels at a time" in told and told.endswith("are free")
    )


def test_a_run_in_python_tells_whoever_asks(monkeypatch):
    heard = []

    def stop(*_):
        heard.append("began")
        raise KilledError

    at_step(monkeypatch, 0, stop)
    with pytest.raises(KilledError):
        train(small_splits(), small(), Place(tell=heard.append))
    assert len(heard) == 2 and heard[0].startswith("training takes about") and heard[1] == "began"
