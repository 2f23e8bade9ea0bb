"""Time one query of a model with a memory against the same model without, and the recall of its neighbours.

    taskset -c 0 python -m bench.memory_speed docs

The model is `astec` at its start: a query takes as long after training. Keys are all training points and all
label texts. Labels are searched by four-bit codes, as a server with `--index codes` does; so are keys.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array, vstack

from bench.default_sets import open_default_set
from bench.engine import SHARED
from bench.machine import keep
from gandalf import Splits
from gandalf.memory.keys import DenseKeys, keys_of
from gandalf.memory.memory import LABEL, POINT, Block, Memory, Record
from gandalf.metrics.predictions import test_points
from gandalf.model import Model, ModelWithMemory
from gandalf.model.with_memory import as_queries
from gandalf.predict.codes import build_codes
from gandalf.predict.predictor import Predictor
from gandalf.runs.run import train
from gandalf.settings import override
from gandalf.systems import recipe

QUERIES, K, WARM, EXACT = 1_000, 5, 20, 200  # asked, labels, asked before; queries that recall is taken from


def remembering(model: Model, splits: Splits) -> ModelWithMemory:
    """Return the model with keys of all training points and label texts."""
    points, labels = splits.train.need_texts("measuring a memory")
    vectors = as_queries(model.unit_vectors([*points, *labels]))
    values = vstack([splits.train.targets, eye_array(len(labels))], format="csr").astype(np.float32)
    records = tuple(
        Record(text, kind) for texts, kind in ((points, POINT), (labels, LABEL)) for text in texts
    )
    return ModelWithMemory(model, Memory((Block(keys_of(vectors), csr_array(values), records),)), 0.2)


def timed(predictor: Predictor, texts: list[str]) -> dict[str, float]:
    """Return percentiles of milliseconds for one text at a time."""
    took = []
    for text in [*texts[:WARM], *texts]:
        began = time.perf_counter()
        predictor.predict(text, K)
        took.append(1000 * (time.perf_counter() - began))
    return {f"ms_p{share}": round(float(np.percentile(took[WARM:], share)), 3) for share in (50, 95, 99)}


def recall(keys: DenseKeys, queries: Any, number: int) -> float:  # noqa: ANN401  an array of any kind
    """Return the share of the nearest keys by the 8-bit codes that the four-bit codes find."""
    found, _ = keys.nearest(queries, number)
    exact, _ = keys._by_all(queries, number)
    return float(np.mean([len(np.intersect1d(*each)) / number for each in zip(found, exact, strict=True)]))


def main() -> int:
    """Print and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", nargs="?", default="docs")
    parser.add_argument("--data-root", type=Path, default=SHARED)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    splits = open_default_set(chosen.set, chosen.data_root)
    asked = override(recipe("astec"), ["training.steps=0", "memory.kind=fitted", "targets.targets=none"])
    model = train(Splits(train=splits.train, name=splits.name), asked).model
    assert isinstance(model, Model)
    texts = list(test_points(splits).need_texts("measuring a memory")[0][:QUERIES])
    index = build_codes(model)
    both = remembering(model, splits)
    keys = both.memory.blocks[0].keys
    assert isinstance(keys, DenseKeys)
    found: dict[str, Any] = {"set": chosen.set, "labels": model.num_labels, "keys": len(keys)}
    for name, part in (("model", model), ("model and memory", both)):
        predictor = Predictor(part, search=index.over(Predictor(part).network.head))
        found[name] = timed(predictor, texts)
    found["recall"] = recall(keys, as_queries(model.unit_vectors(texts[:EXACT])), 50)
    found["key_mb"] = round((keys.codes.nbytes + keys.scales.nbytes) / 1e6, 1)
    print(found)
    keep(f"memory_speed_{chosen.set}", found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
