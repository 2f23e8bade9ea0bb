"""What other people's trainers reach on a CPU, and our own command beside them: one machine, one run.

    python -m bench.peers_cpu DATA --omikuji-python OMIKUJI/bin/python --pecos-python PECOS/bin/python \
        --ours="--system astec --targets auto"

omikuji and PECOS X-Linear, with their defaults, on TF-IDF words: the training points as they are (D), and
with every label's text as a point of that label (D + Z1). Their pins clash with each other's and with ours,
so each has an interpreter of its own: `pip install omikuji scipy` in one, `pip install libpecos` in the
other. What is not given is left out. `--ours`, which may be given several times, is a row of
`gandalf train DATA OUT` with these arguments.

Seconds are those of whole commands, from the start of the interpreter to a saved model, reading included;
`prepare` is what it takes to write features for the other trainers, which `gandalf train` makes itself.
Memory is the peak of the process that trains and of those it starts. omikuji draws its trees without a
seed, so its figures move by some tenths of a point between `--rounds`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.machine import keep
from gandalf import GraphOptions, Splits, augment, evaluate, export, label_graph, load
from gandalf.data.dataset import Dataset

TOP = 50  # labels kept for each test point: the filter takes some of the best away
OMIKUJI = str(Path(__file__).with_name("omikuji_commands.py"))
FIGURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@5")
Command = list[str]


class FailedError(Exception):
    """A command that ended badly, and what it printed."""


@dataclass(frozen=True)
class Peer:
    """A trainer: what it reads, and the arguments of its interpreter that train and predict."""

    package: str
    format: str  # of `gandalf augment`
    train: Callable[[Path, Path, int], Command]  # folder of data, model, threads
    predict: Callable[[Path, Path, Path, int], Command]  # folder of data, model, predictions, threads


PEERS = {
    "omikuji": Peer(
        "omikuji",
        "libsvm",
        lambda data, model, threads: [OMIKUJI, "train", f"{data / 'train.txt'}", f"{model}", f"{threads}"],
        lambda data, model, out, threads: [
            *(OMIKUJI, "predict", f"{model}", f"{data / 'test.txt'}", f"{out}", f"{TOP}")
        ],
    ),
    "PECOS X-Linear": Peer(
        "libpecos",
        "npz",
        lambda data, model, threads: [
            *("-m", "pecos.xmc.xlinear.train", "-m", f"{model}", "-n", f"{threads}"),
            *("-x", f"{data / 'X.trn.npz'}", "-y", f"{data / 'Y.trn.npz'}"),
        ],
        lambda data, model, out, threads: [
            *("-m", "pecos.xmc.xlinear.predict", "-m", f"{model}", "-n", f"{threads}"),
            *("-x", f"{data / 'X.tst.npz'}", "-o", f"{out}", "-k", f"{TOP}"),
        ],
    ),
}


def with_label_texts(points: Dataset) -> Dataset:
    """D + Z1: every label's text as a point whose only target is the label."""
    return augment(points, label_graph(points, GraphOptions("self")).matrix)


POINTS: dict[str, Callable[[Dataset], Dataset]] = {"D": lambda points: points, "D + Z1": with_label_texts}


@dataclass(frozen=True)
class Run:
    """What all rows share."""

    splits: Splits
    source: str  # as it was given: our own command reads it itself
    folder: Path
    threads: int


def peer_rows(run: Run, name: str, python: str) -> Iterator[dict[str, Any]]:
    """One trainer on D and on D + Z1."""
    peer = PEERS[name]
    version = f"from importlib.metadata import version; print(version({peer.package!r}))"
    found = subprocess.run([python, "-c", version], check=True, capture_output=True, text=True).stdout.strip()
    for points, made in POINTS.items():
        place = Path(tempfile.mkdtemp(prefix=f"{name} {points} ", dir=run.folder))
        data, model, out = place / "data", place / "model", place / "predictions.npz"
        start = time.perf_counter()
        export(replace(run.splits, train=made(run.splits.train)), data, peer.format)
        prepare = time.perf_counter() - start
        train = measured([python, *peer.train(data, model, run.threads)], run.threads)
        predict = measured([python, *peer.predict(data, model, out, run.threads)], run.threads)
        row = {"trainer": name, "version": found, "points": points, "prepare_seconds": round(prepare, 1)}
        yield row | costs(train, predict) | figures(out, run.splits)


def our_rows(run: Run, arguments: str) -> Iterator[dict[str, Any]]:
    """`gandalf train` with these arguments, and `gandalf predict`."""
    place = Path(tempfile.mkdtemp(prefix="gandalf ", dir=run.folder))
    model, out = place / "model", place / "predictions.npz"
    gandalf = [sys.executable, "-m", "gandalf"]
    train = [*gandalf, "train", run.source, f"{model}", "--device", "cpu", *shlex.split(arguments)]
    predict = [*gandalf, "predict", f"{model}", run.source, "-o", f"{out}", "--top", f"{TOP}"]
    row = {"trainer": "gandalf", "points": arguments, "prepare_seconds": 0.0}
    yield (
        row | costs(measured(train, run.threads), measured(predict, run.threads)) | figures(out, run.splits)
    )


def measured(command: Command, threads: int) -> tuple[float, float]:
    """Seconds and peak megabytes of a command; what it prints is shown only if it fails."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    with tempfile.TemporaryFile("w+") as printed:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=printed, stderr=printed, env={**os.environ, **limits})
        peak = 0.0
        while child.poll() is None:
            peak = max(peak, held_mb(child.pid))
            time.sleep(0.05)
        seconds = time.perf_counter() - start
        printed.seek(0)
        if child.returncode:
            raise FailedError(f"{shlex.join(command)} failed:\n{printed.read()}")
    return seconds, peak


def held_mb(process: int) -> float:
    """The most memory that a process and those it has started have held so far; 0 where none can be asked."""
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
        children = Path(f"/proc/{process}/task/{process}/children").read_text("utf-8").split()
    except OSError:  # it has ended, or this is no Linux
        return 0.0
    own = sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return own + sum(held_mb(int(child)) for child in children)


def costs(train: tuple[float, float], predict: tuple[float, float]) -> dict[str, Any]:
    """Seconds of both commands, and the memory of training."""
    return {
        "train_seconds": round(train[0], 1),
        "train_peak_mb": round(train[1]),
        "predict_seconds": round(predict[0], 1),
    }


def figures(predictions: Path, splits: Splits) -> dict[str, float | None]:
    """The filtered figures on the test split, and P@1 of both kinds of text."""
    scores = evaluate(predictions, splits)
    parts = {"P@1, label text": scores.label_text, "P@1, new text": scores.new_text}
    split = {name: None if part is None else part.values.get("P@1") for name, part in parts.items()}
    return {name: scores[name] for name in FIGURES} | split


def show(row: dict[str, Any]) -> None:
    """Print one row."""
    text = "  ".join(f"{row[name]:5.1f}" for name in FIGURES)
    kinds = " ".join(
        "  -  " if row[n] is None else f"{row[n]:5.1f}" for n in ("P@1, label text", "P@1, new text")
    )
    cost = f"{row['prepare_seconds']:6.1f} {row['train_seconds']:7.1f} {row['predict_seconds']:7.1f}"
    print(
        f"{row['trainer']:15}{row['points']:24} {text}  {kinds}  {cost} {row['train_peak_mb']:6,}", flush=True
    )


def main() -> None:
    """Run every row that was asked for, print the table and keep it."""
    chosen = options()
    splits = load(chosen.data)
    print(f"{splits.name}, {chosen.threads} threads")
    print(f"{'trainer':15}{'points':24} " + "  ".join(f"{name:>5}" for name in FIGURES), end="")
    print("  label   new  prepare   train predict     MB")
    rows: list[dict[str, Any]] = []
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if chosen.folder is None else chosen.folder
        folder.mkdir(parents=True, exist_ok=True)
        for some in everything(Run(splits, chosen.data, folder, chosen.threads), chosen):
            try:
                for row in some:
                    rows.append(row)
                    show(row)
            except (FailedError, OSError, subprocess.SubprocessError) as error:  # other rows took minutes
                failed = True
                print(error)
    if rows:
        print(keep(f"peers_cpu_{splits.name}", {"threads": chosen.threads, "rows": rows}))
    sys.exit(1 if failed else 0)


def everything(run: Run, chosen: argparse.Namespace) -> Iterator[Iterable[dict[str, Any]]]:
    """Rows in the order in which they are run; those of one trainer fail together."""
    pythons = {"omikuji": chosen.omikuji_python, "PECOS X-Linear": chosen.pecos_python}
    for peer, python in pythons.items():
        if python is None:
            print(f"{peer}: no interpreter given, left out")
            continue
        for _ in range(chosen.rounds):
            yield peer_rows(run, peer, python)
    for arguments in chosen.ours:
        yield our_rows(run, arguments)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a folder in any layout, or man")
    parser.add_argument("--omikuji-python", help="interpreter that has omikuji and SciPy")
    parser.add_argument("--pecos-python", help="interpreter that has libpecos")
    parser.add_argument("--ours", action="append", default=[], help="arguments of gandalf train; repeatable")
    parser.add_argument("--rounds", type=int, default=1, help="of the others: omikuji's trees have no seed")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="keep models and predictions here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
