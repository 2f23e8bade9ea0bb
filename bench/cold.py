"""Cold starts: processor seconds of a command, the least of several runs.

    python -m bench.cold MODEL [MODEL ...]

Beside each `gandalf predict MODEL "text"` stands the same by `load_model` and `Predictor`, with PyTorch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.command import argument_parser
from bench.machine import keep

TEXT = "compress a file"
BY_TORCH = (
    "import sys, gandalf; gandalf.Predictor(gandalf.load_model(sys.argv[1])).named(sys.argv[2])  # by PyTorch"
)


def seconds(words: list[str]) -> float:
    """Return the processor seconds of a command and of all that it starts."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def measured(name: str, words: list[str], runs: int) -> dict[str, Any]:
    """Measure a command; return its row of the table."""
    row = {"command": name, "processor_seconds": round(min(seconds(words) for _ in range(runs)), 2)}
    print(row, flush=True)
    return row


def main() -> None:
    """Run, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    command = [sys.executable, "-m", "gandalf"]
    rows = [measured("--help", [*command, "--help"], chosen.runs)]
    for model in chosen.models:
        name = f"{model.parent.name}/{model.name}"
        words = [*command, "predict", str(model), TEXT]
        rows.append(measured(f"predict {name}", words, chosen.runs))
        by_torch = [sys.executable, "-c", BY_TORCH, str(model), TEXT]
        rows.append(measured(f"Predictor of {name}", by_torch, chosen.runs))
    print(keep("cold", {"runs": chosen.runs, "load_average": os.getloadavg(), "rows": rows}))


if __name__ == "__main__":
    main()
