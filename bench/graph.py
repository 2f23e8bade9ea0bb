"""Seconds and peak memory of the label graph against SciPy's `Y.T @ Y`, on synthetic sets of paper shape.

`Y.T @ Y` only counts; ours also divides, thresholds and sorts, as "scipy, thresholded" does. Each is run in a
process of its own: seconds from the targets in memory to the matrix, and the peak above what the process held
with the targets loaded.

How many distinct pairs there are decides how much memory can be saved, and it differs between data sets. So
each shape is drawn twice: with compact topics (breadth 8) and with broad ones (50). `bench.shapes` compares
both with real sets.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array

from bench.command import argument_parser
from bench.machine import held_mib, keep, told_by_child
from gandalf.data.synthetic import PAPER_SHAPES, synthetic
from gandalf.graph import cooccurrence, joint_sums
from gandalf.graph.estimates.ratio import Ratio

PEAK = "VmHWM"


def ours(threads: int) -> Callable[[csr_array], csr_array]:
    """Return our label graph on so many threads, its compiled loop loaded beforehand as SciPy's is."""
    large, joint_sums.LARGE = joint_sums.LARGE, 0
    cooccurrence.conditional_graph(csr_array(np.eye(2, dtype=np.float32)), Ratio())
    joint_sums.LARGE = large
    return lambda targets: cooccurrence.conditional_graph(targets, Ratio(), delta=0.1, threads=threads)


def by_hand(targets: csr_array) -> csr_array:
    """Return the same graph as one would write it with SciPy: count, divide, threshold."""
    graph = csr_array(targets.T @ targets)
    graph = csr_array(diags_array(1 / np.maximum(graph.diagonal(), 1)) @ graph)
    graph.data[graph.data <= 0.1] = 0
    graph.eliminate_zeros()
    return graph


def without_numba(threads: int) -> Callable[[csr_array], csr_array]:
    """Return our label graph as it is where numba is not installed."""
    joint_sums.LARGE = 2**62
    return lambda targets: cooccurrence.conditional_graph(targets, Ratio(), delta=0.1, threads=threads)


METHODS: dict[str, Callable[[], Callable[[csr_array], csr_array]]] = {
    "scipy": lambda: lambda targets: targets.T @ targets,
    "scipy, thresholded": lambda: by_hand,
    "ours, 1 thread": lambda: ours(1),
    "ours, 2 threads": lambda: ours(2),
    "no numba, 1 thread": lambda: without_numba(1),
    "no numba, 2 threads": lambda: without_numba(2),
}


def measure(folder: Path, method: str) -> dict[str, float]:
    """Run one method on the targets saved in the folder, in this process."""
    run = METHODS[method]()
    indices, indptr = np.load(folder / "indices.npy"), np.load(folder / "indptr.npy")
    labels = int(np.load(folder / "labels.npy"))
    ones = np.ones(len(indices), dtype=np.float32)
    targets = csr_array((ones, indices, indptr), shape=(len(indptr) - 1, labels))
    before = held_mib(PEAK)
    start = time.perf_counter()
    graph = run(targets)
    seconds = time.perf_counter() - start
    return {"seconds": round(seconds, 2), "peak_mb": round(held_mib(PEAK) - before), "entries": graph.nnz}


def compare(shape: str, breadth: float, methods: list[str], rounds: int) -> dict[str, Any]:
    """Measure all methods on one shape, in turn; of several rounds the fastest counts."""
    points, labels, per_point, _ = PAPER_SHAPES[shape]
    made = synthetic(points, labels, labels_per_point=per_point, texts=False, breadth=breadth)
    targets = made.splits.train.targets
    sizes = np.diff(targets.indptr).astype(np.int64)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "indices.npy", targets.indices)
        np.save(folder / "indptr.npy", targets.indptr)
        np.save(folder / "labels.npy", labels)
        runs = [
            {method: told_by_child("graph", "--child", method, "--folder", str(folder)) for method in methods}
            for _ in range(rounds)
        ]
    best = {method: min((run[method] for run in runs), key=lambda r: r["seconds"]) for method in methods}
    return {
        "shape": shape,
        "breadth": breadth,
        "points": points,
        "labels": labels,
        "positives": targets.nnz,
        "products": int((sizes**2).sum()),
        "methods": best,
        "rounds": runs,
    }


def show(result: dict[str, Any]) -> None:
    """Print one shape's table."""
    size = ", ".join(f"{result[name]:,} {name}" for name in ("points", "labels", "products"))
    print(f"\n{result['shape']}, breadth {result['breadth']:g}: {size}")
    print(f"{'':22}{'seconds':>9}{'against scipy':>15}{'peak MB':>10}{'against scipy':>15}{'entries':>14}")
    base = result["methods"].get("scipy")
    for method, r in result["methods"].items():
        times = f"{base['seconds'] / r['seconds']:.2f} x" if base and r["seconds"] else ""
        share = f"{r['peak_mb'] / base['peak_mb']:.2f}" if base and base["peak_mb"] else ""
        print(f"{method:22}{r['seconds']:9.2f}{times:>15}{r['peak_mb']:10,}{share:>15}{r['entries']:14,}")


def main() -> None:
    """Measure the shapes asked for, print a table of each and write the results."""
    parser = argument_parser(__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(PAPER_SHAPES), choices=list(PAPER_SHAPES))
    parser.add_argument(
        "--breadth", nargs="+", type=float, default=[8.0, 50.0], help="of topics; see synthetic"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--name", default="graph", help="file in bench/results to write to")
    parser.add_argument("--child", choices=list(METHODS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.folder, options.child)))
        return
    runs = []
    for shape, breadth in product(options.shapes, options.breadth):
        runs.append(compare(shape, breadth, options.methods, options.rounds))
        show(runs[-1])
    print(f"\nwritten to {keep(options.name, {'numba': version('numba'), 'runs': runs})}")


if __name__ == "__main__":
    main()
