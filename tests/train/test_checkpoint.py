"""Checkpoints survive kill -9 at any moment, and damage is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import python
from synced_files import SyncedFiles

from gandalf.errors import DataError
from gandalf.train.checkpoint import STATE, TENSORS, Checkpoints, fingerprint
from gandalf.train.parallel import shards

# Every tensor of a checkpoint holds the step its state tells, so that a mixture would be seen.
KILLED_WRITERS = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from gandalf.train.checkpoint import Checkpoints, _read

kept = Checkpoints(Path(sys.argv[1]), keep=int(sys.argv[2]))

def write(step, tell):
    while True:
        step += 1
        kept.save({f"t{i}": torch.full((20_000,), float(step)) for i in range(8)}, {"step": step})
        os.write(tell, b".")

chance, last = random.Random(0), 0
for attempt in range(60):
    ours, theirs = os.pipe()
    writer = os.fork()
    if writer == 0:
        write(last, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as told:
        # So many are written in any case, since a machine that is busy may take longer than any wait.
        last += sum(len(told.read(1)) for _ in range(chance.randrange(3)))
        time.sleep(chance.uniform(0, 0.06))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        last += len(told.read())
    found = kept.latest()
    if found is None:
        assert last == 0
        continue
    tensors, state = found
    # The last one whose writer was told so, or the one that was just being finished.
    assert state["step"] in (last, last + 1), (state, last)
    assert len(tensors) == 8
    assert all(bool((tensor == state["step"]).all()) for tensor in tensors.values())
    last = state["step"]
    for path in kept.folder.glob("checkpoint-*"):
        _read(path)  # none is there in part
print(last)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def damaged(folder: Path, name: str, change) -> Path:
    """Change the bytes of a file of the newest checkpoint."""
    path = sorted(folder.glob("checkpoint-*"))[-1] / name
    path.write_bytes(change(path.read_bytes()))
    return path


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_checkpoint_is_synced_before_it_has_its_name_and_its_name_before_older_ones_go(
    tmp_path, monkeypatch
):
    synced, events = SyncedFiles(monkeypatch), []
    rename, clean = Path.rename, Checkpoints._remove_old

    def renamed(self, target):
        if Path(target).name.startswith("checkpoint-"):
            assert all(map(synced.holds, [self, *self.iterdir()])), "not all of the checkpoint is on the disk"
            synced.forget()
            events.append(Path(target).name)
        return rename(self, target)

    def cleaned(self):
        assert synced.holds(tmp_path), "its name is not on the disk"
        events.append("cleaned")
        clean(self)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(Checkpoints, "_remove_old", cleaned)
    kept = Checkpoints(tmp_path, keep=1)
    for step in (1, 2):
        kept.save({"t": torch.ones(3)}, {"step": step})
    assert events == ["checkpoint-000001", "cleaned", "checkpoint-000002", "cleaned"]


def test_nothing_saved_is_nothing_found(tmp_path):
    assert Checkpoints(tmp_path / "no").latest() is None
    assert Checkpoints(tmp_path).latest("x", {}) is None


def test_every_kind_of_tensor_reads_back(tmp_path):
    table = torch.randn(6, 4)
    tensors = {
        "encoder/a.weight": table,
        "shared": table,
        "part": table[2:4],  # in the memory of `table`
        "transposed": table.T,
        "columns": table[:, 1:3],
        "bf16": torch.randn(3, 2).to(torch.bfloat16),
        "half": torch.randn(3).half(),
        "double": torch.randn(3, dtype=torch.float64),
        "int64": torch.tensor([2**62, -1]),
        "uint8": torch.arange(256, dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
        "nought": torch.tensor(3.5),
        "count": torch.tensor(7),
        "empty": torch.empty(0, 5),
        "odd": torch.tensor([float("nan"), float("inf"), -0.0]),
        "learned": torch.nn.Parameter(torch.ones(2)),
        "expanded": torch.tensor([1.0]).expand(4),
    }
    state = {"step": 3, "loss": 0.1 + 0.2, "best": [1, None, "é\n"], "big": 2**70}
    Checkpoints(tmp_path).save(tensors, state)
    found = Checkpoints(tmp_path).latest()
    assert found is not None
    assert found[1] == state
    assert found[0].keys() == tensors.keys()
    for name, tensor in tensors.items():
        read = found[0][name]
        assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(read.nan_to_num(17), tensor.detach().nan_to_num(17)), name
    assert torch.equal(found[0]["odd"].signbit(), tensors["odd"].signbit())
    found[0]["shared"].zero_()  # what was loaded is nobody else's memory
    assert found[0]["encoder/a.weight"].any()


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_stay(tmp_path, keep):
    kept = Checkpoints(tmp_path, keep)
    for step in range(1, 6):
        kept.save({"t": torch.tensor(step)}, {"step": step})
        tensors, state = kept.latest()
        assert (int(tensors["t"]), state["step"]) == (step, step)
        assert len(names(tmp_path)) == min(step, keep)
    assert names(tmp_path)[-1] == "checkpoint-000005"


def test_leftovers_are_ignored_and_cleaned(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save({"t": torch.ones(1)}, {"step": 1})
    for leftover in (".checkpoint-000002.0123abcd.part", ".checkpoint-000000.old"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / STATE).write_text("{")
    (tmp_path / ".checkpoint-000003.lock").touch()  # of a writer that was killed
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint-best").mkdir()
    assert kept.latest()[1] == {"step": 1}
    kept.save({"t": torch.ones(1)}, {"step": 2})
    assert names(tmp_path) == ["checkpoint-000002", "checkpoint-best", "notes.txt"]


DAMAGE = [
    (TENSORS, lambda data: data[:-1]),
    (TENSORS, lambda data: data[:40]),
    (TENSORS, lambda data: b""),
    (TENSORS, lambda data: flip(data, len(data) - 2)),  # a weight, which the format itself would not notice
    (STATE, lambda data: data[:-1]),
    (STATE, lambda data: b""),
    (STATE, lambda data: b"[]"),
    (STATE, lambda data: b"\xff\xfe"),
    (STATE, lambda data: data.replace(b"2", b"3")),
]


@pytest.mark.parametrize(("name", "change"), DAMAGE)
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path, name, change):
    kept = Checkpoints(tmp_path, keep=2)
    kept.save({"t": torch.full((9,), 1.0)}, {"step": 1})
    kept.save({"t": torch.full((9,), 2.0)}, {"step": 2})
    damaged(tmp_path, name, change)
    tensors, state = kept.latest()
    assert (tensors["t"][0], state["step"]) == (1.0, 1)
    kept.save({"t": torch.full((9,), 5.0)}, {"step": 5})
    assert kept.latest()[1] == {"step": 5}


@pytest.mark.parametrize(("name", "change"), DAMAGE)
def test_a_damaged_checkpoint_without_another_is_a_sentence(tmp_path, name, change):
    Checkpoints(tmp_path).save({"t": torch.ones(9)}, {"step": 2})
    damaged(tmp_path, name, change)
    with pytest.raises(
        DataError, match=rf"checkpoint-000001: the checkpoint is damaged: {name} .*; delete it"
    ):
        Checkpoints(tmp_path).latest()


@pytest.mark.parametrize("name", [TENSORS, STATE])
def test_a_missing_file_is_damage(tmp_path, name):
    Checkpoints(tmp_path).save({"t": torch.ones(9)}, {"step": 2})
    (tmp_path / "checkpoint-000001" / name).unlink()
    with pytest.raises(DataError, match=rf"damaged: {name} cannot be read"):
        Checkpoints(tmp_path).latest()


def test_every_flipped_byte_is_seen(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save({"t": torch.ones(3)}, {"step": 2})
    for name in (TENSORS, STATE):
        path = tmp_path / "checkpoint-000001" / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(flip(whole, place))
            try:
                tensors, state = kept.latest()
            except DataError:
                continue
            assert (tensors["t"].tolist(), state) == ([1.0, 1.0, 1.0], {"step": 2}), place
        path.write_bytes(whole)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        Checkpoints(tmp_path / "taken" / "run").save({"t": torch.ones(1)}, {})


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    kept = Checkpoints(tmp_path)
    kept.save({"t": torch.ones(1)}, {"step": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards, "save_file", full)
    with pytest.raises(DataError, match=r"checkpoint-000002: cannot be written \(No space left on device\)"):
        kept.save({"t": torch.ones(1)}, {"step": 2})
    assert names(tmp_path) == ["checkpoint-000001"]
    assert kept.latest()[1] == {"step": 1}


def test_another_runs_checkpoint_is_refused(tmp_path):
    config = {"system": "astec", "stage": {"epochs": 5, "sizes": (1, 2)}, "clip": None}
    mine = fingerprint(config, b"data")
    kept = Checkpoints(tmp_path)
    kept.save({"t": torch.ones(1)}, {"fingerprint": mine, "config": config})
    assert kept.latest(mine, config) is not None
    assert kept.latest() is not None

    other = {"system": "astec", "stage": {"epochs": 6, "sizes": (1, 2)}, "clip": None, "new": "x"}
    with pytest.raises(DataError) as error:
        kept.latest(fingerprint(other, b"data"), other)
    assert 'other settings: stage.epochs was 5 and is 6, new was null and is "x"; start' in str(error.value)
    assert "clip" not in str(error.value)
    with pytest.raises(DataError, match="of a run on other data"):
        kept.latest(fingerprint(config, b"other data"), config)
    with pytest.raises(DataError, match="of another run"):
        kept.latest("something else")
    kept.save({"t": torch.ones(1)}, {})
    with pytest.raises(DataError, match="of another run"):
        kept.latest(mine, config)


def test_fingerprints_tell_runs_apart():
    assert fingerprint({"a": 1, "b": 2}, b"xy") == fingerprint({"b": 2, "a": 1}, b"xy")
    different = [
        ({"a": 1}, ()),
        ({"a": 2}, ()),
        ({"a": 1}, (b"xy",)),
        ({"a": 1}, (b"x", b"y")),
        ({}, (b"xy",)),
    ]
    assert len({fingerprint(config, *parts) for config, parts in different}) == len(different)


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
def test_kill_at_any_moment(tmp_path, keep):
    done = python(KILLED_WRITERS, tmp_path, keep)
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    assert last > 5  # the writers did get to write
    kept = Checkpoints(tmp_path, keep)
    kept.save({}, {"step": last + 1})
    assert kept.latest()[1] == {"step": last + 1}
    assert len(names(tmp_path)) == keep  # and nothing that the killed ones left


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_of_a_gpu_come_back_on_the_cpu(tmp_path):
    table = torch.randn(6, 4, device="cuda")
    tensors = {"table": table, "shared": table[1:], "transposed": table.T, "low": table.bfloat16()}
    Checkpoints(tmp_path).save(tensors, {})
    found, _ = Checkpoints(tmp_path).latest()
    for name, tensor in tensors.items():
        assert found[name].device.type == "cpu"
        assert torch.equal(found[name], tensor.cpu()), name
