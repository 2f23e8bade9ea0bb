"""Blocks of labels follow from the memory there is, unless somebody chose them; the plan is told first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command_line import after_plan
from small_runs import KilledError, at_step, killed, same, small, small_splits
from train_command import SMALL, run

from gandalf.errors import DataError
from gandalf.runs import plan as shapes
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import block_that_fits, fit_blocks, plan_in_words
from gandalf.runs.session import run_training
from gandalf.train import run_memory
from gandalf.train.checkpoint import STATE, Checkpoints
from gandalf.train.parallel.ranks import ONE
from gandalf.train.run_memory import RunShape, memory_plan

SHAPE = RunShape(labels=100_000, dim=64, batch=256, block=32_768)
RECIPE = small("labels.kind=every")


def with_block(block, shape=SHAPE):
    return replace(shape, block=block)


def spared(shape):
    """What must be free for a tenth and 256 MiB to spare."""
    return int(1.1 * memory_plan(shape).total) + (256 << 20)


# ---- which block


@pytest.mark.parametrize("block", [32_768, 16_384, 8_192, 2_048])
def test_blocks_are_halved_until_there_is_memory_to_spare(block):
    assert block_that_fits(SHAPE, spared(with_block(block))) == block
    assert block_that_fits(SHAPE, spared(with_block(block)) - 2) == block // 2


def test_no_block_is_smaller_than_the_smallest():
    shape = replace(SHAPE, labels=8_808, block=8_808, batch=20_000)
    least = spared(with_block(256, shape))
    assert block_that_fits(shape, least) == 256
    assert block_that_fits(shape, spared(with_block(275, shape))) == 275  # 8,808 halved five times
    assert block_that_fits(with_block(100), 1000) == 100


def test_where_none_leaves_memory_to_spare_the_first_that_fits_at_all_is_taken():
    """Small blocks would free little and take long."""
    assert block_that_fits(SHAPE, memory_plan(SHAPE).total) == SHAPE.block
    assert block_that_fits(SHAPE, memory_plan(SHAPE).total - 1) == SHAPE.block // 2


def test_where_nothing_fits_blocks_stay_and_the_run_is_refused(monkeypatch):
    assert block_that_fits(SHAPE, 1000) == SHAPE.block
    monkeypatch.setattr(run_memory, "available_bytes", lambda *_: 1000)
    with pytest.raises(DataError, match="no batch is small enough"):
        run_memory.require_memory(SHAPE)


def test_where_nobody_tells_what_is_free_blocks_stay():
    assert block_that_fits(SHAPE, None) == SHAPE.block


def test_a_shortlist_is_as_large_as_it_is(monkeypatch):
    shape = replace(SHAPE, shortlist=True)
    monkeypatch.setattr(shapes, "rank_bytes", lambda *_: 1000)
    assert fit_blocks(RECIPE, shape, ONE, None, before=7)[:2] == (RECIPE, shape)


class Ranks(type(ONE)):
    """Three on this machine, of which others have room for blocks of these sizes."""

    world, local_world = 3, 3

    def __init__(self, *others):
        self.others = others

    def values_of_all(self, value):
        return [value, *self.others]


def blocks_of(ranks, monkeypatch, free, **asked):
    asked_of = []
    monkeypatch.setattr(shapes, "rank_bytes", lambda *given: asked_of.append(given) or free)
    recipe, found, plan = fit_blocks(replace(RECIPE, device="cpu"), SHAPE, ranks, **asked)
    assert recipe.labels.block == found.block and found == with_block(found.block)
    assert asked_of == [("cpu", ranks.local_world)]
    return found.block, plan


def test_all_ranks_take_the_blocks_of_the_one_with_least_room(monkeypatch):
    ranks = Ranks((4_096, 5 * 10**9), (16_384, 4 * 10**9))
    block, plan = blocks_of(ranks, monkeypatch, 9 * 10**9, asked=None)
    assert block == 4_096
    assert plan == (
        f"{memory_plan(with_block(4_096))}; 4,096 labels at a time in place of 32,768, "
        "for which there is no room; 4.0 GB are free"
    )


def test_blocks_that_were_chosen_and_those_of_a_resumed_run_stay(monkeypatch):
    assert blocks_of(ONE, monkeypatch, 1000, asked=SHAPE.block)[0] == SHAPE.block
    assert blocks_of(ONE, monkeypatch, None, asked=None, before=777)[0] == 777
    tight_for_it = memory_plan(with_block(20_000)).total  # and nothing to spare
    assert blocks_of(ONE, monkeypatch, tight_for_it, asked=None, before=20_000)[0] == 20_000
    assert blocks_of(ONE, monkeypatch, tight_for_it - 1, asked=None, before=20_000)[0] == 16_384
    assert blocks_of(ONE, monkeypatch, spared(with_block(8_192)), asked=None)[0] == 8_192


# ---- runs


def tight(monkeypatch, block):
    """Memory for a run with such blocks, and for no larger ones."""
    monkeypatch.setattr(shapes, "SMALLEST_BLOCK", 4)
    monkeypatch.setattr(shapes, "fits", lambda shape, _: shape.block <= block)


class Needs:
    """A plan that takes as many bytes as there are labels in a block."""

    def __init__(self, block):
        self.total = block


def broken_off(monkeypatch, asked, folder):
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        at_step(patch, 3, killed)
        run_training(small_splits(), asked, RunPlace(folder, minutes=0))


ASKED = small("text.max_length=0", "labels.kind=every", "training.steps=6", "training.precision=float32")


def test_a_run_takes_blocks_that_fit_and_goes_on_with_them(monkeypatch, tmp_path):
    heard = []
    with monkeypatch.context() as patch:
        tight(patch, 40)
        unbroken = run_training(small_splits(), ASKED, RunPlace(tmp_path / "unbroken", tell=heard.append))
        assert unbroken.model.config["labels"]["block"] == 30  # 120 labels, halved twice
        broken_off(patch, ASKED, tmp_path / "broken")
    (plan,) = [line for line in heard if line.startswith("training takes about")]
    assert "; 30 labels at a time in place of 120, for which" in plan
    resumed = run_training(
        small_splits(), ASKED, RunPlace(tmp_path / "broken", resume=True)
    )  # with room for more
    same(unbroken, resumed)
    assert resumed.model.config["labels"]["block"] == 30
    again = run_training(
        small_splits(), ASKED, RunPlace(tmp_path / "broken")
    )  # not resumed: what it had is no matter
    assert again.model.config["labels"]["block"] == 120


def test_a_run_that_is_resumed_with_less_memory_takes_smaller_blocks(monkeypatch, tmp_path):
    broken_off(monkeypatch, ASKED, tmp_path)
    monkeypatch.setattr(shapes, "SMALLEST_BLOCK", 4)
    monkeypatch.setattr(shapes, "memory_plan", lambda shape: Needs(shape.block))
    monkeypatch.setattr(shapes, "rank_bytes", lambda *_: 40)
    heard = []
    resumed = run_training(small_splits(), ASKED, RunPlace(tmp_path, resume=True, tell=heard.append))
    assert resumed.model.config["labels"]["block"] == 30 and resumed.steps == 6
    assert "30 labels at a time in place of 120" in heard[-1]


def test_blocks_that_were_chosen_stay(monkeypatch):
    tight(monkeypatch, 40)
    chosen = replace(ASKED, labels=replace(ASKED.labels, block=100))
    assert run_training(small_splits(), chosen).model.config["labels"]["block"] == 100


def test_blocks_that_were_chosen_are_to_be_chosen_again(monkeypatch, tmp_path):
    chosen = replace(ASKED, labels=replace(ASKED.labels, block=100))
    broken_off(monkeypatch, chosen, tmp_path)
    with pytest.raises(DataError, match=r"other settings: labels.block was 100 and is null"):
        run_training(small_splits(), ASKED, RunPlace(tmp_path, resume=True))
    run_training(small_splits(), chosen, RunPlace(tmp_path, resume=True))


def test_to_ask_for_blocks_is_another_setting_even_where_they_are_the_same(monkeypatch, tmp_path):
    """So ranks of which one was asked for some are told that they have other settings."""
    states = []
    for number, block in enumerate((None, 120)):
        broken_off(
            monkeypatch, replace(ASKED, labels=replace(ASKED.labels, block=block)), tmp_path / str(number)
        )
        states.append(RunPlace(tmp_path / str(number)).checkpoints.state())
    assert [state["block"] for state in states] == [120, 120]
    assert states[0]["fingerprint"] != states[1]["fingerprint"]


def test_the_state_of_a_checkpoint_is_read_where_it_can_be(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.state() == {}
    checkpoints.save({}, {"config": {"a": 1}})
    assert checkpoints.state() == {"config": {"a": 1}}
    (path,) = tmp_path.glob(f"*/{STATE}")
    written = json.loads(path.read_text())
    for damaged in (json.dumps({**written, "state": '{"config": {"a": 2}}'}), path.read_text()[:-9], "[]"):
        path.write_text(damaged)
        assert checkpoints.state() == {}


# ---- what is said


def test_the_plan_in_words():
    plan = str(memory_plan(SHAPE))
    assert plan_in_words(SHAPE, [None], SHAPE.block) == f"{plan}; 32,768 labels at a time"
    few = replace(SHAPE, labels=50, block=70)
    assert plan_in_words(few, [10**9, None], 70).endswith("; 50 labels at a time; 1.0 GB are free")


def test_the_plan_tells_of_a_model_that_is_larger_than_its_training():
    low = {"bytes_per_row_value": 1, "bytes_per_row_state": 2, "states": 1, "block": 10, "batch": 1}
    plan = memory_plan(replace(SHAPE, labels=10**6, dim=1_000, **low))
    assert plan.total == plan.model == 4 * 10**6 * 1_001
    assert str(plan).startswith(
        "training takes about 3.0 GB: 1.0 GB of parameters, 2.0 GB of optimiser state"
    )
    assert str(plan).endswith("of activations; then the model takes 4.0 GB")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_the_plan_is_told_before_training_starts(more, made_up, tmp_path, monkeypatch):
    monkeypatch.setattr(run_memory, "available_bytes", lambda *_: 5 * 10**9)
    result = run(made_up, tmp_path / "out", *SMALL, *more)
    assert result.exit_code == 0 and "training takes" not in result.stdout
    assert result.stderr.endswith("; 120 labels at a time; 5.0 GB are free\n")
    assert after_plan(result.stderr) == "" and result.stderr.startswith("training takes about")


def test_several_ranks_tell_it_once():
    heard = []
    ranks = Ranks()
    ranks.say_once = heard.append
    RunPlace(ranks=ranks, tell=heard.append).tell_plan("the plan")
    assert heard == ["on each of 3 ranks the plan"]


def test_a_run_in_python_tells_whoever_asks_before_it_begins(monkeypatch):
    heard = []

    def stop():
        heard.append("began")
        raise KilledError

    at_step(monkeypatch, 0, stop)
    with pytest.raises(KilledError):
        run_training(small_splits(), small("text.max_length=0"), RunPlace(tell=heard.append))
    assert heard[-2].startswith("training takes about") and heard[-1] == "began"
