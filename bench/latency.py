"""Single queries on one core: ours against omikuji and PECOS's real-time mode; and the size of the models.

    python -m bench.latency ../shared/data/LF-DocsSeeAlsoTitles-79K --venvs .peers

Others are asked for a row of features, ours for a text: theirs is the shorter way. How long a query takes
does not depend on how long a model has learnt, so ours is trained for a few updates only. Others are trained
with our calibrated label points.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.machine import keep
from gandalf import Predictor, Splits, export, load, load_model, train
from gandalf.peers import PEERS, POINTS, SOFT, interpreter, measured, script

QUERIES, K, WARM = 1_000, 5, 20
THEIRS = str(Path(__file__).with_name("latency_peers.py"))


def summary(name: str, told: dict[str, Any], model: Path) -> dict[str, Any]:
    """One line of the table."""
    size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    at = {f"ms_p{share}": round(float(np.percentile(told["ms"], share)), 3) for share in (50, 95, 99)}
    return {
        "model": name,
        **at,
        "load_seconds": round(told["load_seconds"], 2),
        "model_mb": round(size / 1e6, 1),
    }


def theirs(name: str, python: str, splits: Splits, place: Path) -> dict[str, Any]:
    """Another trainer's model, asked by its own interpreter."""
    trainer = PEERS[name]
    points = SOFT[trainer.soft](POINTS["D + calibrated"](splits.train), 0)
    data, model, out = (place / f"{name}-{part}" for part in ("data", "model", "predictions.npz"))
    export(replace(splits, train=points), data, trainer.format)
    measured([python, str(script(trainer)), str(data), str(model), str(out)], os.cpu_count() or 1)
    words = [python, THEIRS, name, str(model), str(data), str(QUERIES)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True, env=one_core()).stdout
    return summary(name, json.loads(printed.splitlines()[-1]), model)


def ours(system: str, splits: Splits, place: Path, settings: list[str]) -> dict[str, Any]:
    """A model of ours, asked in a process of its own."""
    model = place / f"{system}-model"
    train(Splits(train=splits.train, name=splits.name), system, *settings, out=model)
    assert splits.test is not None
    texts = place / "texts.json"
    texts.write_text(json.dumps(list((splits.test.texts or [])[:QUERIES])), "utf-8")
    words = [sys.executable, "-m", "bench.latency", "ask", str(model), "--texts", str(texts)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True, env=one_core()).stdout
    return summary(f"gandalf {system}", json.loads(printed.splitlines()[-1]), model)


def one_core() -> dict[str, str]:
    """An environment in which libraries start one thread."""
    return {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "1")}


def ask(model: str, texts: list[str]) -> dict[str, Any]:
    """Time each query."""
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start = time.perf_counter()
    predictor = Predictor(load_model(model))
    loaded = time.perf_counter() - start
    for text in texts[:WARM]:
        predictor.predict(text, K)
    times = []
    for text in texts:
        start = time.perf_counter()
        predictor.predict(text, K)
        times.append(1000 * (time.perf_counter() - start))
    return {"load_seconds": loaded, "ms": times}


def main() -> None:
    """Train, ask, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a data set; or `ask`, and a model")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--venvs", type=Path)
    parser.add_argument("--shared", action="store_true", help="note that other work shared the machine")
    chosen = parser.parse_args()
    if chosen.data == "ask":
        print(json.dumps(ask(chosen.model, json.loads(chosen.texts.read_text("utf-8")))))
        return
    splits, rows = load(chosen.data), []
    with tempfile.TemporaryDirectory() as name:
        for peer in ("omikuji", "pecos"):
            python = interpreter(peer, PEERS[peer], chosen.venvs)
            if python is not None:
                rows.append(theirs(peer, python, splits, Path(name)))
                print(rows[-1], flush=True)
        for system, settings in (("parabel", []), ("astec", ["steps=20"])):
            rows.append(ours(system, splits, Path(name), ["validation.share=0", *settings]))
            print(rows[-1], flush=True)
    print(keep(f"latency_{splits.name}", {"queries": QUERIES, "machine_shared": chosen.shared, "rows": rows}))


if __name__ == "__main__":
    main()
