"""Training on a CPU with rows moved by the compiled loop and without it, in turn, in one run.

    python -m bench.train_cpu DATA --steps 200

Seconds are processor time of the thread that trains, of the steps alone; the loss is that of the last step.
Without the loop, rows go back to their table by PyTorch's `index_copy_`, as they did before it.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.command import argument_parser
from bench.machine import keep
from gandalf import Splits, load, train
from gandalf.nets.label_text import LabelIds
from gandalf.train import encoder_update, head_update, loop, row_kernel, row_optimisers
from gandalf.train.workspace import put_back

NEVER = 1 << 62
PUTTING = (head_update, encoder_update, row_optimisers)  # modules that put rows back


def _index_copy(table: Tensor, labels: LabelIds, rows: Tensor) -> None:
    if not isinstance(labels, slice):
        table.index_copy_(0, labels, rows)


def timed(splits: Splits, system: str, steps: int, compiled: bool) -> dict[str, Any]:
    """Train for some steps, and return milliseconds of a step and the loss."""
    large, step = row_kernel.LARGE, loop.Training._train_batch
    times: list[float] = []
    losses: list[float] = []

    def watched(self: loop.Training, *given: Any, **named: Any) -> None:  # noqa: ANN401  the step's own
        start = time.thread_time()
        step(self, *given, **named)
        times.append(time.thread_time() - start)
        losses.append(self.loss)

    row_kernel.LARGE = large if compiled else NEVER
    for module in PUTTING:
        module.put_back = put_back if compiled else _index_copy  # type: ignore[attr-defined]
    loop.Training._train_batch = watched  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as place:
            train(splits, system, "validation.share=0", steps=steps, out=Path(place) / "model")
    finally:
        row_kernel.LARGE, loop.Training._train_batch = large, step  # type: ignore[method-assign]
        for module in PUTTING:
            module.put_back = put_back  # type: ignore[attr-defined]
    warm = sorted(times[len(times) // 10 :])
    mean = 1e3 * sum(warm) / len(warm)
    return {"compiled": compiled, "ms_a_step": round(mean, 2), "loss": losses[-1]}


def main() -> None:
    """Train in turn, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("data")
    parser.add_argument("--system", default="astec")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    splits = load(chosen.data)
    only = Splits(train=splits.train, name=splits.name)
    rows = []
    for _ in range(chosen.rounds):
        for compiled in (False, True):
            rows.append(timed(only, chosen.system, chosen.steps, compiled))
            print(rows[-1], flush=True)
    best = {way: min(row["ms_a_step"] for row in rows if row["compiled"] is way) for way in (False, True)}
    about = {"system": chosen.system, "steps": chosen.steps, "threads": torch.get_num_threads()}
    ratio = round(best[False] / best[True], 2)
    about |= {"load_average": os.getloadavg(), "ratio": ratio}
    print(keep(f"train_cpu_{splits.name}", {**about, "rows": rows}), ratio)


if __name__ == "__main__":
    main()
