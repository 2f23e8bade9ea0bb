"""Connect to a running Dask cluster, or start one on this machine."""

from __future__ import annotations

import logging
import os
import platform
import re
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import resource_tracker
from operator import add
from typing import Any

import dask
from distributed import CancelledError, Client, Future, KilledWorker, LocalCluster, as_completed
from distributed.comm import CommClosedError

from gandalf.errors import DataError
from gandalf.progress import track, without_bars

LOCAL = "local"
WAIT = 20.0  # seconds to wait for a scheduler's answer, and for a worker
FAN_IN = 8  # partial sums that one task adds up
PACKAGES = ("gandalf-xmc", "numpy", "scipy", "dask", "distributed")

_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+")
_SETTINGS = {
    # A data set that one machine has read is part of the task graph, so that tasks survive the loss of a
    # worker.
    "distributed.admin.large-graph-warning-threshold": "1 TB",
}


@contextmanager
def connected(address: str, *, wait: float = WAIT, workers: int | None = None) -> Iterator[Client]:
    """Yield a client of the scheduler at `address`; for "local", start a worker for each core of this
    machine.

    Unfinished tasks are cancelled at the end of the body.
    """
    if address != LOCAL and not _ADDRESS.fullmatch(address):
        raise DataError(
            f"{address!r} is not the address of a Dask scheduler", remedy="write tcp://HOST:8786, or local"
        )
    with (
        dask.config.set(_SETTINGS),
        _without_interrupt_traceback(),
        _local(workers) if address == LOCAL else _remote(address, wait) as client,
    ):
        _need_workers(client, address, wait)
        need_same_versions(client, versions())
        try:
            yield client
        except KilledWorker as error:
            raise DataError(
                "several workers died at the same task, most likely because of too little memory",
                remedy="give each worker more memory, or cut the data into smaller shards",
            ) from error
        except (CancelledError, CommClosedError) as error:
            remedy = "start the cluster again, and then the command"
            raise DataError(f"the Dask cluster was lost ({error})", remedy=remedy) from error


def threads_of(client: Client) -> int:
    """Return the number of tasks that the cluster can run at once."""
    threads: int = sum(client.nthreads().values())
    return max(1, threads)


def submit(client: Client, function: Callable[..., Any], *arguments: Any) -> Future:  # noqa: ANN401  any task
    """Submit a task under a unique name, without progress bars."""
    # By default Dask names a task by a hash of its arguments, which is slow for large arguments.
    return client.submit(_run_without_bars, function, *arguments, pure=False)


def tree_sum(client: Client, parts: Sequence[Future]) -> Future:
    """Sum the parts in a tree of fixed shape, so that the order of additions is always the same."""
    parts = list(parts)
    while len(parts) > 1:
        groups = [parts[at : at + FAN_IN] for at in range(0, len(parts), FAN_IN)]
        parts = [submit(client, sum_parts, group) for group in groups]
    return parts[0]


def sum_parts(parts: Sequence[Any]) -> Any:  # noqa: ANN401  whatever can be added
    """Add the parts from the first to the last."""
    return reduce(add, parts)


def identity(value: Any) -> Any:  # noqa: ANN401
    """Return the value. As the result of a task, it is sent to the cluster once and can be recomputed."""
    return value


def results_in_order(futures: Iterable[Future], window: int) -> Iterator[Any]:
    """Yield the results in the order of the futures; keep at most `window` futures submitted at once."""
    waiting: deque[Future] = deque()
    for future in futures:
        waiting.append(future)
        if len(waiting) >= window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def results(client: Client, futures: Sequence[Future], description: str) -> list[Any]:
    """Return all results, with a progress bar; the first failed task raises its error."""
    for future in track(as_completed(futures), description, len(futures)):
        future.result()
    found: list[Any] = client.gather(list(futures))
    return found


def versions() -> dict[str, str]:
    """Return the versions that client and workers must share."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a copy of the code that was never installed
            found[name] = "unknown"
    return found


def _run_without_bars(function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    with without_bars():
        return function(*arguments)


@contextmanager
def _local(workers: int | None) -> Iterator[Client]:
    with tempfile.TemporaryDirectory(prefix="gandalf-dask-", ignore_cleanup_errors=True) as scratch:
        with _delayed_interrupts():
            cluster = LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # any free port, since the default port may be taken
                scheduler_kwargs={"dashboard": False},
                worker_dashboard_address=None,
                local_directory=scratch,
                silence_logs=logging.CRITICAL,
            )
        with cluster, Client(cluster) as client:
            yield client


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for the NameError of a call that was interrupted before it began."""
    kind, error, _ = record.exc_info or (None, None, None)
    return not (kind is NameError and "'future'" in str(error))


@contextmanager
def _without_interrupt_traceback() -> Iterator[None]:
    """Suppress Dask's traceback about a call that was interrupted before it began.

    On an interrupt, `distributed.utils.sync` cancels a future that may not be defined yet. The call ends
    anyway.
    """
    log = logging.getLogger("tornado.application")
    log.addFilter(_is_worth_logging)
    try:
        yield
    finally:
        log.removeFilter(_is_worth_logging)


@contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Delay an interrupt until the end of the body; threads and processes that the body starts never get one.

    A terminal interrupts all processes of a command at once, but the command itself must stop its workers.
    """
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    resource_tracker.ensure_running()  # first, because it unblocks interrupts in the thread that starts it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _remote(address: str, wait: float) -> Iterator[Client]:
    try:
        client = Client(address, timeout=wait)
    except (OSError, ValueError) as error:
        raise DataError(
            f"no Dask scheduler answers at {address} within {wait:g} s",
            remedy="start one with dask scheduler, or use --cluster local",
        ) from error
    with client:
        yield client


def _need_workers(client: Client, address: str, wait: float) -> None:
    try:
        client.wait_for_workers(1, timeout=wait)
    except TimeoutError as error:
        remedy = f"start some with dask worker {address}"
        raise DataError(f"the scheduler at {address} has no workers", remedy=remedy) from error


def need_same_versions(client: Client, expected: Mapping[str, str]) -> None:
    """Raise a DataError if a worker has other versions than this process; its results might differ."""
    remedy = "install the same versions of gandalf-xmc[cluster] everywhere"
    try:
        found = client.run(versions)
    except ImportError as error:
        raise DataError(f"a worker cannot import gandalf ({error})", remedy=remedy) from error
    for worker, theirs in found.items():
        for name, here in expected.items():
            if theirs.get(name) != here:
                what = f"worker {worker} has {name} {theirs.get(name)}, but this process has {here}"
                raise DataError(what, remedy=remedy)
