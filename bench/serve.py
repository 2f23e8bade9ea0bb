"""A served model under load on loopback: requests a second and latencies, exact and by an index.

    python -m bench.serve --labels 8000 79000 --seconds 10
    python -m bench.serve --model docs-model --data LF-DocsSeeAlsoTitles-79K --name serve_docs

Rows are made up: each label's row is the encoder's vector of its text, and a little of its own; or they are
those of a trained model, which is asked texts of the data's test split. Server and client share the machine,
so with two cores the client's own work is part of every figure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from uvloop import run  # a client that takes little of the cores it shares with the server

from bench.http_load import bodies, closed_loop, open_loop
from bench.machine import keep
from gandalf.data.load import load
from gandalf.model import Calibration, Model, load_network, save_model
from gandalf.nets.bag_of_words import BagOfWords
from gandalf.nets.encoders import build_encoder
from gandalf.nets.heads import Table
from gandalf.predict.codes import build_codes
from gandalf.predict.exact import top_k
from gandalf.predict.index import build_hnsw, recalled, row_blocks
from gandalf.text.words import Words, WordsOptions

ENCODER = {"kind": "bag-of-words", "dim": 300, "dropout": 0.0}
K = 10


def made_up_model(labels: int, seed: int = 0) -> Model:
    """A model of that many labels; words are drawn as words are, a few of them often."""
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(max(2_000, labels // 8))])
    chances = 1 / np.arange(10, len(words) + 10)
    drawn = rng.choice(words, (labels, 5), p=chances / chances.sum())
    texts = [" ".join(row) for row in drawn]
    tokens = Words.fit(texts[:200_000], WordsOptions(max_length=16, pieces=200))
    torch.manual_seed(seed)
    encoder = build_encoder(ENCODER, tokens.size)
    assert isinstance(encoder, BagOfWords)
    encoder.weigh(torch.from_numpy(tokens.idf()))
    head = Table(labels, encoder.dim)
    model = Model(
        tokens, encoder, head, texts, None, {"encoder": ENCODER, "system": "made up"}, Calibration()
    )
    with torch.no_grad():
        rows = torch.nn.functional.normalize(model.vectors(texts), dim=1)
        own = torch.nn.functional.normalize(torch.randn(rows.shape), dim=1)
        head.rows.copy_(8 * (rows + 0.5 * own) * torch.empty(labels, 1).uniform_(0.7, 1.3))
        head.bias.fill_(-6.0)
    return model


def _word(number: int) -> str:
    """Letters alone: a tokenizer cuts at digits."""
    found = ""
    for _ in range(5):
        number, letter = divmod(number, 26)
        found += chr(ord("a") + letter)
    return found


def queries(model: Model, number: int = 500) -> list[str]:
    """Texts that share most words with some label's."""
    rng = np.random.default_rng(1)
    picked = rng.choice(model.num_labels, number)
    return [" ".join(rng.permutation(model.label_texts[label].split())[:4]) for label in picked.tolist()]


@contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[str, int]]:
    """The command on a free port."""
    command = [
        sys.executable,
        "-m",
        "gandalf",
        "serve",
        str(folder),
        "--port",
        "0",
        "--device",
        "cpu",
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            for line in started.stdout:
                print(f"    {line.strip()}", flush=True)
                found = re.search(r"http://(\S+):(\d+)/", line)
                if found:
                    yield found.group(1), int(found.group(2))
                    break
        finally:
            started.terminate()


def under_load(folder: Path, index: str, asked: list[bytes], seconds: float, rate: float) -> dict[str, Any]:
    """One client, 32 clients, and an open loop."""
    with server(folder, "--index", index) as (host, port):
        run(closed_loop(host, port, asked, 4, 2.0))  # to warm up
        return {
            "1 client": run(closed_loop(host, port, asked, 1, seconds)).as_dict(),
            "32 clients": run(closed_loop(host, port, asked, 32, seconds)).as_dict(),
            f"open loop, {rate:g}/s": run(open_loop(host, port, asked, rate, seconds)).as_dict(),
        }


def in_process(model: Model, texts: list[str]) -> dict[str, Any]:
    """Search alone, without HTTP: milliseconds a query, alone and in batches of 64, and recall."""
    import faiss

    x = model.vectors(texts)
    exact = top_k(x, model.head, K)[0]
    index, codes = build_hnsw(model), build_codes(model)
    searches: dict[str, Callable[[torch.Tensor], np.ndarray[Any, Any]]] = {
        "exact": lambda some: top_k(some, model.head, K)[0],
        "hnsw": lambda some: index.over(model.head)(some, K)[0],
        "codes": lambda some: codes.over(model.head)(some, K)[0],
    }
    rows = np.concatenate(row_blocks(model.head))
    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(rows)
    searches["faiss flat"] = lambda some: flat.search(_with_one(some), K)[1]
    library = _hnswlib(rows)
    if library is not None:
        searches["hnswlib"] = lambda some: library.knn_query(_with_one(some), K)[0].astype(np.int64)
    return {name: _timed(search, x, exact) for name, search in searches.items()}


def _hnswlib(rows: np.ndarray[Any, Any]) -> Any:  # noqa: ANN401  compiled, and perhaps not there
    try:
        import hnswlib
    except ImportError:
        return None
    index = hnswlib.Index("ip", rows.shape[1])
    index.init_index(len(rows), ef_construction=200, M=16)
    index.add_items(rows)
    index.set_ef(256)
    return index


def _with_one(x: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.hstack([x.numpy(), np.ones((len(x), 1), dtype=np.float32)])


def _timed(
    search: Callable[[torch.Tensor], np.ndarray[Any, Any]], x: torch.Tensor, exact: np.ndarray[Any, Any]
) -> dict[str, Any]:
    search(x[:64])
    times = []
    for row in x[:200]:
        start = time.perf_counter()
        search(row[None])
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = np.concatenate([search(part) for part in torch.split(x, 64)])
    batched = (time.perf_counter() - start) / len(x)
    alone = (1e3 * np.percentile(times, [50, 99])).tolist()
    return {
        "p50_ms": round(alone[0], 3),
        "p99_ms": round(alone[1], 3),
        "batched_ms": round(1e3 * batched, 3),
        "recall@10": round(recalled(found, exact), 4),
    }


def asked_models(given: argparse.Namespace) -> Iterator[tuple[Model, list[str]]]:
    """Models and the texts that they are asked."""
    if given.model is None:
        for labels in given.labels:
            model = made_up_model(labels)
            yield model, queries(model)
        return
    test = load(given.data).test
    assert test is not None and test.texts is not None
    places = np.random.default_rng(1).choice(len(test), 500, replace=False).tolist()
    yield load_network(given.model), [test.texts[place] for place in places]


def main() -> None:
    """Measure every size, print as it goes and keep the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, nargs="+", default=[8_000, 79_000, 1_300_000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--name", default="serve")
    parser.add_argument("--model", type=Path, help="a trained one, in place of made-up rows")
    parser.add_argument("--data", help="whose test texts it is asked")
    given = parser.parse_args()
    results = []
    for model, texts in asked_models(given):
        print(f"{model.num_labels:,} labels", flush=True)
        row: dict[str, Any] = {"labels": model.num_labels, "dim": model.head.dim}
        row["search"] = in_process(model, texts)
        print(f"  search: {row['search']}", flush=True)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model"
            save_model(model, folder)
            del model
            for index in ("exact", "hnsw", "codes"):
                row[index] = under_load(folder, index, bodies(texts, K), given.seconds, given.rate)
                print(f"  {index}: {row[index]}", flush=True)
        results.append(row)
        print(keep(given.name, results))


if __name__ == "__main__":
    main()
