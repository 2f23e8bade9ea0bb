"""Read the command line and the stored lines that every script of this folder has."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the script's docstring, as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON object a line; none without the file."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]
