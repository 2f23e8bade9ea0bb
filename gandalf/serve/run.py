"""Start a server from its settings: in one process, or in several that share a port."""

from __future__ import annotations

import gc
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import uvicorn
from fastapi import FastAPI

from gandalf.data.dataset import Splits
from gandalf.data.formats.table_options import TableOptions
from gandalf.data.load import load
from gandalf.errors import DataError
from gandalf.model import Part, load_model
from gandalf.model.load import need_network
from gandalf.model.with_memory import networks, without_memory
from gandalf.nets.blocks import drop_parametrizations
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.predict.codes import Codes, build_codes
from gandalf.predict.hnsw import Hnsw
from gandalf.predict.hnsw_files import stored_or_built
from gandalf.predict.index import RECALL_AT, IndexSearch, RowsKind
from gandalf.predict.predictor import Predictor
from gandalf.runs.graph import background_of
from gandalf.serve.api import ServerOptions
from gandalf.serve.app import create_app
from gandalf.serve.connection import Connection
from gandalf.serve.journal import Journal
from gandalf.serve.limits import Limits
from gandalf.serve.metrics import FOLDER
from gandalf.serve.service import MakePredictor, Served, Service
from gandalf.serve.sockets import bound_socket, call_when_open, listen, url_of

IndexKind = Literal["exact", "hnsw", "codes"]

SETTINGS = "GANDALF_SERVE"  # environment variable that passes the settings to worker processes
FACTORY = "gandalf.serve.run:app_of_worker"
LEAST_TOKEN = 16  # fewest characters of a token
DRAIN = 30  # seconds that requests have to finish when the server stops
SWITCH = 5e-4  # seconds between thread switches; with Python's 5e-3 the predicting thread blocks HTTP


@dataclass(frozen=True)
class ServeSettings:
    """The settings of a server, as plain values that can be passed to a worker process."""

    model: str
    baseline: str | None = None
    data: str | None = None
    table: dict[str, Any] = field(default_factory=dict)  # the TableOptions of the training data
    token_file: str | None = None
    added: str | None = None  # the journal of added labels; by default beside the model
    device: str = "cpu"
    verify: bool = True  # compare the files of a model with their hashes
    index: IndexKind = "exact"
    rows: RowsKind = "float32"
    workers: int = 1
    threads: int | None = None  # predicting threads in each worker
    hosts: list[str] = field(default_factory=list)  # host names besides those of loopback
    limits: dict[str, Any] = field(default_factory=dict)  # limits that differ from the defaults


def build_app(settings: ServeSettings, tell: Callable[[str], None] = lambda sentence: None) -> FastAPI:
    """Load models, data and journal, and make the application."""
    sys.setswitchinterval(SWITCH)
    token = None if settings.token_file is None else read_token(Path(settings.token_file), tell)
    splits = None if settings.data is None else load(settings.data, options=TableOptions(**settings.table))
    served, make = _served(settings.model, settings, splits, tell)
    baseline = None if settings.baseline is None else _served(settings.baseline, settings, splits, tell)[0]
    journal = _journal(settings, served.model, tell)
    service = Service(served, baseline, journal, make)
    options = ServerOptions(
        served.name,
        token,
        Limits(**settings.limits),
        tuple(settings.hosts),
        settings.threads or _default_threads(settings),
    )
    return create_app(service, options)


def _default_threads(settings: ServeSettings) -> int:
    """Return the predicting threads of a worker: all its cores but one, which is left for HTTP.

    With an index it is one thread, since an index reads too few rows for more.
    """
    return 1 if settings.index != "exact" else max(1, (os.cpu_count() or 1) // settings.workers - 1)


def _served(
    folder: str, settings: ServeSettings, splits: Splits | None, tell: Callable[[str], None]
) -> tuple[Served, MakePredictor]:
    """Load a model for serving; return it with the function that makes a predictor after labels are added."""
    model = load_model(folder, settings.device, verify=settings.verify)
    for network in networks(model):
        drop_parametrizations(network.encoder)
    make: MakePredictor = Predictor
    index, new = _index(settings.index, model, Path(folder), settings.rows)
    for network in networks(model) if settings.rows == "int8" else ():
        if isinstance(network.head, Table):
            network.head = Int8Table.of(network.head)
    if index is not None:
        tell(_about_index(folder, index, new))
        make = partial(_searched, index=index)
    else:
        make = partial(Predictor, rounded=Predictor(model).prepare())
    background = None if splits is None else background_of(model, splits)
    return Served(make(model), background, Path(folder).resolve().name), make


def _index(kind: IndexKind, model: Part, folder: Path, rows: RowsKind) -> tuple[Hnsw | Codes | None, bool]:
    """Return the index of the model, or None for exact search, and True if the index is new."""
    if kind == "exact":
        return None, False
    network = need_network(
        without_memory(model), folder, "an index needs the rows of a single network", "leave --index out"
    )
    return stored_or_built(network, folder, rows) if kind == "hnsw" else (build_codes(network, rows), True)


def _searched(model: Part, index: Hnsw | Codes) -> Predictor:
    """Return a predictor that searches by the index; the model may have more labels than the index."""
    return Predictor(model, search=IndexSearch(index, Predictor(model).network.head))


def _about_index(folder: str, index: Hnsw | Codes, new: bool) -> str:
    done = "built" if new else "read"
    what = f"recall@{RECALL_AT} {index.recall:.3f} against exact search on {index.queries:,} label texts"
    return f"{folder}: {index}, {done}; {what}"


def _journal(settings: ServeSettings, model: Part, tell: Callable[[str], None]) -> Journal | None:
    """Open the journal; without a token, an existing journal is served and nothing can be added."""
    path = _journal_path(settings)
    if settings.token_file is None and not path.exists():
        return None
    if path.exists():
        tell(f"{path}: the labels that were added before are served too")
    return Journal(path, model)


def _journal_path(settings: ServeSettings) -> Path:
    if settings.added is not None:
        return Path(settings.added)
    model = Path(settings.model).resolve()
    return model.with_name(f"{model.name}.added.jsonl")


def read_token(path: Path, tell: Callable[[str], None]) -> str:
    """Return the token, the only word of a file; warn if all users can read the file."""
    try:
        mode = path.stat().st_mode
        lines = path.read_text("ascii").split()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise DataError(f"no token can be read ({reason})", remedy="write one into it", file=path) from error
    if len(lines) != 1 or len(lines[0]) < LEAST_TOKEN:
        what = f"does not hold one word of at least {LEAST_TOKEN} characters"
        raise DataError(what, remedy="for example: (umask 077; openssl rand -hex 16 > token)", file=path)
    if os.name == "posix" and mode & stat.S_IROTH:
        tell(f"warning: {path}: everybody on this machine can read the token; chmod 600 {path}")
    return lines[0]


def app_of_worker() -> FastAPI:
    """Return the application of a worker process, from the settings in its environment."""
    app = build_app(ServeSettings(**json.loads(os.environ[SETTINGS])))
    _freeze_garbage()
    return app


def _freeze_garbage() -> None:
    """Exclude all present objects from garbage collection, which would pause the server."""
    gc.collect()
    gc.freeze()


def serve(settings: ServeSettings, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serve until the process is stopped; requests in progress are answered first."""
    # The socket comes first, so that a taken address is an error before anything is loaded.
    with bound_socket(host, port) as listening:
        app = build_app(settings, tell)  # also with workers, so that an error is told once, here
        where, port = f"serving at {url_of(listening)}; Ctrl-C ends it", listening.getsockname()[1]
        if settings.workers == 1:
            _freeze_garbage()
            listen(listening)
            tell(where)
            uvicorn.Server(uvicorn.Config(app, **_uvicorn_options(settings))).run(sockets=[listening])
            return
    del app
    gc.collect()  # frees the model: each worker loads its own
    call_when_open(host, port, lambda: tell(where))
    with tempfile.TemporaryDirectory(prefix="gandalf-metrics-") as folder:
        os.environ |= {SETTINGS: json.dumps(asdict(settings)), FOLDER: folder}
        uvicorn.run(
            FACTORY,
            factory=True,
            host=host,
            port=port,
            workers=settings.workers,
            **_uvicorn_options(settings),
        )


def _uvicorn_options(settings: ServeSettings) -> dict[str, Any]:
    return {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "http": partial(Connection, limits=Limits(**settings.limits)),
        "ws": "none",
        "timeout_graceful_shutdown": DRAIN,
    }
