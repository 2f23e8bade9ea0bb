"""Search alone, without HTTP: exact, by our indexes, by faiss's flat index and by hnswlib, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gandalf.model import Model
from gandalf.model.exact import top_k
from gandalf.predict.codes import build_codes
from gandalf.predict.hnsw import WIDTHS
from gandalf.predict.hnsw_files import stored_or_built
from gandalf.predict.index import ENOUGH_RECALL, IndexSearch, recalled, row_blocks, with_one

K = 10
ALONE, TOGETHER = 200, 64  # queries timed one by one, and in one batch
GRAPHS_UP_TO = 200_000  # labels: with more, no graph of them is built

Array = np.ndarray[Any, Any]
Search = Callable[[torch.Tensor], Array]


def in_process(model: Model, folder: Path, texts: list[str]) -> dict[str, Any]:
    """Return milliseconds a query, alone and in batches, and recall of every search; keep graphs."""
    x = model.vectors(texts)
    exact = top_k(x, model.head, K)[0]
    found = {"exact": _timed(lambda some: top_k(some, model.head, K)[0], x, exact)}
    rows = np.concatenate(row_blocks(model.head))
    found["faiss flat"] = _timed(_flat(rows), x, exact)
    if model.num_labels <= GRAPHS_UP_TO:
        hnsw, _ = stored_or_built(model, folder, "float32")
        found["hnsw"] = {
            "width": hnsw.width,
            **_timed(lambda some: IndexSearch(hnsw, model.head)(some, K)[0], x, exact),
        }
        found |= _hnswlib(rows, folder, x, exact)
    del rows
    codes = build_codes(model)
    found["codes"] = {
        "scored_again": codes.depth,
        **_timed(lambda some: IndexSearch(codes, model.head)(some, K)[0], x, exact),
    }
    return found


def _flat(rows: Array) -> Search:
    import faiss

    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return lambda some: index.search(with_one(some.numpy()), K)[1]


def _hnswlib(rows: Array, folder: Path, x: torch.Tensor, exact: Array) -> dict[str, Any]:
    """Measure hnswlib with half our links, its default, as wide as the same recall asks for."""
    try:
        import hnswlib
    except ImportError:
        return {}
    index, path = hnswlib.Index("ip", rows.shape[1]), folder.with_name(f"{folder.name}.hnswlib")
    if path.exists():
        index.load_index(str(path), max_elements=len(rows))
    else:
        index.init_index(len(rows), ef_construction=200, M=16)
        index.add_items(rows)
        index.save_index(str(path))

    def search(some: torch.Tensor) -> Array:
        found: Array = index.knn_query(with_one(some.numpy()), K)[0].astype(np.int64)
        return found

    for width in WIDTHS:
        index.set_ef(width)
        if recalled(search(x), exact) >= ENOUGH_RECALL:
            break
    return {"hnswlib": {"width": width, **_timed(search, x, exact)}}


def _timed(search: Search, x: torch.Tensor, exact: Array) -> dict[str, Any]:
    search(x[:TOGETHER])
    times = []
    for row in x[:ALONE]:
        start = time.perf_counter()
        search(row[None])
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = np.concatenate([search(part) for part in torch.split(x, TOGETHER)])
    batched = (time.perf_counter() - start) / len(x)
    alone = (1e3 * np.percentile(times, [50, 99])).tolist()
    return {
        "p50_ms": round(alone[0], 3),
        "p99_ms": round(alone[1], 3),
        "batched_ms": round(1e3 * batched, 3),
        "recall@10": round(recalled(found, exact), 4),
    }
