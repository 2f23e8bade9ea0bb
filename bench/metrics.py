"""Seconds for all metrics at k = 1, 3, 5 on data of the size of LF-AmazonTitles-131K, against napkinXC.

    python -m bench.metrics

Ours is one call of `evaluate`: filtered, unfiltered, both kinds of text, label bins. napkinXC has one
function a metric and no filter; it is timed on the filtered ranking only, without MRR, which it lacks, and is
given its cheapest input, lists of the five best labels that are already sorted. How long it takes from the
matrix of candidates, as `evaluate` does, is timed for one metric.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from bench.machine import keep
from gandalf.data.dataset import Dataset, Splits, binary_pairs
from gandalf.metrics.bootstrap import compare
from gandalf.metrics.evaluate import evaluate
from gandalf.metrics.propensity import inverse_propensities
from gandalf.metrics.topk import top_k

K = 5


def make(points: int, labels: int, candidates: int, seed: int = 0) -> tuple[csr_array, Splits]:
    """Make predictions that find some of the truth, and a data set with texts and a filter."""
    rng = np.random.default_rng(seed)
    step = labels // candidates
    ids = np.arange(candidates) * step + rng.integers(
        step, size=(points, candidates)
    )  # sorted, no duplicates
    scores = rng.random((points, candidates), dtype=np.float32)
    rows = np.repeat(np.arange(points), rng.integers(1, 4, size=points))
    found = rng.random(len(rows)) < 0.8
    places = (candidates * rng.random(len(rows)) ** 2).astype(np.int64)  # labels with small ids are the head
    truth = np.where(found, ids[rows, places], rng.integers(labels, size=len(rows)))
    scores[rows[found], places[found]] += rng.random(found.sum(), dtype=np.float32)
    filter_rows = rng.integers(points, size=int(0.6 * points))
    filter_places = rng.integers(candidates, size=len(filter_rows))
    names = [f"product number {label}" for label in range(labels)]
    shape = (points, labels)
    targets = binary_pairs(rows, truth, shape).astype(np.float32)
    test = Dataset(
        csr_array(targets),
        texts=[names[row % labels] if row % 2 else f"new {row}" for row in range(points)],
        label_texts=names,
        exclude=binary_pairs(filter_rows, ids[filter_rows, filter_places], shape),
    )
    indptr = np.arange(points + 1) * candidates
    predictions = csr_array((scores.ravel(), ids.ravel().astype(np.int32), indptr), shape=shape)
    return predictions, Splits(Dataset(csr_array(targets)), test, name="bench")


def time_ours(predictions: csr_array, splits: Splits) -> dict[str, Any]:
    """Time `evaluate`, the best of three, and the bootstrap once."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        scores = evaluate(predictions, splits)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    compare(scores, scores)
    boot = time.perf_counter() - start
    values = {name: scores[name] for name in scores.filtered.values}
    return {"evaluate_seconds": min(seconds), "bootstrap_seconds": boot, "values": values}


def time_napkinxc(predictions: csr_array, splits: Splits) -> dict[str, Any] | None:
    """Return the seconds of each of napkinXC's functions, or None where it is not installed."""
    try:
        from napkinxc import metrics as napkinxc
    except ImportError:
        return None
    test = splits.test
    assert test is not None
    ids, _ = top_k(predictions, K, test.exclude)
    ranked = ids.tolist()
    truth = [row.tolist() for row in np.split(test.targets.indices, test.targets.indptr[1:-1])]
    weights = inverse_propensities(splits.train.label_frequencies, len(splits.train))
    functions: dict[str, Callable[[], Any]] = {
        "P": lambda: napkinxc.precision_at_k(truth, ranked, k=K),
        "nDCG": lambda: napkinxc.ndcg_at_k(truth, ranked, k=K),
        "PSP": lambda: napkinxc.psprecision_at_k(truth, ranked, weights, k=K),
        "PSnDCG": lambda: napkinxc.psndcg_at_k(truth, ranked, weights, k=K),
        "R": lambda: napkinxc.recall_at_k(truth, ranked, k=K),
        "C": lambda: napkinxc.coverage_at_k(truth, ranked, k=K),
        "macroP": lambda: napkinxc.macro_precision_at_k(truth, ranked, k=K),
    }
    seconds: dict[str, float] = {}
    values: dict[str, float] = {}
    for name, function in functions.items():
        start = time.perf_counter()
        found = function()
        seconds[name] = time.perf_counter() - start
        values |= {f"{name}@{k}": 100 * float(found[k - 1]) for k in (1, 3, 5)}
    start = time.perf_counter()
    napkinxc.precision_at_k(csr_matrix(test.targets), csr_matrix(predictions), k=K)
    return {
        "seconds": seconds,
        "total_seconds": sum(seconds.values()),
        "precision_from_matrix_seconds": time.perf_counter() - start,
        "values": values,
    }


def main() -> None:
    """Measure, print a short table, and write the numbers with machine and commit."""
    parser = argparse.ArgumentParser(description="Time all metrics against napkinXC.")
    parser.add_argument("--points", type=int, default=134_835)
    parser.add_argument("--labels", type=int, default=131_073)
    parser.add_argument("--candidates", type=int, default=100)
    chosen = parser.parse_args()
    predictions, splits = make(chosen.points, chosen.labels, chosen.candidates)
    print(f"{chosen.points:,} points x {chosen.labels:,} labels, {chosen.candidates} candidates each")
    ours = time_ours(predictions, splits)
    print(f"gandalf  {ours['evaluate_seconds']:7.2f} s  all: filtered, unfiltered, two kinds of text, bins")
    print(f"gandalf  {ours['bootstrap_seconds']:7.2f} s  paired bootstrap, 1,000 resamples")
    theirs = time_napkinxc(predictions, splits)
    if theirs is None:
        print("napkinXC is not installed, so there is nothing to compare with: pip install '.[oracle]'")
    else:
        apart = max(abs(ours["values"][name] - value) for name, value in theirs["values"].items())
        print(f"napkinXC {theirs['total_seconds']:7.2f} s  seven metrics of sorted lists, filtered only")
        print(f"napkinXC {theirs['precision_from_matrix_seconds']:7.2f} s  P@k alone, from the matrix")
        print(f"largest difference between the two in any figure: {apart:.1e} percent points")
        theirs["largest_difference"] = apart
    size = {name: getattr(chosen, name) for name in ("points", "labels", "candidates")}
    print(keep("metrics", {**size, "gandalf": ours, "napkinxc": theirs}))


if __name__ == "__main__":
    main()
