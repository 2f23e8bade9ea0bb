"""What other people's trainers reach on a CPU with each kind of label points, and ours beside them.

    python -m bench.peers_cpu DATA --venvs .peers                       # every trainer that is installed
    python -m bench.peers_cpu DATA --venvs .peers --trainers omikuji --ours "astec targets.targets=auto"
    python -m bench.peers_cpu DATA --venvs .peers --validation --soft threshold any sample copies weights

Trainers with their defaults (`examples/`) on the training points alone (D), with every label's text as a
point of that label (D + Z1), and with the paper's and with calibrated targets. Their pins clash with each
other's and with ours, so each has an environment of its own, which `make peers` makes; others are left out.

`--validation` asks how soft targets best reach trainers that know only 0 and 1: it holds out a fifth of the
training points, trains on the rest and scores the held points; no test point is looked at. `--cuts --runs 3`
holds out the tenths that `bench.engine` holds out in its runs for validation, to stand beside those.

Seconds are those that a script takes once its libraries are loaded, reading and saving included. Every row is
kept as soon as it is there, and takes the place of an older one of the same trainer, points and targets.
`--runs 3` trains three times and keeps the means, and how far the runs lie apart: ours with another seed each
time; omikuji, which draws its trees without one, as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from bench.command import argument_parser
from bench.machine import RESULTS, keep, machine
from gandalf import DataError, Splits, load
from gandalf.data.harden import is_soft
from gandalf.data.holdout import hold_out_points
from gandalf.lab.peers import OURS, PEERS, POINTS, SOFT, Trainer, figures, interpreter, run
from gandalf.lab.sets import parts as validation_parts

SHARE, AT_MOST = 0.2, 5_000  # training points held out with --validation
SHOWN = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "C@5", "P@1, label text", "P@1, new text")
KEY = ("trainer", "points", "soft")
HARD = "-"  # in place of a way for soft targets, where there are none
OWN = "its own"  # points: ours make label points themselves
Figures = dict[str, float | None]


@dataclass(frozen=True)
class Row:
    """What is to be run: the trainer, its points, and how soft targets reach it."""

    trainer: str
    points: str
    soft: str


def wanted(chosen: argparse.Namespace) -> Iterator[tuple[Row, Trainer, str]]:
    """Yield rows with their trainers and interpreters, in the order in which they are run."""
    for name in chosen.trainers:
        trainer = PEERS[name]
        python = interpreter(name, trainer, chosen.venvs)
        if python is None:
            print(f"{name}: not installed, left out")
            continue
        for points in chosen.points:
            for soft in chosen.soft or [trainer.soft]:
                yield Row(name, points, soft), trainer, python
    for words in chosen.ours:
        system, *settings = words.split()
        yield (
            Row(words, OWN, "weights"),
            replace(OURS["astec"], arguments=(system, *settings)),
            sys.executable,
        )


def measured_row(
    row: Row, trainer: Trainer, python: str, several: list[Splits], threads: int
) -> dict[str, Any]:
    """Return a row of the table: the means of a run on each of the splits, which may be the same ones."""
    found = []
    for seed, splits in enumerate(several):
        made = POINTS.get(row.points, POINTS["D"])(splits.train)
        asked = seeded(trainer, seed) if row.points == OWN else trainer
        found.append(run(asked, python, splits, made, row.soft, threads=threads))
    costs = {
        "train_seconds": round(mean(each.train_seconds for each in found), 1),
        "predict_ms": round(mean(each.predict_ms for each in found), 3),
        "peak_mb": round(max(each.peak_mb for each in found)),
        "model_mb": round(mean(each.model_mb for each in found), 1),
    }
    soft = row.soft if is_soft(made.targets) else HARD
    scored, apart = means([figures(each.scores) for each in found])
    told = {"runs": len(found), "apart": apart} if len(found) > 1 else {}
    return asdict(replace(row, soft=soft)) | costs | scored | told


def seeded(trainer: Trainer, seed: int) -> Trainer:
    """Return one of our trainers with a seed of its own."""
    return replace(trainer, arguments=(*trainer.arguments, f"seed={seed}"))


def means(found: list[Figures]) -> tuple[Figures, Figures]:
    """Return the mean of each figure and the gap of its highest and lowest value; None without values."""
    values = {name: [each[name] for each in found] for name in found[0]}
    known = {name: [value for value in of_name if value is not None] for name, of_name in values.items()}
    return (
        {name: mean(of_name) if of_name else None for name, of_name in known.items()},
        {name: max(of_name) - min(of_name) if of_name else None for name, of_name in known.items()},
    )


def show(row: dict[str, Any]) -> None:
    """Print one row."""
    text = " ".join("  -  " if row[name] is None else f"{row[name]:5.1f}" for name in SHOWN)
    cost = f"{row['train_seconds']:7.1f} {row['predict_ms']:8.2f} {row['peak_mb']:6,} {row['model_mb']:6.1f}"
    print(f"{row['trainer']:22}{row['points']:16}{row['soft']:10} {text} {cost}", flush=True)


def kept(name: str, threads: int, shared: bool, row: dict[str, Any]) -> None:
    """Put the row among those that are kept."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text("utf-8"))["results"]["rows"] if path.is_file() else []
    others = [each for each in before if any(each[key] != row[key] for key in KEY)]
    row |= {"commit": machine()["commit"], "threads": threads, "machine_shared": shared}
    keep(name, {"rows": [*others, row]})


def cut(whole: Splits, seed: int) -> Splits:
    """Return what `bench.engine` trains and scores its validation runs with that seed on."""
    given, scored = validation_parts(whole, "validation", seed)
    return Splits(train=given.train, test=scored.test, name=whole.name)


def main() -> None:
    """Run every row that was asked for, print the table and keep it."""
    chosen = options()
    whole = load(chosen.data)
    name = whole.name
    several, kind = [whole] * chosen.runs, ""
    if chosen.validation:
        parts = hold_out_points(whole.train, SHARE, seed=1, at_most=AT_MOST)
        several, kind = [Splits(train=parts.rest, test=parts.held, name=name)] * chosen.runs, "_validation"
    if chosen.cuts:
        several, kind = [cut(whole, seed) for seed in range(chosen.runs)], "_cuts"
    print(f"{name}, {chosen.threads} threads")
    print(f"{'trainer':22}{'points':16}{'soft':10} {' '.join(SHOWN)} train s, predict ms, peak MB, model MB")
    failed = False
    for row, trainer, python in wanted(chosen):
        try:
            line = measured_row(row, trainer, python, several, chosen.threads)
        except (DataError, OSError) as error:  # other rows took minutes
            failed = True
            print(row, error, flush=True)
            continue
        show(line)
        kept(f"peers_{name}{kind}", chosen.threads, chosen.shared, line)
    sys.exit(1 if failed else 0)


def options() -> argparse.Namespace:
    """Return the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("data", help="a folder in any layout, or man")
    parser.add_argument("--venvs", type=Path, help="folder of environments, each named as its trainer")
    parser.add_argument("--trainers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--points", nargs="*", choices=POINTS, default=list(POINTS))
    parser.add_argument("--soft", nargs="*", choices=SOFT, help="default: what serves each trainer best")
    parser.add_argument("--ours", nargs="*", default=[], help="systems of ours, with settings")
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--validation", action="store_true", help="on held-out training points")
    held.add_argument("--cuts", action="store_true", help="on those of bench.engine, a cut for each run")
    parser.add_argument("--runs", type=int, default=1, help="trainings of each row: means are kept")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shared", action="store_true", help="note that other work shared the machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
