"""Add a million examples to a served model's memory: seconds, bytes against the forecast, and a query's time.

    python -m bench.memory_examples man --examples 1000000

Examples are texts of the training points with a number behind each, so that no two are the same. They are
added a thousand at a time, as a client that loads a table over HTTP does; then a few one by one. A query is
asked after each tenth, and the slowest of three is shown: a scan that must be built anew counts.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from bench.command import argument_parser
from bench.default_sets import open_default_set
from bench.machine import DATA_ROOT, held_mib, keep
from bench.memory_speed import memory_bytes
from bench.training import trained
from gandalf.data.new_examples import Example
from gandalf.model import ModelWithMemory
from gandalf.model.examples import with_examples, without_example
from gandalf.model.known_labels import KnownLabels
from gandalf.predict.predictor import Predictor

BATCH, SINGLE = 1_000, 20


def main() -> None:
    """Print and keep the figures."""
    parser = argument_parser(__doc__)
    parser.add_argument("set", nargs="?", default="man")
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    splits = open_default_set(chosen.set, chosen.data_root)
    model = trained(splits, "astec", "training.steps=1", "targets.targets=none")
    known, texts = KnownLabels(model), splits.train.need_texts("adding examples")[0]
    before, rows = held_mib() * 2**20 / 1e6, []
    step = max(chosen.examples // 10, BATCH)
    for first in range(0, chosen.examples, BATCH):
        some = [
            Example(f"{texts[at % len(texts)]} {at}", [at % model.num_labels], id=str(at))
            for at in range(first, first + BATCH)
        ]
        began = time.perf_counter()
        model = with_examples(model, some, known)
        took = time.perf_counter() - began
        if (first + BATCH) % step == 0:
            assert isinstance(model, ModelWithMemory)
            rows.append(
                {
                    "examples": first + BATCH,
                    "batch_ms": round(1000 * took, 1),
                    "query_ms": _slowest(model, texts[:3]),
                    "mb": round(held_mib() * 2**20 / 1e6 - before),
                    "forecast_mb": round(memory_bytes(model.memory) / 1e6),
                    "blocks": len(model.memory.groups),
                }
            )
            print(rows[-1], flush=True)
    began = time.perf_counter()
    for at in range(SINGLE):
        model = with_examples(model, [Example(f"{texts[at]} once more", [at], id=f"one {at}")], known)
    single = (time.perf_counter() - began) / SINGLE
    began = time.perf_counter()
    model = without_example(model, "one 3")
    young = time.perf_counter() - began
    began = time.perf_counter()
    model = without_example(model, "0")
    old = time.perf_counter() - began
    found = {
        "rows": rows,
        "one_ms": round(1000 * single, 2),
        "remove_young_ms": round(1000 * young, 2),
        "remove_old_ms": round(1000 * old, 2),
        "query_after_ms": _slowest(model, texts[:3]),
    }
    print({name: value for name, value in found.items() if name != "rows"})
    keep(f"memory_examples_{chosen.set}", found)


def _slowest(model: ModelWithMemory, texts: list[str]) -> float:
    predictor, took = Predictor(model), []
    for text in texts:
        began = time.perf_counter()
        predictor.predict(text, 5)
        took.append(time.perf_counter() - began)
    return round(1000 * max(took), 1)


if __name__ == "__main__":
    main()
