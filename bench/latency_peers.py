"""Single queries to omikuji and to PECOS's real-time mode, by an interpreter that has them; stands alone.

python latency_peers.py omikuji MODEL DATA QUERIES
python latency_peers.py pecos MODEL DATA QUERIES

A query is a row of features that are there already: what it takes to make them of a text is not counted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

K, WARM = 5, 20


def omikuji_queries(model: str, data: str, number: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the model's call and queries to it."""
    import omikuji

    forest = omikuji.Model.load(model)
    queries = []
    with open(f"{data}/test.txt", encoding="utf-8") as file:
        next(file)
        for _, line in zip(range(number), file, strict=False):
            pairs = (pair.partition(":") for pair in line.partition(" ")[2].split())
            queries.append([(int(column), float(value)) for column, _, value in pairs])
    return lambda pairs: forest.predict(pairs, top_k=K), queries


def pecos_queries(model: str, data: str, number: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """Return the call of the real-time mode and queries to it."""
    from pecos.utils import smat_util
    from pecos.xmc.xlinear.model import XLinearModel

    trees = XLinearModel.load(model, is_predict_only=True)
    features = smat_util.load_matrix(f"{data}/X.tst.npz").astype("float32")[:number]
    return lambda row: trees.predict(row, only_topk=K, threads=1), [features[at] for at in range(number)]


def main() -> None:
    """Time each query and print it all."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    which, model, data, number = sys.argv[1:]
    start = time.perf_counter()
    ask, queries = {"omikuji": omikuji_queries, "pecos": pecos_queries}[which](model, data, int(number))
    loaded = time.perf_counter() - start
    for query in queries[:WARM]:
        ask(query)
    times = []
    for query in queries:
        start = time.perf_counter()
        ask(query)
        times.append(1000 * (time.perf_counter() - start))
    print(json.dumps({"load_seconds": loaded, "ms": times}))


if __name__ == "__main__":
    main()
