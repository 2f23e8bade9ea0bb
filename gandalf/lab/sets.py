"""Open, thin or draw the data sets of experiments, and tell what is known of them without training."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset, Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.load import bundled, load
from gandalf.data.matching import known_points
from gandalf.data.synthetic import synthetic
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, TargetName, label_graph
from gandalf.graph.neighbours import neighbourhood, typical_labels
from gandalf.graph.postulate import diagnose

SYNTHETIC = "synthetic"
HELD_SHARE = 0.1  # of `validation` runs; which points depends on the run's seed alone
THINNING_SEED = 0  # the same points in every run


def short_name(data: str) -> str:
    """Return the name of a data set in runs, which does not depend on where the folder lies."""
    return data if data in bundled() or data.startswith(SYNTHETIC) else Path(data).resolve().name


def open_set(name: str, source: str) -> Splits:
    """Open the set of that name: `source` is where its folder lies, and what follows a `?` is done to it.

    `NAME?points=0.5` keeps a share of the training points, `NAME?pairs=0.5` a share of their labels;
    `synthetic?points=2000&labels=500&labels_per_point=4` is drawn.
    """
    base, _, query = name.partition("?")
    options = dict(parse_qsl(query))
    if base == SYNTHETIC:
        return _drawn(name, options)
    splits = load(source)
    for what, share in options.items():
        if what not in THIN:
            raise DataError(f"there is no way {what!r} to thin a data set", remedy=f"use {', '.join(THIN)}")
        splits = replace(splits, train=THIN[what](splits.train, float(share)), name=f"{splits.name}?{query}")
    return splits


def _drawn(name: str, options: dict[str, str]) -> Splits:
    known = ("points", "labels", "labels_per_point")
    if any(each not in known for each in options) or not {"points", "labels"} <= options.keys():
        raise DataError(f"cannot draw {name!r}", remedy="say synthetic?points=2000&labels=500")
    labels_per_point = float(options.get("labels_per_point", 2.3))
    made = synthetic(int(options["points"]), int(options["labels"]), labels_per_point=labels_per_point)
    return replace(made.splits, name=name)


def fewer_points(points: Dataset, share: float) -> Dataset:
    """Draw a share of the points at random."""
    drawn = np.random.default_rng(THINNING_SEED).permutation(len(points))
    return points[np.sort(drawn[: max(1, round(share * len(points)))])]


def fewer_pairs(points: Dataset, share: float) -> Dataset:
    """Draw a share of the positives at random; drop points that lose all."""
    targets = points.targets.copy()
    targets.data[np.random.default_rng(THINNING_SEED).random(targets.nnz) >= share] = 0.0
    targets.eliminate_zeros()
    return replace(points, targets=targets)[np.flatnonzero(np.diff(targets.indptr))]


THIN: dict[str, Callable[[Dataset, float], Dataset]] = {"points": fewer_points, "pairs": fewer_pairs}


def parts(splits: Splits, split: str, seed: int) -> tuple[Splits, Splits]:
    """Return the data that a run trains on, and the data that it is scored on."""
    if split == "validation":
        cut = hold_out_points(splits.train, HELD_SHARE, seed, at_most=None)
        splits = replace(splits, train=cut.rest, test=cut.held)
    return replace(splits, test=None), splits


def query_rows(test: Dataset, number: int) -> tuple[npt.NDArray[np.int64], bool]:
    """Return rows at equal distances, of new texts if there are any; and if all of them are new texts."""
    known = known_points(test)
    only_new = known is not None and not known.all()
    rows = np.flatnonzero(~known) if known is not None and only_new else np.arange(len(test))
    return np.unique(rows[np.linspace(0, len(rows) - 1, number).astype(np.int64)]), only_new


def data_hash(splits: Splits) -> str:
    """Hash the texts, targets and excluded pairs of both splits."""
    digest = hashlib.sha256()
    for points in (splits.train, splits.test):
        if points is None:
            continue
        for texts in (points.texts, points.label_texts):
            _add_texts(digest.update, texts or ())
        for matrix in (points.targets, points.exclude):
            _add_matrix(digest.update, matrix)
    return digest.hexdigest()[:16]


def _add_texts(update: Callable[[bytes], None], texts: Iterable[str]) -> None:
    for text in texts:
        update(text.encode("utf-8", "surrogatepass") + b"\0")


def _add_matrix(update: Callable[[bytes], None], matrix: csr_array | None) -> None:
    if matrix is not None:
        parts: tuple[npt.NDArray[np.generic], ...] = (
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int64),
            matrix.data.astype(np.float32),
        )
        for part in parts:
            update(np.ascontiguousarray(part).tobytes())


TIMED: tuple[TargetName, ...] = ("ratio", "shrunk", "calibrated", "walk")
SHOWN = 8  # neighbours of a label
LIBRARIES = ("numpy", "scipy", "torch", "tokenizers", "transformers", "numba")


def density(splits: Splits) -> dict[str, Any]:
    """Return the sizes, densities and hash of a set."""
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
    """Return the seconds of each label graph, some labels with their neighbours, and the diagnosis."""
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
    """Return the processor and the versions of libraries."""
    import torch

    about: dict[str, Any] = {"cpu": processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    if torch.cuda.is_available():
        about["gpu"] = torch.cuda.get_device_name()
    for name in LIBRARIES:
        try:
            about[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return about


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
