"""Two ranks train the model of one process: same losses, validations and weights, to float precision."""

from __future__ import annotations

import pytest
import rank_jobs
import torch
from small_runs import small_splits
from small_systems import small_system

from gandalf.nets.heads import Table
from gandalf.runs.run import Place, train
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.labels import Every, Shortlist, own_chunks, share
from gandalf.train.ranks import ONE

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
            rank_jobs.keep(train(small_splits(), recipe, Place(folder / name)), ONE, folder / name)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The same courses by two ranks."""
    folder = tmp_path_factory.mktemp("two")
    rank_jobs.over_ranks(2, rank_jobs.train_all, recipes(), folder)
    return folder


@pytest.mark.parametrize("name", COURSES)
def test_two_ranks_train_the_model_of_one(name, alone, two):
    # Adam divides by gradients' own size, which through normalisations may be next to nothing.
    most = 1e-3 if name == "batch normalisation" else 1e-4
    rank_jobs.assert_alike(alone / name, two / name, most)


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
        mine = own_chunks(chunks, own)
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
    parts = [own_chunks([whole], share(50, rank, 3)) for rank in range(3)]
    starts = [share(50, rank, 3).start for rank in range(3)]
    ids = torch.cat([part[0].labels + start for part, start in zip(parts, starts, strict=True)])
    assert torch.equal(ids, whole.labels) and sum(part[0].size for part in parts) == whole.size
    triples = [
        (int(p), int(chunk.labels[c]) + start, float(v))
        for (chunk,), start in zip(parts, starts, strict=True)
        for p, c, v in zip(chunk.point, chunk.column, chunk.value, strict=True)
    ]
    assert triples == [(p, int(i), float(v)) for p, i, v in zip(point, label, value, strict=True)]
