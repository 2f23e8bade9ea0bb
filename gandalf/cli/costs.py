"""Print a table of what the planned runs cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from gandalf.cli.output import console
from gandalf.data.forecast import duration, size
from gandalf.lab.benchmarks import PROVIDE

if TYPE_CHECKING:
    from gandalf.lab.costs import SystemCost

HEAD = ("system", "runs", "updates", "memory", "a run here", "all here", "a run on one H200", "all on it")


def tell_costs(found: list[SystemCost], benchmark: str | None) -> None:
    """Print updates, memory and time of each system's runs, and what derived recipes lack."""
    if not found:
        return
    table = Table(*HEAD, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for each in found:
        table.add_row(*cells(each))
    screen = console()
    screen.print(table, soft_wrap=True)
    screen.print(
        "Updates and memory are of the costliest run on one H200; times are right to a factor of three."
    )
    if benchmark is None:
        return
    screen.print("Recipes are derived from published constants and were not tried on this set.")
    for each in found:
        if each.system in PROVIDE:
            screen.print(escape(f"{each.system}: published figures rest on {PROVIDE[each.system]}"))


def cells(found: SystemCost) -> tuple[str, ...]:
    """Return a system's costs as a row of the table."""
    here, there = found.largest
    return (
        found.system,
        f"{found.runs:,}",
        f"{there.steps:,}",
        size(there.memory),
        duration(here.seconds),
        duration(found.seconds[0]),
        duration(there.seconds),
        duration(found.seconds[1]),
    )
