"""Training over several processes on this machine: memory of each rank, and bytes sent in a step.

    python -m bench.cluster train

Labels, dimension and batch are those of a large set; words and targets are random, so nothing is learnt and
everything costs what it costs. The bytes on the wire are those of the loopback device: run it where nobody
else uses that, as in a network namespace of its own:

    unshare -rn sh -c 'ip link set lo up && python -m bench.cluster train'
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.command import argument_parser
from bench.machine import held_mib, keep
from bench.made_up import random_points
from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.heads import Table
from gandalf.train.labels import Every
from gandalf.train.loop import Training
from gandalf.train.orders import Order, Phase
from gandalf.train.parallel.ranks import Ranks
from gandalf.train.parallel.several import joined
from gandalf.train.stage import Stage

POINTS, LENGTH, PER_POINT, WORDS, BLOCK = 5_000, 16, 10, 30_000, 16_384
WORLDS = (1, 2, 4)
Line = dict[str, Any]


def training(ranks: Ranks, asked: argparse.Namespace) -> Training:
    """Return a run before its first step: this rank's rows, and an encoder as all have it."""
    made = random_points((POINTS, asked.labels), WORDS, LENGTH, PER_POINT)
    encoder = BagOfWords(WORDS, BagOfWordsOptions(dim=asked.dim, dropout=0.0))
    head = Table.part(asked.labels, asked.dim, ranks.share(asked.labels))
    stage = Stage(
        Order([Phase(np.arange(POINTS), 10**6)], asked.batch, seed=0),
        Every(asked.labels, BLOCK, ranks.world),
    )
    return Training(encoder, head, made, stage, ranks=ranks)


def on_wire() -> int:
    """Return the bytes that the loopback device has carried."""
    lines = Path("/proc/net/dev").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.strip().startswith("lo:")).split()[1])


def measure(ranks: Ranks, asked: argparse.Namespace) -> Line:
    """Measure some steps of one rank: memory, bytes, time."""
    torch.manual_seed(0)
    before = held_mib()
    run = training(ranks, asked)
    state = [*run.head.state_dict().values(), *run.head_update.tensors().values()]
    batches = run._batches(range(asked.steps + 1))
    run._train_batch(next(batches), with_loss=True)  # buffers are made and connections opened
    ranks.sent.clear()
    ranks.values_of_all(0)
    wire, started, words = on_wire(), time.perf_counter(), 0
    for batch in batches:
        words += len(batch.words)
        run.step += 1
        run._train_batch(batch, with_loss=False)
    seconds = (time.perf_counter() - started) / asked.steps
    ranks.values_of_all(0)
    dense = sum(each.numel() for each in run.encoder_update.dense)
    return {
        "rank": ranks.rank,
        "labels": len(run.head.state_dict()["rows"]),
        "rows_and_state_bytes": sum(each.numel() * each.element_size() for each in state),
        "rss_before_bytes": int(before * 2**20),
        "peak_rss_bytes": int(held_mib("VmHWM") * 2**20),
        "seconds_per_step": seconds,
        "loss_of_first_step": run.loss,
        "payload_bytes_per_step": {name: each / asked.steps for name, each in ranks.sent.items()},
        "expected_payload_bytes_per_step": expected(ranks.world, asked, dense, words / asked.steps),
        "wire_bytes_per_step_of_all_ranks": (on_wire() - wire) / asked.steps,
    }


def expected(world: int, asked: argparse.Namespace, dense: int, words: float) -> Line:
    """Return what a rank hands over in a step by docs/guide/scaling.md."""
    if world == 1:
        return {}
    return {
        "vectors": 4 * asked.dim * -(-asked.batch // world),
        "gradient of the vectors": 4 * asked.dim * asked.batch,
        "gradient of the encoder": 4 * (dense + words * asked.dim),
    }


def ring(world: int, payload: Line) -> float:
    """Return the bytes that all ranks together put on the wire if each operation goes around in a ring."""
    gathered = (world - 1) * payload.get("vectors", 0.0)
    summed = sum(each for name, each in payload.items() if name != "vectors")
    return float(world * (gathered + 2 * (world - 1) / world * summed))


def _rank(rank: int, world: int, port: int, asked: argparse.Namespace, folder: str) -> None:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    names |= {"MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"})
    torch.set_num_threads(1)
    with joined() as ranks:
        ranks.connect("cpu")
        line = measure(ranks, asked)
        Path(folder, str(rank)).write_text(json.dumps(line), encoding="utf-8")


def by_ranks(world: int, asked: argparse.Namespace) -> Line:
    """Measure so many ranks, each a process with one thread."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        given = [(rank, world, port, asked, folder) for rank in range(world)]
        started = [context.Process(target=_rank, args=each) for each in given]
        for process in started:
            process.start()
        for process in started:
            process.join()
        assert all(process.exitcode == 0 for process in started)
        lines = [json.loads(Path(folder, str(rank)).read_text("utf-8")) for rank in range(world)]
    first = lines[0]
    return {
        "ranks": world,
        "labels": asked.labels,
        "dim": asked.dim,
        "batch": asked.batch,
        "steps": asked.steps,
        "expected_wire_bytes_per_step": ring(world, first["expected_payload_bytes_per_step"]),
        "of_rank": lines,
    }


def train(asked: argparse.Namespace) -> None:
    """Measure one, two and four ranks."""
    found = []
    for world in WORLDS:
        found.append(by_ranks(world, asked))
        print(json.dumps(found[-1]), flush=True)
    if not asked.dry:
        print(keep("cluster", found))


def main() -> None:
    """Measure, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("what", choices=("train",))
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="print, and keep nothing")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
