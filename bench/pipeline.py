"""The data half from end to end on a synthetic set of the paper's largest shape: seconds and peak memory.

python -m bench.pipeline --shape 1.3M
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import gandalf
from bench.command import argument_parser
from bench.machine import held_mib, keep
from gandalf.data.synthetic import PAPER_SHAPES

Result = TypeVar("Result")


def main() -> None:
    """Run every step once, print a line for each and keep the figures."""
    parser = argument_parser(__doc__)
    parser.add_argument("--shape", choices=list(PAPER_SHAPES), default="1.3M")
    shape = parser.parse_args().shape
    points, labels, per_point, words = PAPER_SHAPES[shape]
    rows: list[dict[str, Any]] = []

    def step(name: str, work: Callable[[], Result]) -> Result:
        start = time.perf_counter()
        result = work()
        row = {
            "step": name,
            "seconds": round(time.perf_counter() - start, 1),
            "peak_mb": round(held_mib("VmHWM")),
        }
        print(f"{name:22} {row['seconds']:7.1f} s   peak so far {row['peak_mb']:6,} MB", flush=True)
        rows.append(row)
        return result

    made = step(
        "draw", lambda: gandalf.synthetic(points, labels, labels_per_point=per_point, words_per_point=words)
    )
    splits = made.splits
    step("diagnose", lambda: gandalf.diagnose(splits.train))
    step("graph, ratio", lambda: gandalf.label_graph(splits.train))
    options = gandalf.GraphOptions("calibrated")
    graph = step("graph, calibrated", lambda: gandalf.label_graph(splits.train, options))
    train = step("augment", lambda: gandalf.augment(splits.train, graph.matrix))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "out"
        step("write, raw layout", lambda: gandalf.export(replace(splits, train=train), folder, "raw"))
        again = step("read, raw layout", lambda: gandalf.load(folder))
    size = {"points": len(again.train), "labels": labels, "targets": int(again.train.targets.nnz)}
    print(keep(f"pipeline_{shape}", {**size, "steps": rows}))


if __name__ == "__main__":
    main()
