"""What can be told of a data set without training: its density, its label graphs and what they cost."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gandalf.data.dataset import Splits
from gandalf.graph.label_graph import GraphOptions, TargetName, label_graph
from gandalf.graph.neighbours import neighbourhood, typical_labels
from gandalf.graph.postulate import diagnose
from gandalf.lab.sets import data_hash

TIMED: tuple[TargetName, ...] = ("ratio", "shrunk", "calibrated", "walk")
SHOWN = 8  # neighbours of a label
LIBRARIES = ("numpy", "scipy", "torch", "tokenizers", "transformers", "numba")


def density(splits: Splits) -> dict[str, Any]:
    """Sizes of a set, its mean points per label and labels per point, and its hash."""
    train, test = splits.train, splits.test
    return {
        "name": splits.name,
        "hash": data_hash(splits),
        "points": len(train),
        "labels": train.num_labels,
        "test_points": 0 if test is None else len(test),
        "points_per_label": train.targets.nnz / train.num_labels,
        "labels_per_point": train.targets.nnz / max(len(train), 1),
    }


def graphs(splits: Splits, number: int = 5) -> dict[str, Any]:
    """Seconds that each label graph takes, labels from head to tail with their neighbours, the diagnosis."""
    seconds = {}
    for targets in TIMED:
        started = time.perf_counter()
        graph = label_graph(splits.train, GraphOptions(targets=targets))
        seconds[targets] = round(time.perf_counter() - started, 3)
        if targets == "ratio":
            matrix = graph.matrix
    shown = [
        neighbourhood(splits.train, matrix, label) for label in typical_labels(splits.train, matrix, number)
    ]
    return {
        "graph_seconds": seconds,
        "mean_neighbours": float(np.diff(matrix.indptr).mean() - 1),
        "neighbours": [
            {**asdict(each), "neighbours": [asdict(n) for n in each.neighbours[:SHOWN]]} for each in shown
        ],
        "diagnosis": diagnose(splits.train).verdict,
    }


def environment() -> dict[str, Any]:
    """Processor and versions."""
    import torch

    about: dict[str, Any] = {"cpu": _cpu(), "cores": os.cpu_count(), "python": platform.python_version()}
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    for name in LIBRARIES:
        try:
            about[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return about


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
