"""Single queries on one core: ours against omikuji and PECOS's real-time mode; and the size of the models.

    python -m bench.latency DATA --venvs .peers --models OUT --only-train
    taskset -c 0 python -m bench.latency DATA --venvs .peers --models OUT

Others are asked for a row of features, ours for a text: theirs is the shorter way. Others are trained with
our calibrated label points; ours for four epochs: a query does not take longer after more of them, though an
index finds its way in trained rows only. Models that are in the folder already are not trained again.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser
from bench.machine import keep, told_by, told_by_child
from gandalf import Predictor, Splits, export, load, load_model, train
from gandalf.lab.peers import PEERS, POINTS, SOFT, interpreter, measured, script

QUERIES, K, WARM = 1_000, 5, 20
THEIRS = str(Path(__file__).with_name("latency_peers.py"))
PEERS_ASKED = ("omikuji", "pecos")
OURS_ASKED = {"parabel": ("exact",), "astec": ("exact", "codes", "hnsw")}  # by which search
SETTINGS = {"parabel": ("validation.share=0",), "astec": ("training.epochs=4",)}
INDEX_FILES = ("index.json", "index.safetensors")  # of hnsw, beside the model


# ---- models


def train_theirs(name: str, python: str, splits: Splits, place: Path) -> None:
    """Train another trainer's model, and keep the features that it is asked for."""
    trainer = PEERS[name]
    data, model = place / f"{name}-data", place / f"{name}-model"
    if model.exists():
        return
    points = SOFT[trainer.soft](POINTS["D + calibrated"](splits.train), 0)
    export(replace(splits, train=points), data, trainer.format, overwrite=True)
    words = [python, str(script(trainer)), str(data), str(model), str(place / f"{name}.npz")]
    measured(words, os.cpu_count() or 1)


def train_ours(system: str, splits: Splits, place: Path) -> None:
    """Train a model of ours."""
    model = place / f"{system}-model"
    if not model.exists():
        train(Splits(train=splits.train, name=splits.name), system, *SETTINGS[system], out=model)


# ---- queries


def summary(name: str, told: dict[str, Any], model: Path, *, indexed: bool = False) -> dict[str, Any]:
    """Return a row of the table."""
    files = [file for file in model.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files if indexed or file.name not in INDEX_FILES)
    at = {"ms_least": round(min(told["ms"]), 3)}
    at |= {f"ms_p{share}": round(float(np.percentile(told["ms"], share)), 3) for share in (50, 95, 99)}
    return {
        "model": name,
        **at,
        "load_seconds": round(told["load_seconds"], 2),
        "model_mb": round(size / 1e6, 1),
    }


def theirs(name: str, python: str, place: Path) -> dict[str, Any]:
    """Ask another trainer's model by its own interpreter."""
    data, model = place / f"{name}-data", place / f"{name}-model"
    told = told_by(python, THEIRS, name, str(model), str(data), str(QUERIES), threads=1)
    return summary(name, told, model)


def ours(system: str, search: str, texts: Path, place: Path) -> dict[str, Any]:
    """Ask a model of ours in a process of its own."""
    model = place / f"{system}-model"
    words = ("ask", str(model), "--texts", str(texts), "--search", search)
    told = told_by_child("latency", *words, threads=1)
    name = f"gandalf {system}" + f", {search}" * (len(OURS_ASKED[system]) > 1)
    found = summary(name, told, model, indexed=search == "hnsw")
    return found | {name: told[name] for name in ("recall@10", "search") if name in told}


def predictor_of(folder: str, search: str) -> Predictor:
    """Return the model as it is served."""
    from gandalf.model import Model
    from gandalf.predict.codes import build_codes
    from gandalf.predict.hnsw_files import stored_or_built
    from gandalf.predict.index import IndexSearch

    model = load_model(folder)
    if search == "exact" or not isinstance(model, Model):
        predictor = Predictor(model)
        predictor.prepare()
        return predictor
    made = build_codes(model) if search == "codes" else stored_or_built(model, Path(folder), "float32")[0]
    return Predictor(model, search=IndexSearch(made, model.head))


def ask(model: str, texts: list[str], search: str) -> dict[str, Any]:
    """Time each query."""
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    predictor = predictor_of(model, search)
    loaded = time.perf_counter() - start
    for text in texts[:WARM]:
        predictor.predict(text, K)
    times = []
    for text in texts:
        start = time.perf_counter()
        predictor.predict(text, K)
        times.append(1000 * (time.perf_counter() - start))
    return {"load_seconds": loaded, "ms": times, **recall_of(predictor, texts)}


def recall_of(predictor: Predictor, texts: list[str]) -> dict[str, Any]:
    """Return a search that may miss labels and its recall against exact search; nothing for exact search."""
    from gandalf.model.exact import top_k
    from gandalf.predict.index import RECALL_AT, IndexSearch, recalled

    search = predictor.search
    if not isinstance(search, IndexSearch):
        return {}
    x = predictor.network.vectors(texts)
    recall = recalled(search(x, RECALL_AT)[0], top_k(x, predictor.network.head, RECALL_AT)[0])
    return {"search": str(search.index), f"recall@{RECALL_AT}": round(recall, 4)}


# ---- the command


def rows_of(
    splits: Splits, place: Path, peers: dict[str, str], without: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield a row of the table for each model and each way to search it."""
    texts = place / "texts.json"
    asked = [] if splits.test is None or splits.test.texts is None else splits.test.texts[:QUERIES]
    texts.write_text(json.dumps(list(asked)), "utf-8")
    for name, python in peers.items():
        yield theirs(name, python, place)
    for system, searches in OURS_ASKED.items():
        for search in (each for each in searches if each not in without):
            yield ours(system, search, texts, place)


def main() -> None:
    """Train, ask, print, keep."""
    parser = argument_parser(__doc__)
    parser.add_argument("data", help="a data set; or `ask`, and a model")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--search", default="exact", choices=("exact", "codes", "hnsw"))
    parser.add_argument("--venvs", type=Path)
    parser.add_argument("--models", type=Path, help="keep models here, and take those that are there")
    parser.add_argument("--without", nargs="*", default=[], help="searches that are not timed")
    parser.add_argument("--only-train", action="store_true")
    parser.add_argument("--shared", action="store_true", help="note that other work shared the machine")
    chosen = parser.parse_args()
    if chosen.data == "ask":
        print(json.dumps(ask(chosen.model, json.loads(chosen.texts.read_text("utf-8")), chosen.search)))
        return
    splits = load(chosen.data)
    found = {name: interpreter(name, PEERS[name], chosen.venvs) for name in PEERS_ASKED}
    peers = {name: python for name, python in found.items() if python is not None}
    with tempfile.TemporaryDirectory() as name:
        place = chosen.models or Path(name)
        place.mkdir(parents=True, exist_ok=True)
        for peer, python in peers.items():
            train_theirs(peer, python, splits, place)
        for system in OURS_ASKED:
            train_ours(system, splits, place)
        if chosen.only_train:
            return
        about = {"queries": QUERIES, "machine_shared": chosen.shared, "load_average": os.getloadavg()}
        rows = []
        for row in rows_of(splits, place, peers, chosen.without):
            rows.append(row)
            print(row, flush=True)
    name = f"latency_{splits.name}" + "_shared" * chosen.shared
    print(keep(name, {**about, "rows": rows}))


if __name__ == "__main__":
    main()
