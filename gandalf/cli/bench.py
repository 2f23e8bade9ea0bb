"""`gandalf bench`: our recipes and other people's trainers on one data set, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from gandalf.cli.options import Json, Source, reads_data
from gandalf.cli.output import console, print_json
from gandalf.data.dataset import Splits
from gandalf.data.holdout import holdout
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.lab.bench_report import bench_report
from gandalf.lab.peers import OURS, PEERS, POINTS, Trainer, figures, interpreter, run

SHARE, AT_MOST = 0.2, 5_000  # training points held out where there is no test split
NOTHING_RAN = 1  # the exit code where no trainer gave a row
COMPARED = ("D", "D + calibrated")  # what others are trained on

Trainers = Annotated[
    list[str] | None,
    typer.Option(
        "--trainer", metavar="NAME", help="Only this one; repeat it. Default: all that are installed."
    ),
]
Venvs = Annotated[
    Path | None,
    typer.Option(
        "--venvs", metavar="FOLDER", help="Environments of other trainers, as make peers leaves them."
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Default: as many as there are cores.")]


@reads_data
def bench(
    source: Source,
    trainer: Trainers = None,
    venvs: Venvs = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Quality and cost of our CPU recipes and of the other trainers that are installed, in one table.

    Others are trained with their defaults on the training points alone (D) and with our calibrated label
    points; ours make their label points themselves. Each runs in a process of its own. Without a test split,
    a fifth of the training points is held out. Exits with 1 if no trainer came to an end.

    [bold]gandalf bench man[/]

    [bold]gandalf bench man --trainer parabel --trainer omikuji[/]
    """
    everyone = OURS | PEERS
    names = trainer or list(everyone)
    if venvs is not None and not venvs.is_dir():
        raise DataError("there is no such folder of environments", remedy="make peers makes one", file=venvs)
    unknown = next((name for name in names if name not in everyone), None)
    if unknown is not None:
        raise DataError(f"there is no trainer {unknown!r}", remedy=f"choose from {', '.join(everyone)}")
    splits = _splits(source)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for name, points, row in _rows(splits, names, venvs, threads or os.cpu_count() or 1):
        if isinstance(row, str):
            notes.append(f"{name}{f', {points}' if points else ''}: {row}")
        else:
            rows.append({"trainer": name, "points": points, **row})
    if json:
        print_json({"data": splits.name, "rows": rows, "notes": notes})
    else:
        _show(splits.name, rows, notes)
    if not rows:
        raise typer.Exit(NOTHING_RAN)


def _show(data: str, rows: list[dict[str, Any]], notes: list[str]) -> None:
    screen = console()
    if rows:
        screen.print(bench_report(data, rows))
    for note in notes:
        screen.print(f"note: {escape(note)}")


def _splits(source: Source) -> Splits:
    splits = source.load_original()
    if splits.test is not None:
        return splits
    try:
        parts = holdout(splits.train, SHARE, seed=0, at_most=AT_MOST)
    except DataError as error:  # it advises another share or seed, which nobody can choose here
        raise DataError(error.problem.what, remedy="add a test split") from error
    held = counted(len(parts.held), "training point is", "training points are")
    typer.secho(f"no test split: {held} held out", err=True, dim=True)
    return Splits(train=parts.rest, test=parts.held, name=splits.name)


def _rows(
    splits: Splits, names: list[str], venvs: Path | None, threads: int
) -> Iterator[tuple[str, str, dict[str, Any] | str]]:
    """A row, or a sentence about why there is none."""
    for name in names:
        trainer = (OURS | PEERS)[name]
        python = interpreter(name, trainer, venvs)
        if python is None:
            yield name, "", f"not installed; pip install '{trainer.packages[0]}'"
            continue
        for points in ("its own",) if name in OURS else COMPARED:
            try:
                yield name, points, _row(splits, trainer, python, points, threads)
            except (DataError, OSError) as error:  # the others took minutes
                yield name, points, str(error)


def _row(splits: Splits, trainer: Trainer, python: str, points: str, threads: int) -> dict[str, Any]:
    typer.secho(f"{Path(trainer.script).stem.removeprefix('with_')}, {points} ...", err=True, dim=True)
    found = run(trainer, python, splits, POINTS.get(points, POINTS["D"])(splits.train), threads=threads)
    costs = {
        "train_seconds": found.train_seconds,
        "predict_ms": found.predict_ms,
        "peak_mb": found.peak_mb,
        "model_mb": found.model_mb,
    }
    return figures(found.scores) | costs
