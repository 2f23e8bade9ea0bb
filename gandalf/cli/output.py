"""Print the results of commands: tables for people, one JSON object for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

_UNWRAPPED = 500  # columns; wide enough that piped text is never cut or folded


def console() -> Console:
    """Return a console on standard output, as wide as the terminal; in a pipe, wide enough for any line."""
    return Console(width=None if sys.stdout.isatty() else _UNWRAPPED, highlight=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; raise a ValueError for NaN and infinity, which JSON does not have."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def print_written(out: Path, sentence: str, facts: dict[str, Any], json: bool) -> None:
    """Print what a command wrote to `out`: a sentence for people, or the facts as JSON."""
    if json:
        print_json({"out": str(out), **facts})
    else:
        console().print(escape(f"{out}: {sentence}"))


def share(value: float | None) -> str:
    """Return a share in percent, with one decimal unless it is 0 or 1; "-" for None."""
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if 0 < value < 1 else f"{100 * value:.0f} %"
