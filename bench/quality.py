"""Time to quality: `gandalf train` from files to a model folder, in its own process, and what it reaches.

python -m bench.quality LF-DocsSeeAlsoTitles-79K --epochs 30 15 10 8 6 --head-kernel triton

The longest run says what there is to be reached; the others, how much of it they have and after how long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.command import argument_parser
from bench.machine import RESULTS, machine
from gandalf.lab.store import append

Line = dict[str, Any]


def trained(data: str, epochs: float, options: list[str]) -> Line:
    """Return seconds of wall clock, those of them in training, and figures of the test split."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "model"
        command = ["-m", "gandalf", "train", data, str(out), "--epochs", str(epochs), *options]
        start = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - start
        found = json.loads((out / "metrics.json").read_text())
    return {
        **{"data": Path(data).name, "epochs": epochs, "options": options},
        **{"wall": wall, "training": found["training"]["seconds"], "steps": found["training"]["steps"]},
        **{name: found[name] for name in ("P@1", "P@5", "PSP@5")},
        "new text": found["new_text"]["P@1"],
    }


def main() -> None:
    """Train, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("data", help="a data set")
    parser.add_argument("--epochs", type=float, nargs="+", default=[30, 15, 10, 8, 6])
    parser.add_argument("--system", default="inceptionxml")
    parser.add_argument("--targets", default="calibrated")
    parser.add_argument("--out", type=Path, default=RESULTS / "quality.jsonl")
    parser.add_argument("--commit", help="of the code, where git cannot tell")
    chosen, others = parser.parse_known_args()
    about = machine(chosen.commit)
    options = ["--system", chosen.system, "--targets", chosen.targets, "--validation", "0", *others]
    for epochs in chosen.epochs:
        line = trained(chosen.data, epochs, options)
        print(" ".join(f"{name} {line[name]:.2f}" for name in ("epochs", "wall", "training", "P@1", "PSP@5")))
        append(chosen.out, {**line, "machine": about})


if __name__ == "__main__":
    main()
