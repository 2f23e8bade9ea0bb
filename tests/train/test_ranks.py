"""Two ranks train the model of one process: same losses, validations and weights, to float precision."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
import rank_jobs
import torch
import train_command
from small_runs import at_step, small, small_splits
from small_systems import small_system

from gandalf.errors import DataError
from gandalf.nets.heads import Table
from gandalf.runs.checks import check_ranks, check_shares
from gandalf.runs.folder import RunPlace
from gandalf.runs.plan import rank_shape
from gandalf.runs.session import run_training
from gandalf.runs.watch import Interrupted
from gandalf.train import run_memory
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.labels import Every, Shortlist, chunks_of_shard
from gandalf.train.orders import Order, Phase
from gandalf.train.parallel.ranks import Ranks, share
from gandalf.train.run_memory import RunShape, memory_plan, require_memory

pytestmark = pytest.mark.slow

STEPS = ("training.steps=12", "targets.targets=ratio", "validation.every=0.3")
EVERY = ("labels.kind=every", *STEPS)
# One of each kind of head, and what the loop does besides.
COURSES = {
    "free rows": ("astec", *EVERY),
    "blocks": ("astec", "labels.block=25", "head.start=text", *EVERY),
    "gated rows": ("decaf", *EVERY),
    "attention": ("eclare", *EVERY),
    "pairs": ("siamesexml", "siamese.pair_batch=21", "head.start=graph-text", *EVERY),
    "shortlist": ("astec", "labels.kind=shortlist", "labels.random=5", "labels.hard=2", *STEPS),
    "batch normalisation": ("inceptionxml", "encoder.last_dropout=0", *EVERY),
    "mixed points": ("astec", "baselines.mix=mixup", "head.optimiser=sgd", *EVERY),
    "lighter label points": ("astec", "targets.label_weight=0.5", "validation.patience=1", *EVERY),
    "frozen rows of texts": ("eclare", "head.rows=frozen", *EVERY),
}


def recipes(*names: str, folder=None):
    return {name: small_system(COURSES[name][0], folder, *COURSES[name][1:]) for name in names or COURSES}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The courses by one process."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        rank_jobs.nothing_is_dropped(patch.setattr)
        for name, recipe in recipes().items():
            rank_jobs.keep(
                run_training(small_splits(), recipe, RunPlace(folder / name)), Ranks(), folder / name
            )
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The same courses by two ranks."""
    folder = tmp_path_factory.mktemp("two")
    rank_jobs.over_ranks(2, rank_jobs.train_all, recipes(), folder)
    return folder


@pytest.mark.parametrize("name", COURSES)
def test_two_ranks_train_the_model_of_one(name, alone, two):
    rank_jobs.assert_alike(alone / name, two / name)


def test_the_checkpoint_of_two_ranks_is_in_shards(alone, two):
    """And for a process alone it is what that would have written itself."""
    (folder,) = (two / "free rows" / "checkpoints").glob("checkpoint-*")
    assert sorted(path.name for path in folder.iterdir()) == [
        *("rows-00001-of-00002.safetensors", "rows-00002-of-00002.safetensors"),
        *("state.json", "tensors.safetensors"),
    ]
    found, expected = (Checkpoints(each / "free rows" / "checkpoints").latest()[0] for each in (two, alone))
    assert {name: each.shape for name, each in found.items()} == {
        name: each.shape for name, each in expected.items()
    }


def test_what_is_sent_in_a_step_does_not_grow_with_the_labels(two):
    """Vectors of 32 points, 16 from each rank, and their gradient; and the encoder's, which is small here."""
    sent = json.loads((two / "free rows" / "sent").read_text())
    steps, numbers = 12, 16
    assert sent["vectors"] == steps * 16 * numbers * 4
    assert sent["gradient of the vectors"] == steps * 32 * numbers * 4
    layers = numbers * numbers + numbers
    assert sent["gradient of the encoder"] > steps * layers * 4
    assert (sent["gradient of the encoder"] - steps * layers * 4) % (numbers * 4) == 0  # word vectors


# ---- broken off


@pytest.mark.parametrize("name", ["attention", "pairs"])
def test_a_run_goes_on_with_another_number_of_ranks(name, alone, tmp_path, monkeypatch):
    recipe = recipes(name)[name]
    with monkeypatch.context() as patch:
        rank_jobs.nothing_is_dropped(patch.setattr)
        at_step(patch, 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            run_training(small_splits(), recipe, RunPlace(tmp_path / "one, then two"))
    jobs = [
        (rank_jobs.broken_off_at, recipe, tmp_path / "two, then one", 5),
        (rank_jobs.resumed, recipe, tmp_path / "one, then two"),
        (rank_jobs.refused, tmp_path),
    ]
    rank_jobs.over_ranks(2, rank_jobs.one_by_one, jobs)
    rank_jobs.nothing_is_dropped(monkeypatch.setattr)
    folder = tmp_path / "two, then one"
    rank_jobs.keep(run_training(small_splits(), recipe, RunPlace(folder, resume=True)), Ranks(), folder)
    for each in ("two, then one", "one, then two"):
        rank_jobs.assert_alike(alone / name, tmp_path / each)


def test_a_lost_rank_stops_the_others_and_costs_no_checkpoint(alone, tmp_path, monkeypatch):
    recipe = recipes("free rows")["free rows"]
    rank_jobs.over_ranks(2, rank_jobs.lose_last, recipe, tmp_path, 6, ends={1: 9})
    assert not [path for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")]
    rank_jobs.nothing_is_dropped(monkeypatch.setattr)
    trained = run_training(small_splits(), recipe, RunPlace(tmp_path, resume=True))
    assert trained.steps == 12


@pytest.mark.parametrize("work", [rank_jobs.refused_at_last, rank_jobs.leave_by_an_error])
def test_no_thread_of_a_group_outlives_it(work):
    """However a rank leaves: a thread that is left may abort the process as it ends."""
    rank_jobs.over_ranks(2, work, ends=dict.fromkeys((0, 1), int(work is rank_jobs.leave_by_an_error)))


# ---- refused


@pytest.mark.parametrize(
    ("settings", "labels", "sentence"),
    [
        ((), 1, "2 ranks cannot share 1 labels: each needs one of its own; start 1 ranks at most"),
        (
            ("baselines.glas=0.1",),
            9,
            "the GLaS regulariser does not run over several ranks yet; set baselines",
        ),
        (("targets.targets=auto",), 9, "the choice of targets (--targets auto) does not run over several"),
        (
            ("memory.kind=fitted",),
            9,
            "the fit of a memory does not run over several ranks yet; set memory.kind",
        ),
        (("trees.kind=parabel",), 9, "the system astec does not run over several ranks yet; leave torchrun"),
    ],
)
def test_what_does_not_run_over_several_ranks_is_refused(settings, labels, sentence):
    recipe = small(*settings)
    with pytest.raises(DataError, match=re.escape(sentence)):
        check_ranks(recipe, labels, 2)
    check_ranks(recipe, labels, 1)


def test_a_batch_has_a_point_for_each_rank():
    order = Order([Phase(np.arange(10), 5), Phase(np.arange(3), 5)], 8, seed=0)
    check_shares(order, 3)
    with pytest.raises(DataError, match="4 ranks cannot share a batch of 3"):
        check_shares(order, 4)


def test_a_rank_holds_its_share():
    shape = RunShape(labels=1001, dim=8, batch=100, block=500, activations=30)
    assert rank_shape(shape, 1) == shape
    found = rank_shape(shape, 4)
    assert (found.labels, found.batch, found.micro_batch, found.block) == (251, 100, 25, 500)
    rows = memory_plan(replace(shape, encoder_parameters=0)).parameters
    assert memory_plan(found).parameters == pytest.approx(rows / 4, rel=0.01)


def test_ranks_on_one_machine_share_its_memory(monkeypatch):
    shape = RunShape(labels=1000, dim=100, batch=10, block=100)
    monkeypatch.setattr(run_memory, "available_bytes", lambda *_: 2 * memory_plan(shape).total)
    require_memory(shape, ranks=2)
    with pytest.raises(DataError, match="not enough"):
        require_memory(shape, ranks=3)


def test_what_all_ranks_know_only_the_first_says(monkeypatch, made_up, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    result = train_command.run(made_up, tmp_path / "out", "--set", "encoder.dims=3")
    assert result.exit_code == 2 and result.output == ""
    monkeypatch.setenv("RANK", "0")
    assert "encoder.dim" in train_command.fails(made_up, tmp_path / "out", "--set", "encoder.dims=3")


# ---- parts


@pytest.mark.parametrize(("labels", "dim"), [(7, 3), (100, 16), (40_000, 5), (16_384 * 2 + 1, 7)])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_shares_of_a_table_start_as_the_whole_does(labels, dim, world):
    torch.manual_seed(5)
    whole = Table(labels, dim)
    after = torch.rand(3)
    parts = []
    for rank in range(world):
        torch.manual_seed(5)
        parts.append(Table.part(labels, dim, share(labels, rank, world)))
        assert torch.equal(torch.rand(3), after)  # what is drawn next is the same, too
    for name, each in whole.state_dict().items():
        assert torch.equal(torch.cat([part.state_dict()[name] for part in parts]), each)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize(("labels", "block"), [(20, 20), (21, 4), (41, 10), (5, 100), (1000, 7)])
def test_blocks_of_ranks_cover_all_labels_once_and_are_equally_many(labels, block, world):
    every = Every(labels, block, world)
    targets = torch.arange(labels).numpy()
    chunks = every.chunks(targets, (targets, targets, (targets + 1).astype("float32")), 0)
    numbers = set()
    met = []
    for rank in range(world):
        own = share(labels, rank, world)
        mine = chunks_of_shard(chunks, own)
        numbers.add(len(mine))
        assert all(0 < chunk.size <= block for chunk in mine)
        for chunk in mine:
            ids = torch.arange(own.stop - own.start)[chunk.labels][chunk.column] + own.start
            assert torch.equal(chunk.value, ids + 1.0) and torch.equal(chunk.point, ids)
            met += (torch.arange(labels)[own][chunk.labels]).tolist()
    assert met == list(range(labels)) and len(numbers) == 1


def test_a_shortlist_is_cut_into_shares():
    shortlist = Shortlist(50, 10, seed=3)
    label = torch.tensor([0, 3, 24, 25, 25, 49]).numpy()
    point, value = torch.arange(6).numpy(), torch.rand(6).numpy()
    (whole,) = shortlist.chunks(point, (point, label, value), 4)
    parts = [chunks_of_shard([whole], share(50, rank, 3)) for rank in range(3)]
    starts = [share(50, rank, 3).start for rank in range(3)]
    ids = torch.cat([part[0].labels + start for part, start in zip(parts, starts, strict=True)])
    assert torch.equal(ids, whole.labels) and sum(part[0].size for part in parts) == whole.size
    triples = [
        (int(p), int(chunk.labels[c]) + start, float(v))
        for (chunk,), start in zip(parts, starts, strict=True)
        for p, c, v in zip(chunk.point, chunk.column, chunk.value, strict=True)
    ]
    assert triples == [(p, int(i), float(v)) for p, i, v in zip(point, label, value, strict=True)]
