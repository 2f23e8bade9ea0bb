"""`gandalf reproduce`: run the studies behind the paper's tables and figures."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from gandalf.cli.costs import tell_costs
from gandalf.cli.extras import needs_extra
from gandalf.cli.options import Json
from gandalf.cli.output import console, print_json
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.lab.benchmarks import BENCHMARKS
from gandalf.lab.studies import ALL, STUDIES, named
from gandalf.lab.variants import settings_of
from gandalf.metrics.predictions import NO_TEST_SPLIT
from gandalf.settings import read_toml
from gandalf.systems import check_one_system, recipe

if TYPE_CHECKING:
    from gandalf.lab.reproduce import Planned, StudyRequest
    from gandalf.lab.store import LineOrError
    from gandalf.lab.variants import Run

SMALL = ("encoder.dim=64", "training.epochs=6")  # runs all studies of the bundled set within half an hour
NAMES = ", ".join((*STUDIES, ALL))
Study = Annotated[str, typer.Argument(metavar="STUDY", help=f"One of {NAMES}.")]
Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A folder with a test split, or the bundled set [bold]man[/].")
]
Systems = Annotated[
    list[str] | None,
    typer.Option("--systems", metavar="NAMES", help="Systems, separated by commas. Default: astec."),
]
Seeds = Annotated[
    int, typer.Option("--seeds", min=1, help="Runs of each row of a table, with seeds 0, 1, ...")
]
Out = Annotated[
    Path, typer.Option("--out", metavar="RUNS", help="Folder of results; it may hold earlier ones.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of every run; repeatable."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="File of settings for every run. Or the name of one of the paper's sets: the recipes derived for"
        " it.",
    ),
]
Small = Annotated[
    bool, typer.Option("--small", help=f"A small system in a short training: {', '.join(SMALL)}.")
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Runs at the same time; they share cores and GPU.")]
Only = Annotated[bool, typer.Option("--list", help="Only list the runs that are left, and what they cost.")]


def reproduce(
    study: Study,
    data: Data = "man",
    systems: Systems = None,
    seeds: Seeds = 3,
    out: Out = Path("runs"),
    config: Config = None,
    small: Small = False,
    set: Set = None,
    jobs: Jobs = 1,
    list: Only = False,
    json: Json = False,
) -> None:
    """Run the paper's studies on any data set, and store each run in a folder of results.

    A finished run is never repeated, whichever study needs it. After Ctrl-C the same command continues.

    $ gandalf reproduce main man --systems astec,inceptionxml
    $ gandalf reproduce all --small --seeds 1
    $ gandalf report runs  # tables and pictures of the results
    """
    benchmark = str(config) if str(config) in BENCHMARKS else None
    given = {} if config is None or benchmark else read_toml(config)
    chosen = _systems(systems, given.get("system"))
    check_one_system(given.get("system"), chosen, config)
    studies = named(study)
    with needs_extra("reproducing the studies"):
        from gandalf.lab.reproduce import StudyRequest, carry_out, refuse_to_write
        from gandalf.runs.folder import alone_in
    settings = (*(SMALL if small else ()), *settings_of(given), *(set or ()))
    wanted = StudyRequest(studies, data, chosen, tuple(range(seeds)), out, settings, jobs, benchmark)
    refuse_to_write(wanted)
    if list:
        _list(_planned(wanted, only_look=True), json)
        return
    try:
        with alone_in(out):
            planned = _planned(wanted)
            if not json:
                _announce(planned)
            failed = carry_out(planned, _silent if json else _tell)
    except KeyboardInterrupt:
        typer.secho("stopped; every run that has ended is stored: go on with the same command", err=True)
        raise
    _tell_end(planned, failed, json)
    if failed:
        raise typer.Exit(1)


def _planned(wanted: StudyRequest, *, only_look: bool = False) -> Planned:
    """Return the plan; without a test split, name the remedies that this command has."""
    from gandalf.lab.reproduce import plan

    try:
        return plan(wanted, only_look=only_look)
    except DataError as error:
        if error.problem.kind != NO_TEST_SPLIT:
            raise
        remedy = (
            "give a folder with both, such as one of train.csv and test.csv, or hold one out:"
            " gandalf split DATA OUT"
        )
        raise DataError(error.problem.what, remedy=remedy) from error


def _tell_end(planned: Planned, failed: int, json: bool) -> None:
    made, folder = len(planned.left) - failed, str(planned.wanted.folder)
    if json:
        print_json({"runs": planned.runs, "made": made, "failed": failed, "folder": folder})
        return
    report = shlex.join(["gandalf", "report", folder, "-o", "report.html"])
    console().print(f"{counted(made, 'run')} made, {failed} failed. Look at them with:")
    console().print(escape(f"  {report}"), style="bold", soft_wrap=True)


def _systems(options: list[str] | None, in_file: str | None) -> tuple[str, ...]:
    """Return the named systems, else the system of the file, else astec."""
    lists = options or [in_file or "astec"]
    chosen = tuple(name.strip() for names in lists for name in names.split(",") if name.strip())
    if not chosen:
        raise DataError("no system is named", remedy="leave --systems out for astec, or see gandalf systems")
    for name in chosen:
        recipe(name)
    return chosen


def _list(planned: Planned, json: bool) -> None:
    with needs_extra("telling what runs cost"):
        from gandalf.lab.costs import costs
    found = costs(planned.left, planned.splits)
    if json:
        left = [str(run) for run in planned.left]
        print_json({"runs": planned.runs, "left": left, "costs": [asdict(each) for each in found]})
        return
    _announce(planned)
    tell_costs(found, planned.wanted.benchmark)
    for run in planned.left:
        console().print(escape(str(run)), soft_wrap=True)


def _announce(planned: Planned) -> None:
    screen, left = console(), len(planned.left)
    for row, why in planned.refused.items():
        screen.print(f"[dim]left out: {escape(row)} ({escape(why)})[/]")
    stored = planned.runs - left
    screen.print(
        f"{escape(planned.splits.name)}: {counted(planned.runs, 'run')}, {stored} of them stored already."
    )
    if planned.seconds:
        number = counted(left, "run is", "runs are")
        screen.print(f"{number} left, which takes about {spoken(planned.seconds)} here.")


def spoken(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    minutes = seconds / 60
    return f"{round(minutes)} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _silent(run: Run, answer: LineOrError) -> None:
    """Print nothing: with --json only the end is printed."""


def _tell(run: Run, answer: LineOrError) -> None:
    screen = console()
    if isinstance(answer, str):
        screen.print(f"[red]failed[/] {escape(str(run))}: {escape(answer)}", soft_wrap=True)
        return
    p1, seconds = answer["figures"].get("P@1", float("nan")), answer["wall"]
    screen.print(f"P@1 {p1:5.2f}  {seconds:6.1f} s  {escape(str(run))}", soft_wrap=True)
