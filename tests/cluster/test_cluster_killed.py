"""Commands on workers of their own, killed or interrupted halfway: nothing half-written, and it can go on."""

from __future__ import annotations

import os
import signal

import pytest
from command_line import done
from dask_cluster import same_files, started, write_shards

import gandalf

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    splits = gandalf.synthetic(20_000, 3_000, seed=2, labels_per_point=6).splits
    folder = tmp_path_factory.mktemp("shards") / "cut"
    return write_shards(splits, folder, cuts=tuple(range(0, 20_000, 1_000)))


def begun(folder, pattern, child):
    """Wait until the command has begun to write."""
    while not list(folder.glob(pattern)):
        assert child.poll() is None, child.communicate()


def test_a_client_killed_while_it_writes_the_augmented_set(sharded, tmp_path):
    child = started("augment", sharded, tmp_path / "out", "--cluster", "local")
    begun(tmp_path, ".out.*.part/.trn*.part", child)
    child.kill()
    child.communicate()
    assert not (tmp_path / "out").exists()
    done("augment", sharded, tmp_path / "out", "--cluster", "local")
    done("augment", sharded, tmp_path / "here")
    assert same_files(tmp_path / "out", tmp_path / "here")


def test_an_interrupt_from_a_terminal_is_one_word(sharded, tmp_path):
    child = started("augment", sharded, tmp_path / "out", "--cluster", "local")
    begun(tmp_path, ".out.*.part/.trn*.part", child)
    os.killpg(child.pid, signal.SIGINT)
    stdout, stderr = child.communicate()
    assert child.returncode == 130 and stdout == ""
    assert [line for line in stderr.splitlines() if not line.startswith("note: ")] == ["stopped"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("targets", ["ratio", "shrunk", "calibrated", "glas"])
def test_the_bundled_set_on_workers_of_this_machine(tmp_path, targets):
    words = ("graph", "man", "--targets", targets, "--json")
    assert done(*words, "--save", tmp_path / "there.npz", "--cluster", "local") == done(
        *words, "--save", tmp_path / "here.npz"
    )
    assert (tmp_path / "there.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()
