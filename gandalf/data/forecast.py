"""Forecast time and memory of graph, training and prediction, roughly and before they run."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.sentences import counted
from gandalf.data.sparse_rows import cooccurrence_costs
from gandalf.data.unpack_limits import physical_memory

# Co-occurrence products per second and core: an order of magnitude, from bench/graph.py.
PRODUCTS_PER_SECOND = 60e6
GRAPH_BLOCK_BYTES = 128 * 2**20  # limit of one core's block of the graph, before the threshold is applied
MEASURED_SECONDS = 0.1  # of matrix products
_UNITS = ((86400.0 * 365, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Plan:
    """The assumptions of the forecast about the run."""

    dimension: int = 512  # d
    epochs: int = 20
    batch: int = 512  # B
    chunk: int = 65536  # labels that a batch is scored against at a time
    label_points: bool = True  # train on D + Z, the points and the label points
    delta: float = 0.1  # threshold of the graph
    gpu_tflops: float = 200.0  # sustained, bf16, of a current data-centre GPU
    cores: int | None = None  # None: all of this machine
    cpu_gflops: float | None = None  # None: measured by a short matrix product


@dataclass(frozen=True)
class StepCost:
    """Time and memory of one step, with a remark if either is too much."""

    step: str
    seconds: float
    bytes: int
    remark: str = ""


@dataclass(frozen=True)
class Forecast:
    """The cost of each step, and the assumptions of the forecast."""

    costs: tuple[StepCost, ...]
    assumptions: tuple[str, ...]
    memory: int | None  # bytes of this machine; None: the system does not say

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Machine:
    cores: int
    flops: float  # per second, all cores, float32
    memory: int | None


def forecast(splits: Splits, plan: Plan | None = None) -> Forecast:
    """Estimate time and memory of each step on this machine, and of training and prediction on a GPU.

    The estimate may be wrong by a factor of a few. It counts the work that grows with the data, and ignores
    the encoder, reading and tokenising.
    """
    plan = plan or Plan()
    machine = _this_machine(plan)
    points = splits.original_points + plan.label_points * splits.train.num_label_texts
    queries = len(splits.train if splits.test is None else splits.test)
    labels, gpu = splits.train.num_labels, plan.gpu_tflops * 1e12
    costs = (
        _graph(splits.train, plan, machine),
        _on_cpu(_training(points, labels, plan, machine.flops), "training, CPU", machine),
        _on_gpu(_training(points, labels, plan, gpu), "training, GPU"),
        _on_cpu(_prediction(queries, labels, plan, machine.flops), "prediction, CPU", machine),
        _on_gpu(_prediction(queries, labels, plan, gpu), "prediction, GPU"),
    )
    return Forecast(costs, _assumptions(plan, machine, points, queries), machine.memory)


def duration(seconds: float) -> str:
    """Return seconds as text, such as "2.5 h", with few digits."""
    for length, unit in _UNITS:
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.{0 if seconds >= 10 * length else 1}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def size(count: float) -> str:
    """Return bytes as text, such as "1.5 GiB"."""
    for length, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB")):
        if count >= length:
            return f"{count / length:,.{0 if count >= 10 * length else 1}f} {unit}"
    return "under 1 MiB"


def _graph(train: Dataset, plan: Plan, machine: _Machine) -> StepCost:
    per_point = np.diff(train.targets.indptr).astype(np.float64)  # shape: (N,)
    products = float(np.sum(per_point**2))
    # The probabilities of a row sum to the mean number of labels on the points of its label. So at most
    # (sum / delta) of them can exceed delta.
    row_sums = cooccurrence_costs(train.targets) / np.maximum(train.label_frequencies, 1)  # shape: (L,)
    entries = min(products, float(np.sum(row_sums)) / max(plan.delta, 1e-9)) + train.num_labels
    held = 8 * (2 * train.targets.nnz + entries) + machine.cores * min(GRAPH_BLOCK_BYTES, 12 * products)
    cost = StepCost("graph", products / (PRODUCTS_PER_SECOND * machine.cores), int(held))
    return _on_cpu(cost, cost.step, machine)


def _training(points: int, labels: int, plan: Plan, flops: float) -> StepCost:
    # Each step needs three products of 2 B L d operations: scores, gradient of rows, gradient of points.
    steps = plan.epochs * -(-points // plan.batch)
    seconds = 6.0 * plan.batch * labels * plan.dimension * steps / flops
    rows = 3 * 4 * labels * plan.dimension  # weights and Adam's two moments, float32
    return StepCost("", seconds, rows + 4 * plan.batch * min(plan.chunk, labels))


def _prediction(queries: int, labels: int, plan: Plan, flops: float) -> StepCost:
    held = 4 * labels * plan.dimension + 4 * plan.batch * min(plan.chunk, labels)
    return StepCost("", 2.0 * queries * labels * plan.dimension / flops, held)


def _on_cpu(cost: StepCost, step: str, machine: _Machine) -> StepCost:
    remarks = []
    if machine.memory is not None and cost.bytes > machine.memory:
        remarks.append(f"will not fit: this machine has {size(machine.memory)} of memory")
    if cost.seconds > 86400:
        remarks.append("use a GPU, or train on a shortlist of labels instead of all labels")
    return StepCost(step, cost.seconds, cost.bytes, "; ".join(remarks))


def _on_gpu(cost: StepCost, step: str) -> StepCost:
    return StepCost(step, cost.seconds, cost.bytes, f"needs {size(cost.bytes)} of GPU memory")


def _assumptions(plan: Plan, machine: _Machine, points: int, queries: int) -> tuple[str, ...]:
    made = " (points and label points)" if plan.label_points else ""
    return (
        f"graph: {PRODUCTS_PER_SECOND / 1e6:.0f} million co-occurrences a second on each of"
        f" {machine.cores} cores, threshold {plan.delta:g}",
        f"training: one-vs-all on {counted(points, 'point')}{made}, {plan.epochs} epochs, batch {plan.batch},"
        f" dimension {plan.dimension}, Adam in float32, without the encoder",
        f"prediction: {counted(queries, 'point')}, exact search over all labels",
        f"CPU: {machine.flops / 1e9:,.0f} GFLOP/s, {'given' if plan.cpu_gflops else 'measured just now'};"
        f" GPU: {plan.gpu_tflops:g} TFLOP/s, assumed",
        "rough: right to a factor of a few",
    )


def _this_machine(plan: Plan) -> _Machine:
    flops = _measured_flops() if plan.cpu_gflops is None else plan.cpu_gflops * 1e9
    return _Machine(plan.cores or os.cpu_count() or 1, flops, physical_memory())


def _measured_flops() -> float:
    """Measure floating-point operations per second of a matrix product as in training."""
    points = np.ones((512, 512), dtype=np.float32)
    rows = np.ones((512, 2048), dtype=np.float32)
    points @ rows  # warm up: the first product starts the threads
    start, done = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < MEASURED_SECONDS or not done:
        points @ rows
        done += 1
    return done * 2.0 * 512 * 512 * 2048 / elapsed
