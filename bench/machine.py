"""Describe the machine and commit of a result, and keep results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import scipy

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return processor, cores, versions and the commit that was measured."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "commit": _git("rev-parse", "--short", "HEAD")
        # What benchmarks write themselves is no change of what they measure.
        + ("+changes" if _git("status", "--porcelain", "-uno", "--", ".", ":!bench/results") else ""),
    }


def keep(name: str, results: dict[str, Any] | list[dict[str, Any]]) -> Path:
    """Write raw results, with the machine they come from, to bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n", encoding="utf-8")
    return path


def replaced(text: str, mark: str, made: str) -> str:
    """Return the text with the part between two marks replaced."""
    start, end = f"<!-- {mark} -->", f"<!-- end {mark} -->"
    if start not in text or end not in text:
        raise ValueError(f"the page has no marks {mark}")
    before, _, rest = text.partition(start)
    return f"{before}{start}\n\n{made}\n\n{end}{rest.partition(end)[2]}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # a copy of the code on a machine without git
        return ""
    return done.stdout.strip()
