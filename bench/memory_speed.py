"""Time a model with a memory against the same model without one: one query, and a server under load.

    taskset -c 0 python -m bench.memory_speed docs            # one query in this process
    python -m bench.memory_speed docs --clients             # and a server: 1 client, 32, 200 requests/s
    python -m bench.memory_speed made --labels 1300000 --points 2200000 --clients

The model of a data set is `astec` at its start: a query takes as long after training. `made` has rows and
texts that are made up, as in `bench.serve`. Keys are all training points and all label texts. Labels are
searched by four-bit codes, as a server with `--index codes` does; so are keys.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array, vstack

from bench.command import argument_parser
from bench.default_sets import open_default_set
from bench.http_load import bodies
from bench.machine import DATA_ROOT, keep
from bench.made_up import made_up_model
from bench.serve import under_load
from bench.training import trained
from gandalf.memory.keys import SCANNED, DenseKeys
from gandalf.memory.memory import LABEL, POINT, EntryGroup, Memory, Record
from gandalf.metrics.predictions import need_test_points
from gandalf.model import Model, ModelWithMemory, save_model
from gandalf.model.with_memory import as_queries
from gandalf.predict.codes import build_codes
from gandalf.predict.index import IndexSearch
from gandalf.predict.predictor import Predictor

RECORD_BYTES = 340  # of a record, its two strings and its entry in the table of ids, without characters
MADE = "made"
QUERIES, K, WARM, EXACT = 1_000, 5, 20, 200  # asked, labels, asked before; queries that recall is taken from
CHUNK = 1 << 16  # texts that become keys at once
WORDS = 4  # of a made-up point: so many of its label's


def remembering(model: Model, points: Sequence[str], targets: csr_array) -> ModelWithMemory:
    """Return the model with keys of all points and label texts."""
    labels = list(model.label_texts)
    texts, keys = [*points, *labels], list[DenseKeys]()
    for first in range(0, len(texts), CHUNK):  # all vectors at once would take four times their codes
        vectors = as_queries(model.unit_vectors(texts[first : first + CHUNK]))
        assert isinstance(vectors, np.ndarray)
        keys.append(DenseKeys.of(vectors))
    whole = DenseKeys(
        *(np.concatenate(each) for each in zip(*((k.codes, k.scales) for k in keys), strict=True))
    )
    values = vstack([targets, eye_array(len(labels))], format="csr").astype(np.float32)
    records = [Record(text, POINT) for text in points] + [Record(text, LABEL) for text in labels]
    group = EntryGroup(whole, csr_array(values), tuple(records))
    return ModelWithMemory(model, Memory((group,)), weight=0.2)


def of_data(name: str, root: Path) -> tuple[ModelWithMemory, list[str]]:
    """Return an untrained model that remembers the data's training points, and texts to ask."""
    splits = open_default_set(name, root)
    model = trained(splits, "astec", "training.steps=0", "memory.kind=fitted", "targets.targets=none")
    assert isinstance(model, Model)
    texts, _ = splits.train.need_texts("measuring a memory")
    test, _ = need_test_points(splits).need_texts("measuring a memory")
    return remembering(model, texts, splits.train.targets), list(test[:QUERIES])


def made_up(labels: int, points: int) -> tuple[ModelWithMemory, list[str]]:
    """Return a made-up model that remembers made-up points of one label each, and texts to ask."""
    model, rng = made_up_model(labels), np.random.default_rng(2)
    picked = rng.choice(labels, points + QUERIES)
    words = [model.label_texts[label].split() for label in picked.tolist()]
    texts = [" ".join(rng.permutation(each)[:WORDS]) for each in words]
    ends = np.arange(points + 1)
    targets = csr_array((np.ones(points, dtype=np.float32), picked[:points], ends), shape=(points, labels))
    return remembering(model, texts[:points], targets), texts[points:]


def timed(predictors: dict[str, Predictor], texts: list[str]) -> dict[str, dict[str, float]]:
    """Return percentiles of milliseconds for one text at a time, and processor milliseconds on average.

    The predictors take turns, so that other work on the machine slows all of them alike.
    """
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in predictors}
    for text in [*texts[:WARM], *texts]:
        for name, predictor in predictors.items():
            began, spent = time.perf_counter(), time.process_time()
            predictor.predict(text, K)
            took[name].append((time.perf_counter() - began, time.process_time() - spent))
    found = {}
    for name, each in took.items():
        by_clock, by_processor = 1000 * np.array(each[WARM:]).T
        shares = {f"ms_p{share}": float(np.percentile(by_clock, share)) for share in (50, 95, 99)}
        found[name] = {key: round(ms, 3) for key, ms in (shares | {"cpu_ms": by_processor.mean()}).items()}
    return found


def recall(keys: DenseKeys, queries: Any, number: int) -> float:  # noqa: ANN401  an array of any kind
    """Return the share of the nearest keys by the 8-bit codes that the four-bit codes find."""
    found, _ = keys.nearest(queries, number)
    step = max(1, (1 << 27) // len(keys))  # cosines of all keys at once
    exact = [keys._search_all(queries[at : at + step], number)[0] for at in range(0, len(queries), step)]
    pairs = zip(found, np.concatenate(exact), strict=True)
    return float(np.mean([len(np.intersect1d(*each)) / number for each in pairs]))


def memory_bytes(memory: Memory) -> int:
    """Return the approximate bytes of keys, their copies for a search, values and records."""
    total = 0
    for group in memory.groups:
        keys, values = group.keys, group.values
        if isinstance(keys, DenseKeys):
            dim = int(keys.codes.shape[1])
            total += len(keys) * (dim + 4 + (dim // 4 if len(keys) >= SCANNED else 4 * dim))
        else:
            rows = keys.rows
            total += 2 * (rows.data.nbytes + rows.indices.nbytes) + rows.indptr.nbytes
        total += values.data.nbytes + values.indices.nbytes + values.indptr.nbytes
        total += sum(len(record.text) + len(record.id or "") + RECORD_BYTES for record in group.records)
    return total


def in_process(both: ModelWithMemory, texts: list[str]) -> dict[str, Any]:
    """Time one query at a time without and with the memory, in turn, and measure bytes and recall."""
    model = both.model
    assert isinstance(model, Model)
    index, keys = build_codes(model), both.memory.groups[0].keys
    assert isinstance(keys, DenseKeys)
    found: dict[str, Any] = {"labels": model.num_labels, "keys": len(keys)}
    search = IndexSearch(index, Predictor(model).network.head)
    parts = {"model": model, "model and memory": both}
    found |= timed({name: Predictor(part, search=search) for name, part in parts.items()}, texts)
    found["recall"] = recall(keys, as_queries(model.unit_vectors(texts[:EXACT])), 50)
    found["memory_mb"] = round(memory_bytes(both.memory) / 1e6, 1)
    return found


def served(both: ModelWithMemory, texts: list[str], load: argparse.Namespace) -> dict[str, Any]:
    """Put servers of the model without and with the memory under load."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for title, part in (("model", both.model), ("model and memory", both)):
            folder = Path(name) / title.replace(" ", "_")
            save_model(part, folder)
            found[title] = under_load(folder, "codes", bodies(texts, K), load)
            print(title, found[title], flush=True)
    return found


def main() -> None:
    """Print and keep the figures."""
    parser = argument_parser(__doc__)
    parser.add_argument("set", nargs="?", default="docs", help="a development set, or `made`")
    parser.add_argument("--labels", type=int, default=79_000)
    parser.add_argument("--points", type=int, default=109_000)
    parser.add_argument("--clients", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--data-root", type=Path, default=DATA_ROOT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.set == MADE:
        both, texts = made_up(chosen.labels, chosen.points)
    else:
        both, texts = of_data(chosen.set, chosen.data_root)
    found: dict[str, Any] = {"set": chosen.set, **in_process(both, texts)}
    print(found, flush=True)
    if chosen.clients:
        found["served"] = served(both, texts, chosen)
    keep(f"memory_speed_{chosen.set}", found)


if __name__ == "__main__":
    main()
