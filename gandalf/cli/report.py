"""`gandalf report`: write a folder of results as one page, as Markdown or as CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gandalf import __version__
from gandalf.cli.output import console
from gandalf.data.claim import only_writer
from gandalf.data.files import written
from gandalf.data.sentences import counted
from gandalf.errors import DataError
from gandalf.lab.results import Results
from gandalf.lab.study_pages import CSV_HEAD, markdown, runs_csv, study_page
from gandalf.lab.study_report import sections

Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="Folder that gandalf reproduce wrote.")]
Out = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write: .html, .md or .csv.")]


def report(runs: Runs = Path("runs"), out: Out = Path("report.html")) -> None:
    """Write a report of the studies: tables, pictures, the paper's claims, commands and versions.

    $ gandalf report runs -o report.html  # one page that needs no other file
    $ gandalf report runs -o report.md
    $ gandalf report runs -o runs.csv  # a line for every run
    """
    if out.suffix not in WRITERS:
        what = f"a report cannot be written as {out.suffix or 'a file without an ending'}"
        raise DataError(what, remedy=f"choose a name that ends in {', '.join(WRITERS)}", file=out)
    with only_writer(out):
        _refuse_to_lose(out)
        results = Results.read(runs)
        text = WRITERS[out.suffix](results)
        with written(out) as file:
            file.write(text)
    console().print(f"{counted(len(results.lines), 'run')}: [bold]{escape(str(out))}[/]")


def _refuse_to_lose(out: Path) -> None:
    """Refuse to replace a file that is not an earlier report."""
    if not out.is_file():
        return
    with open(out, "rb") as file:
        start = file.read(1 << 16).decode("utf-8", errors="replace")
    if not any(mark in start for mark in MARKS):
        raise DataError("exists and is no report", remedy="choose another name, or remove it", file=out)


def _title(results: Results) -> str:
    names = dict.fromkeys(line["name"].partition("?")[0] for line in results.lines.values())
    return "Label points on " + ", ".join(name for name in names if name != "synthetic")


def _html(results: Results) -> str:
    return study_page(sections(results), _title(results), f"gandalf {__version__}")


def _markdown(results: Results) -> str:
    return markdown(sections(results), _title(results))


# Marks near the beginning of a report, by which an earlier report is recognised.
MARKS = ("Label points on ", ",".join(CSV_HEAD[:3]))
WRITERS: dict[str, Callable[[Results], str]] = {".html": _html, ".md": _markdown, ".csv": runs_csv}
