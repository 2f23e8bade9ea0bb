"""Graph, augmentation and bulk prediction on Dask against one process: seconds and peak memory, in one run.

A synthetic set of paper shape is written as Parquet shards. Each way then reads the same files in a process
of its own: one process with all threads, and Dask with two workers of one thread on this machine. Both share
the same cores, so this measures what the cluster costs, not what many machines gain. Files are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet
from scipy.sparse import save_npz

from bench.command import argument_parser
from bench.machine import held_mib, keep, told_by_child
from gandalf.augment.label_points import Keep
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import export
from gandalf.data.load import load
from gandalf.data.synthetic import PAPER_SHAPES, synthetic
from gandalf.errors import Findings
from gandalf.graph.label_graph import GraphOptions, label_graph

SHARDS, WORKERS, QUERIES, GROUP, TOP = 8, 2, 10_000, 1_250, 100
PEAK = "VmHWM"
TARGETS = ("ratio", "shrunk", "calibrated")


class Clock:
    """Seconds of each step on the wall, and of all processors that work for it: the machine may be shared."""

    def __init__(self, cpu: Callable[[], float] = time.process_time) -> None:
        self.cpu, self.steps = cpu, dict[str, dict[str, float]]()

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Keep how long the body takes."""
        wall, cpu = time.perf_counter(), self.cpu()
        yield
        self.steps[step] = {
            "seconds": round(time.perf_counter() - wall, 2),
            "cpu_seconds": round(self.cpu() - cpu, 2),
        }


def cpu_of(client: Any) -> Callable[[], float]:  # noqa: ANN401  Dask has no types
    """Return a function that tells the processor seconds of this process and all workers."""
    return lambda: time.process_time() + sum(client.run(time.process_time).values())


def told(clock: Clock, client: Any = None) -> dict[str, Any]:  # noqa: ANN401
    """Return the steps, and the most memory that this process and the workers have held."""
    found = {"steps": clock.steps, "peak_mb": round(held_mib(PEAK))}
    if client is not None:
        found["worker_peak_mb"] = sorted(round(peak) for peak in client.run(held_mib, PEAK).values())
    return found


def write_set(splits: Splits, folder: Path) -> None:
    """Write the set as Parquet shards, its labels, and queries for prediction."""
    labels = splits.train.label_texts
    assert labels is not None
    (folder / "train").mkdir(parents=True)
    cuts = np.linspace(0, len(splits.train), SHARDS + 1).astype(int).tolist()
    for at, (start, end) in enumerate(pairwise(cuts)):
        parquet.write_table(as_table(splits.train[start:end], start), folder / "train" / f"part-{at}.parquet")
    (folder / "labels.txt").write_text("".join(f"{text}\n" for text in labels), encoding="utf-8")
    (folder / "queries").mkdir()
    assert splits.test is not None
    queries = as_table(splits.test[:QUERIES], 0).select(["id", "text"])
    parquet.write_table(queries, folder / "queries" / "queries.parquet", row_group_size=GROUP)


def as_table(points: Dataset, first: int) -> pyarrow.Table:
    """Return points as columns id, text and labels."""
    lists = pyarrow.ListArray.from_arrays(points.targets.indptr.astype(np.int32), points.targets.indices)
    ids = pyarrow.array(range(first, first + len(points)))
    return pyarrow.table({"id": ids, "text": list(points.texts or ()), "labels": lists})


def one_process(folder: Path, out: Path) -> dict[str, Any]:
    """Do all steps in this process, with all its threads."""
    clock = Clock()
    with clock.timed("read"):
        splits = load(folder)
    for name in TARGETS:
        with clock.timed(name):
            graph = label_graph(splits.train, GraphOptions(name)).matrix
        with open(out / f"{name}.npz", "wb") as file:
            save_npz(file, graph, compressed=False)
    from gandalf.augment.label_points import augment

    with clock.timed("write augmented"):
        made = Splits(augment(splits.train, graph))
        export(made, out / "raw", "raw", origin=({"data": "x"}, splits.train.label_frequencies))
    return told(clock)


def on_dask(folder: Path, out: Path) -> dict[str, Any]:
    """Do all steps on two workers."""
    from gandalf.cluster.client import connected
    from gandalf.cluster.sharded import sharded_set
    from gandalf.cluster.shards import find_shards
    from gandalf.data.formats.table_options import TableOptions

    with connected("local", workers=WORKERS) as client:
        clock = Clock(cpu_of(client))
        with clock.timed("read"):
            where = find_shards(str(folder), TableOptions(), Findings())
            assert where is not None
            points = sharded_set(client, where, Findings(), with_texts=True)
        for name in TARGETS:
            with clock.timed(name):
                graph = points.label_graph(GraphOptions(name)).matrix
            with open(out / f"{name}.npz", "wb") as file:
                save_npz(file, graph, compressed=False)
        with clock.timed("write augmented"):
            options = {"format": "raw", "harden": None, "overwrite": False, "seed": 0}
            points.write(graph, Keep(), out / "raw", **options, record=lambda _: {"data": "x"})
        return told(clock, client)


def predict_here(folder: Path, out: Path) -> dict[str, Any]:
    """Answer all queries in this process."""
    from gandalf.model import load_model
    from gandalf.predict.files import predict_chunks, write_predictions
    from gandalf.predict.inputs import texts_of_file
    from gandalf.predict.predictor import Predictor

    clock = Clock()
    with clock.timed("predict"):
        predictor = Predictor(load_model(folder / "model"))
        chunks = texts_of_file(folder / "queries" / "queries.parquet")
        write_predictions(out / "p.npz", predict_chunks(predictor, chunks, TOP), predictor.model)
    return told(clock)


def predict_on_dask(folder: Path, out: Path) -> dict[str, Any]:
    """Answer all queries on two workers."""
    from gandalf.cluster.client import connected
    from gandalf.cluster.jobs import Job, model_identity, row_groups_of
    from gandalf.cluster.predict import predict_row_groups

    model = folder / "model"
    with connected("local", workers=WORKERS) as client:
        clock = Clock(cpu_of(client))
        with clock.timed("predict"):
            job = Job(model, model_identity(model), out / "parts", TOP, None, "cpu")
            predict_row_groups(client, job, row_groups_of(folder / "queries", None))
        return told(clock, client)


WAYS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "one process": one_process,
    "dask": on_dask,
    "predict, one process": predict_here,
    "predict, dask": predict_on_dask,
}


def in_child(way: str, folder: Path, out: Path) -> dict[str, Any]:
    """Measure one way in a process of its own."""
    out.mkdir()
    return told_by_child("cluster_data", "--child", way, "--folder", str(folder), "--out", str(out))


def digests(out: Path) -> dict[str, str]:
    """Return the hash of every file that both ways write."""
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.name != "gandalf.json")
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def measure(shape: str) -> dict[str, Any]:
    """Measure all ways on one shape."""
    from bench.made_up import untrained_model
    from gandalf.model import save_model

    points, labels, per_point, words = PAPER_SHAPES[shape]
    made = synthetic(points, labels, labels_per_point=per_point, words_per_point=words).splits
    sizes = np.diff(made.train.targets.indptr).astype(np.int64)
    known = {"shape": shape, "points": points, "labels": labels, "products": int((sizes**2).sum())}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_set(made, folder / "set")
        save_model(untrained_model(list(made.train.label_texts or ())), folder / "set" / "model")
        del made
        found = {}
        for at, way in enumerate(WAYS):
            found[way] = in_child(way, folder / "set", folder / f"out{at}")
            print(f"{shape}, {way}: {found[way]}", flush=True)
        same = digests(folder / "out0") == digests(folder / "out1")
    return {**known, "shards": SHARDS, "workers": WORKERS, "same_files": same, "ways": found}


def main() -> None:
    """Measure the shapes asked for and write the results."""
    parser = argument_parser(__doc__)
    parser.add_argument("--shapes", nargs="+", default=["131K"], choices=list(PAPER_SHAPES))
    parser.add_argument("--child", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(WAYS[options.child](options.folder, options.out)))
        return
    load_before = os.getloadavg()[0]
    runs = [measure(shape) for shape in options.shapes]
    facts = {"dask": version("dask"), "load_before": round(load_before, 2), "runs": runs}
    print(f"\nwritten to {keep('cluster_data', facts)}")


if __name__ == "__main__":
    main()
