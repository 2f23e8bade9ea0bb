"""`gandalf serve`: serve a model by HTTP, with a page for people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from gandalf.cli.explain import TRAINED_ON, TrainedOn
from gandalf.cli.extras import needs_extra
from gandalf.cli.loading import Device, NoVerify, device_of
from gandalf.cli.options import Bundle, offers, panel
from gandalf.cli.output import console
from gandalf.cli.predict import ModelFolder
from gandalf.serve.limits import Limits

Baseline = Annotated[
    Path | None, typer.Option("--baseline", metavar="MODEL2", help="Another model; the page shows both.")
]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen at; by default only this machine can ask.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free port.")]
Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Worker processes; each holds the model in its memory.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File with a token; clients that send it may add labels."
    ),
]
Added = Annotated[
    Path | None,
    typer.Option(
        "--added", metavar="FILE", help="File for added labels. Default: MODEL.added.jsonl, beside MODEL."
    ),
]
Index = Annotated[
    Literal["exact", "hnsw", "codes"],
    typer.Option(
        "--index",
        help="Search of the best labels. exact: score all labels. codes, hnsw: faster with many labels, and "
        "miss a few. codes: up to some hundred thousand labels, made at each start. hnsw: millions, made "
        "once and kept in MODEL.",
    ),
]
Rows = Annotated[
    Literal["float32", "int8"],
    typer.Option("--rows", help="int8: rows in a quarter of the memory, nearly the same scores."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads", min=1, help="Predicting threads in each worker. Default: one core is left for HTTP."
    ),
]
_PROTECTION = "What clients may do"
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="Name by which clients reach the server, besides --host and loopback's; repeatable.",
        rich_help_panel=_PROTECTION,
    ),
]


def _limits(deadline: float, client_timeout: float, max_headers: int) -> Limits:
    return Limits(deadline=deadline, sending=client_timeout, head=max_headers)


_SECONDS = {"min": 0.1, "max": 3_600}
_SENDING_HELP = "Most seconds for a client to send headers, to send a body, or to read on."
_HEAD_HELP = "Most bytes of the path and the headers of a request."
LIMITS = Bundle(
    Limits,
    panel(
        _PROTECTION,
        deadline=(float, Limits.deadline, "Most seconds for an answer; after that a 503.", _SECONDS),
        client_timeout=(float, Limits.sending, _SENDING_HELP, _SECONDS),
        max_headers=(int, Limits.head, _HEAD_HELP, {"min": 1_024, "max": 1 << 20}),
    ),
    _limits,
)


@offers(TRAINED_ON, LIMITS)
def serve(
    model: ModelFolder,
    trained_on: TrainedOn,
    limits: Limits,
    baseline: Baseline = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 1,
    token_file: TokenFile = None,
    added: Added = None,
    index: Index = "exact",
    rows: Rows = "float32",
    threads: Threads = None,
    device: Device = "auto",
    allow_host: AllowHost = None,
    no_verify: NoVerify = False,
) -> None:
    """Serve a model: predictions and explanations by HTTP, and a page for people at the same address.

    With --data, explanations show the training points and the label graph. All paths are listed at /docs of
    the server; limits and operation: docs/guide/serving.md. Ctrl-C stops the server.

    $ gandalf serve my-model  # then open http://127.0.0.1:8000/
    $ gandalf serve my-model --data man --baseline other-model
    $ curl localhost:8000/predict --json '{"text": "compress a file"}'
    """
    with needs_extra("serving", extra="serve"):
        from gandalf.serve.run import ServeSettings
        from gandalf.serve.run import serve as run
    source = trained_on.source
    table = {} if source is None else asdict(source.options)
    settings = ServeSettings(
        model=str(model),
        baseline=_plain(baseline),
        data=None if source is None else source.data,
        table={name: _plain(value) for name, value in table.items()},
        token_file=_plain(token_file),
        added=_plain(added),
        device=device_of(device),
        verify=not no_verify,
        index=index,
        rows=rows,
        workers=workers,
        threads=threads,
        hosts=[host, *(allow_host or ())],
        limits=asdict(limits),
    )
    run(settings, host, port, _tell)


def _plain(value: object) -> str | None:
    """Return a path as text, since workers receive the settings as JSON."""
    return None if value is None else str(value)


def _tell(sentence: str) -> None:
    out = console()
    out.print(escape(sentence), soft_wrap=True)
    out.file.flush()
