"""A served model under load on loopback: requests a second and latencies, exact and by an index.

    python -m bench.serve --labels 8000 79000 --seconds 10
    python -m bench.serve --model docs-model --data LF-DocsSeeAlsoTitles-79K --name serve_docs

Rows are made up: each label's row is the encoder's vector of its text, and a little of its own; or they are
those of a trained model, which is asked texts of the data's test split. Server and client share the machine,
so with two cores the client's own work is part of every figure; how much it is, is kept too.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.command import argument_parser
from bench.http_load import Load, bodies, closed_loop, open_loop
from bench.machine import keep
from bench.made_up import made_up_model, queries
from bench.serve_search import GRAPHS_UP_TO, K, in_process
from gandalf.data.load import load
from gandalf.model import load_network, save_model

ANSWERED = {"200", "503"}  # statuses of a load: predicted, or turned away because too many ask


@contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[str, int, int]]:
    """Start the command on a free port; yield host, port and process."""
    serve = ["serve", str(folder), "--port", "0", "--device", "cpu"]
    command = [sys.executable, "-m", "gandalf", *serve, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            for line in started.stdout:
                print(f"    {line.strip()}", flush=True)
                found = re.search(r"http://(\S+):(\d+)/", line)
                if found:
                    yield found.group(1), int(found.group(2)), started.pid
                    break
        finally:
            started.terminate()


def under_load(folder: Path, index: str, asked: list[bytes], given: argparse.Namespace) -> dict[str, Any]:
    """Put a server under the load of one client, of 32 clients, and of an open loop."""
    seconds, rate = given.seconds, given.rate
    threads = [] if given.threads is None else ["--threads", str(given.threads)]
    with server(folder, "--index", index, *threads) as (host, port, process):
        closed_loop(host, port, asked, 4, 2.0)  # to warm up
        loads: dict[str, Callable[[], Load]] = {
            "1 client": lambda: closed_loop(host, port, asked, 1, seconds),
            "32 clients": lambda: closed_loop(host, port, asked, 32, seconds),
            f"open loop, {rate:g}/s": lambda: open_loop(host, port, asked, rate, seconds),
        }
        found = {name: with_processor(load, process) for name, load in loads.items()}
    if any(set(each["statuses"]) - ANSWERED for each in found.values()):
        raise ValueError(f"the server refused requests, so nothing was measured: {found}")
    return found


def with_processor(load: Callable[[], Load], process: int) -> dict[str, Any]:
    """Put a server under a load; return the figures and the server's processor time of a request."""
    before = _processor(process)
    found = load()
    used = _processor(process) - before
    return found.as_dict() | {"server_processor_ms": round(1e3 * used / max(1, len(found.latencies)), 3)}


def _processor(process: int) -> float:
    """Return the processor seconds of a process so far, by Linux."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def asked_models(given: argparse.Namespace, kept: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders of models, and the texts that each is asked."""
    if given.model is not None:
        test = load(given.data).test
        assert test is not None and test.texts is not None
        places = np.random.default_rng(1).choice(len(test), 500, replace=False).tolist()
        yield given.model, [test.texts[place] for place in places]
        return
    for labels in given.labels:
        folder = kept / f"made_{labels}"
        if not folder.exists():
            save_model(made_up_model(labels), folder)
        yield folder, queries(load_network(folder))


def measured(folder: Path, texts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Measure one model: search alone, and a server of it by every search under load."""
    model = load_network(folder)
    print(f"{model.num_labels:,} labels", flush=True)
    row: dict[str, Any] = {
        "labels": model.num_labels,
        "dim": model.head.dim,
        "load_before": os.getloadavg()[0],  # of the machine, by whatever else it does
        "threads": given.threads,
    }
    if given.index is None:
        row["search"] = in_process(model, folder, texts)
        print(f"  search: {row['search']}", flush=True)
    all_indexes = ("exact", "hnsw", "codes") if model.num_labels <= GRAPHS_UP_TO else ("exact", "codes")
    del model
    for index in given.index or all_indexes:
        row[index] = under_load(folder, index, bodies(texts, K), given)
        print(f"  {index}: {row[index]}", flush=True)
    return row


def main() -> None:
    """Measure every size, print as it goes and keep the figures."""
    parser = argument_parser(__doc__)
    parser.add_argument("--labels", type=int, nargs="+", default=[8_000, 79_000, 1_300_000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--name", default="serve")
    parser.add_argument("--model", type=Path, help="a trained one, in place of made-up rows")
    parser.add_argument("--data", help="whose test texts it is asked")
    parser.add_argument("--index", nargs="+", help="served by these alone, and no search without a server")
    parser.add_argument("--threads", type=int, help="that predict; by default the server's default")
    parser.add_argument("--folder", type=Path, help="where made-up models are kept for another time")
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        for folder, texts in asked_models(given, given.folder or Path(name)):
            results.append(measured(folder, texts, given))
            print(keep(given.name, results))


if __name__ == "__main__":
    main()
