"""Several processes that train together, on this machine's loopback, and what each is to do."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from small_runs import small_splits, weights
from torch.nn import functional as F

from gandalf.errors import DataError
from gandalf.runs import session as runs
from gandalf.runs import stages as shortlists
from gandalf.runs.watch import Interrupted
from gandalf.train.logs import read_log
from gandalf.train.loop import Training
from gandalf.train.parallel import several
from gandalf.train.parallel.ranks import LostRankError
from gandalf.train.parallel.several import joined

THREADS_LEFT = 77  # how a rank ends that has not ended the threads of its group
PATIENCE = 1_200  # seconds for all that some processes are asked for, on a machine that is busy


def free_port() -> int:
    """Return a port that is free, and that the system gives to nobody who asks it for any port.

    Until the first rank listens there, seconds pass in which other tests open servers and connections.
    """
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given_out.read_text().split()[0]) if given_out.is_file() else 32_768
    while True:
        port = random.SystemRandom().randrange(min(10_000, first - 1_000), first)
        with socket.socket() as bound, suppress(OSError):
            bound.bind(("127.0.0.1", port))
            return port


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun would set; nothing leaves the machine."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    named = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": 1,
    }
    return {name: str(value) for name, value in (numbers | named).items()}


def over_ranks(world: int, work, *given, ends: dict[int, int] | None = None) -> None:
    """Have `work(ranks, *given)` done by so many processes; `ends`: which are not to end well, and how."""
    context, port = multiprocessing.get_context("spawn"), free_port()
    started = [
        context.Process(target=_rank, args=(environment(rank, world, port), work, given))
        for rank in range(world)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(PATIENCE)
    ended = [process.exitcode for process in started]
    for process in started:
        process.kill()
    assert ended == [(ends or {}).get(rank, 0) for rank in range(world)], f"ranks ended with {ended}"


def _rank(variables, work, given) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    try:
        with joined() as ranks:
            ranks.connect("cpu")
            work(ranks, *given)
    finally:
        if threads_of_a_group():
            os._exit(THREADS_LEFT)  # which may abort a process as it ends; tests leave nothing to chance


def threads_of_a_group() -> list[str]:
    """Return the names of threads that gloo has started in this process, as far as the system tells."""
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()] if tasks.is_dir() else []
    return [name for name in names if "gloo" in name]


# ---- work


def one_by_one(ranks, jobs) -> None:
    """Several jobs, for which processes are started once."""
    for work, *given in jobs:
        work(ranks, *given)


def nothing_is_dropped(patch=setattr) -> None:
    """No dropout anywhere, and hard negatives by exact products: what is left does not depend on chance."""
    attention = F.scaled_dot_product_attention
    patch(F, "dropout", lambda x, *_, **__: x)
    patch(F, "scaled_dot_product_attention", lambda *x, dropout_p=0.0, **more: attention(*x, **more))
    patch(shortlists, "_search_index", lambda *_: None)


def train_all(ranks, recipes, folder: Path) -> None:
    """Train by each of the recipes, and leave weights and validations."""
    nothing_is_dropped()
    for name, recipe in recipes.items():
        keep(
            runs.run_training(small_splits(), recipe, runs.RunPlace(folder / name, ranks=ranks)),
            ranks,
            folder / name,
        )


def broken_off_at(ranks, recipe, folder: Path, step: int) -> None:
    """Train until a step, at which the last rank alone is asked to stop; there is a checkpoint then."""
    nothing_is_dropped()
    train_batch = Training._train_batch

    def counted(self, batch, with_loss):
        if self.all_steps == step - 1 and ranks.rank == ranks.world - 1:
            os.kill(os.getpid(), 2)
        train_batch(self, batch, with_loss)

    Training._train_batch = counted
    try:
        runs.run_training(small_splits(), recipe, runs.RunPlace(folder, ranks=ranks))
    except Interrupted as stopped:
        assert f"after step {step} of" in str(stopped)
        return
    raise AssertionError("nobody stopped")


def resumed(ranks, recipe, folder: Path) -> None:
    nothing_is_dropped()
    keep(
        runs.run_training(small_splits(), recipe, runs.RunPlace(folder, resume=True, ranks=ranks)),
        ranks,
        folder,
    )


def lose_last(ranks, recipe, folder: Path, step: int) -> None:
    """The last rank is gone at a step, without a word; the others say so."""
    several.ANSWER = 2.0
    train_batch = Training._train_batch

    def counted(self, batch, with_loss):
        if self.all_steps == step and ranks.rank == ranks.world - 1:
            os._exit(9)
        train_batch(self, batch, with_loss)

    Training._train_batch = counted
    try:
        runs.run_training(small_splits(), recipe, runs.RunPlace(folder, minutes=0, ranks=ranks))
    except LostRankError as error:
        last = ranks.world - 1
        kept = f"at step {step}; the last checkpoint is of step {step}: run the same command with --resume"
        assert str(error) == f"rank {last} of {ranks.world} was lost {kept}"
        return
    raise AssertionError("nobody was missed")


def refused(ranks, folder: Path) -> None:
    """What the first rank finds wrong is wrong for all."""

    def wrong() -> None:
        raise DataError("is not empty", remedy="choose another", file=folder)

    try:
        ranks.on_first(wrong)
    except DataError as error:
        assert str(error) == f"{folder}: is not empty; choose another"
        return
    raise AssertionError("it was not refused")


def refused_at_last(ranks) -> None:
    """Import what keeps a group alive, then end with a message that threads may still be busy with."""
    from torch.distributed.nn import functional

    assert functional.all_reduce.__defaults__ is not None
    refused(ranks, Path("out"))


def leave_by_an_error(ranks) -> None:
    """End by an error whose frames hold the group and a message under way."""

    def broken(group) -> None:
        assert "pt_gloo_runloop" in threads_of_a_group()
        raise ValueError("on purpose") from OSError("which has a cause")

    ranks.any_rank(True)
    broken(several.dist.group.WORLD)


def keep(trained, ranks, folder: Path) -> None:
    if ranks.rank:
        return
    save_file({name: each.clone() for name, each in weights(trained).items()}, folder / "weights")
    (folder / "history").write_text(json.dumps(trained.history))
    (folder / "sent").write_text(json.dumps(ranks.sent))
    ranks.sent.clear()


def course(folder: Path):
    """Weights, losses and validations of a run that is over."""
    losses = [line["loss"] for line in read_log(folder / "log.jsonl") if line["kind"] == "train"]
    return load_file(folder / "weights"), losses, json.loads((folder / "history").read_text())


def assert_alike(one: Path, other: Path, most: float = 1e-4) -> None:
    """The same run but for the order in which numbers are added up.

    Adam divides a gradient by its own size: where that is next to nothing, a number may go its own way.
    """
    (left, losses, history), (right, other_losses, other_history) = course(one), course(other)
    assert left.keys() == right.keys() and len(losses) == len(other_losses) > 3
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(other_losses), rtol=most, atol=0)
    for name in left:
        apart, size = (left[name] - right[name]).double(), left[name].double().norm().clamp_min(1e-2)
        assert apart.norm() <= most * size, f"{name}: {apart.norm() / size}"
        assert apart.abs().max() <= 50 * most * left[name].abs().max().clamp_min(1e-2), name
    assert [each["value"] for each in history] == [each["value"] for each in other_history]
