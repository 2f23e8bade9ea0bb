"""`gandalf check`: find what is wrong in a data set, with file, line and remedy."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gandalf.cli.extras import needs_extra
from gandalf.cli.options import Json, Source, reads_data
from gandalf.cli.output import console, print_json
from gandalf.data.check import CheckReport
from gandalf.data.check import check as checked
from gandalf.data.forecast import Forecast, duration, size
from gandalf.data.sentences import counted

PROBLEMS_FOUND = 1
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@reads_data
def check(source: Source, json: Json = False) -> None:
    """Read a whole data set and list its problems, each with file, line and remedy.

    Run it first on new data. It also forecasts time and memory of the next steps. The exit code is 0 if no
    finding is worse than a note, else 1.

    $ gandalf check man
    $ gandalf check tickets.csv --text-column subject --label-column tags --separator ";"
    """
    report = checked(source.data, source.options)
    if report.forecast is not None and report.splits is not None and find_spec("torch") is not None:
        with needs_extra("a forecast of training"):
            from gandalf.runs.cost import with_runs
        report = replace(report, forecast=with_runs(report.forecast, report.splits))
    report = replace(report, findings=tuple(problem.with_flags() for problem in report.findings))
    if json:
        print_json(report.as_dict())
    else:
        _show(report, console())
    raise typer.Exit(0 if report.passed else PROBLEMS_FOUND)


def _show(report: CheckReport, out: Console) -> None:
    if report.splits is not None:
        parts = (report.splits.train, report.splits.test)
        train, test = (0 if part is None else len(part) for part in parts)
        name = f"{report.splits.name} ({report.splits.layout})"
        labels = report.splits.train
        numbers = {"training point": train, "test point": test, "label": labels.num_labels}
        if labels.other_label_texts:
            numbers["other label text"] = len(labels.other_label_texts)
        size = ", ".join(counted(number, noun) for noun, number in numbers.items())
        out.print(f"[bold]{escape(name)}[/]: {size}")
    for problem in report.findings:
        style = _STYLES[problem.severity]
        out.print(
            f"[{style}]{problem.severity}[/] {escape(str(problem))} [dim]{escape(f'[{problem.kind}]')}[/]"
        )
    for kind, more in _unlisted(report).items():
        out.print(f"[dim]... and {more:,} more of {kind}[/]")
    numbers = {severity: report.number(severity) for severity in ("error", "warning", "note")}
    out.print(", ".join(f"{number:,} {word}{'' if number == 1 else 's'}" for word, number in numbers.items()))
    if report.forecast is not None:
        out.print()
        _show_forecast(report.forecast, out)


def _unlisted(report: CheckReport) -> dict[str, int]:
    listed = [problem.kind for problem in report.findings]
    more = {kind: number - listed.count(kind) for kind, number in report.counts.items()}
    return {kind: number for kind, number in more.items() if number > 0}


def _show_forecast(forecast: Forecast, out: Console) -> None:
    table = Table(title="Forecast", title_justify="left", title_style="bold")
    for heading, justify in (("step", "left"), ("time", "right"), ("memory", "right"), ("", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for cost in forecast.costs:
        table.add_row(cost.step, duration(cost.seconds), size(cost.bytes), cost.remark)
    out.print(table)
    for assumption in forecast.assumptions:
        out.print(f"[dim]{escape(assumption)}[/]")
