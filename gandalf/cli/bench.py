"""`gandalf bench`: compare our recipes and other trainers on one data set."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from gandalf.cli.options import Json, Source, reads_data
from gandalf.cli.output import console, print_json
from gandalf.data.dataset import Splits
from gandalf.data.holdout import hold_out_points
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.lab.peers import OURS, PEERS, POINTS, Trainer, bench_report, interpreter, run, told
from gandalf.progress import duration_in_words

SHARE, AT_MOST = 0.2, 5_000  # share and largest number of points to hold out without a test split
NOTHING_RAN = 1  # exit code if no trainer gave a row
COMPARED = ("D", "D + calibrated")  # training points of the other trainers

PlannedRun = tuple[str, str, str]  # trainer, its points, interpreter

Trainers = Annotated[
    list[str] | None,
    typer.Option(
        "--trainer",
        metavar="NAME",
        help="Run only this trainer; repeatable. Default: all that are installed.",
    ),
]
Venvs = Annotated[
    Path | None,
    typer.Option(
        "--venvs",
        metavar="FOLDER",
        help="Folder of virtual environments with other trainers; make peers fills one.",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of each trainer. Default: one for each core.")
]


@reads_data
def bench(
    source: Source,
    trainer: Trainers = None,
    venvs: Venvs = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare quality and cost of our CPU recipes and of other installed trainers, in one table.

    Other trainers run with their defaults, on the training points alone (D) and with our calibrated label
    points. Our recipes make their own label points. Each trainer runs in its own process. Without a test
    split, a fifth of the training points is held out. The exit code is 1 if no trainer finished.

    $ gandalf bench man
    $ gandalf bench man --trainer parabel --trainer omikuji
    """
    everyone = OURS | PEERS
    names = trainer or list(everyone)
    if venvs is not None and not venvs.is_dir():
        raise DataError("is no folder of virtual environments", remedy="make peers fills one", file=venvs)
    unknown = next((name for name in names if name not in everyone), None)
    if unknown is not None:
        raise DataError(f"there is no trainer {unknown!r}", remedy=f"choose from {', '.join(everyone)}")
    splits = _splits(source)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    planned, absent = _planned(names, venvs)
    notes += absent
    started = time.monotonic()
    with _shown_live(splits.name, rows, json):
        for done, (name, points, python) in enumerate(planned):
            left = _time_left(started, done, len(planned))
            _tell(f"[{done + 1}/{len(planned)}] {name}, {points}{left} ...")
            row = _row(splits, everyone[name], python, points, threads or os.cpu_count() or 1)
            if isinstance(row, str):
                notes.append(f"{name}, {points}: {row}")
                continue
            rows.append({"trainer": name, "points": points, **row})
            _tell(f"{name}, {points}: {told(row)}")
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
        parts = hold_out_points(splits.train, SHARE, seed=0, at_most=AT_MOST)
    except DataError as error:  # it advises another share or seed, which nobody can choose here
        raise DataError(error.problem.what, remedy="add a test split") from error
    held = counted(len(parts.held), "training point is", "training points are")
    typer.secho(f"no test split: {held} held out", err=True, dim=True)
    return Splits(train=parts.rest, test=parts.held, name=splits.name)


def _planned(names: list[str], venvs: Path | None) -> tuple[list[PlannedRun], list[str]]:
    """Return the planned runs, and a sentence for each trainer that is not installed."""
    planned: list[PlannedRun] = []
    absent = []
    for name in names:
        trainer = (OURS | PEERS)[name]
        python = interpreter(name, trainer, venvs)
        if python is None:
            absent.append(f"{name}: not installed; pip install '{trainer.packages[0]}'")
            continue
        planned += [(name, points, python) for points in (("its own",) if name in OURS else COMPARED)]
    return planned, absent


def _row(splits: Splits, trainer: Trainer, python: str, points: str, threads: int) -> dict[str, Any] | str:
    """Return the row of a trainer, or the reason why it failed; a failure must not lose the other rows."""
    try:
        made = POINTS.get(points, POINTS["D"])(splits.train)
        return run(trainer, python, splits, made, threads=threads).as_row()
    except (DataError, OSError) as error:
        return str(error)


def _time_left(started: float, done: int, planned: int) -> str:
    """Return the expected remaining time in words, or "" before the first run."""
    if not done:
        return ""
    each = (time.monotonic() - started) / done
    return f" (about {duration_in_words(each * (planned - done))} left)"


def _tell(line: str) -> None:
    typer.secho(line, err=True, dim=True)


@contextmanager
def _shown_live(data: str, rows: list[dict[str, Any]], json: bool) -> Iterator[None]:
    """Show a growing table on a terminal; elsewhere do nothing, since lines tell of each row."""
    screen = console()
    if json or not screen.is_terminal or not sys.stderr.isatty():
        yield
        return

    class Growing:
        def __rich__(self) -> Table:
            return bench_report(data, rows)

    with Live(Growing(), console=screen, transient=True, refresh_per_second=2):
        yield
