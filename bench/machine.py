"""Describe the machine and commit of a result, measure memory, run children, and keep results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import scipy

from gandalf.lab.sets import processor

RESULTS = Path(__file__).parent / "results"
DATA_ROOT = Path(__file__).resolve().parents[2] / "shared" / "data"  # of the data sets


def machine(commit: str | None = None) -> dict[str, Any]:
    """Return processor, cores, versions, and the commit that was measured, which git tells unless given."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "commit": commit or _commit(),
    }


def _commit() -> str:
    # What benchmarks write themselves is no change of what they measure.
    changed = _git("status", "--porcelain", "-uno", "--", ".", ":!bench/results")
    return _git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def held_mib(what: str = "VmRSS", process: int | str = "self") -> float:
    """Return the MiB that a process holds now (`VmRSS`) or has held at most (`VmHWM`), by Linux."""
    # Not getrusage: its peak is inherited from the process that started this one.
    lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def told_by(*words: str, threads: int | None = None) -> dict[str, Any]:
    """Run a command and return the JSON object of its last line."""
    limits = {} if threads is None else dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS"), str(threads))
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **limits})
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told_by_child(module: str, *words: str, threads: int | None = None) -> dict[str, Any]:
    """Run a module of this folder in a process of its own."""
    return told_by(sys.executable, "-m", f"bench.{module}", *words, threads=threads)


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


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:  # a copy of the code on a machine without git
        return ""
    return done.stdout.strip()
