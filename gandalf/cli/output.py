"""Where commands write: tables for people, one JSON object for scripts."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer
from rich.console import Console

_UNWRAPPED = 500  # columns; nobody's terminal, so that piped text is never cut or folded


def console() -> Console:
    """A console on standard output that uses the terminal's width, or all the width it needs in a pipe."""
    return Console(width=None if sys.stdout.isatty() else _UNWRAPPED, highlight=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; NaN and infinity, which JSON has not, are a defect of the caller."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def share(value: float | None) -> str:
    """A share in percent, with a decimal only where it tells something."""
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if 0 < value < 1 else f"{100 * value:.0f} %"
