"""Run a task over many texts, chunk by chunk, in several Python processes.

The workers are sub-processes connected by pipes. Unlike `multiprocessing`, they neither run the caller's
script again nor fork a process with threads, so a library can start them anywhere.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from operator import length_hint
from queue import SimpleQueue
from typing import Generic, TypeVar

from gandalf.progress import meter

CHUNK = 8_192  # texts in one message
MANY = 200_000  # with fewer texts, one process (100,000 texts a second) ends before others have started

Result = TypeVar("Result")
Task = Callable[[Sequence[str]], Result]


def map_chunks(
    task: Task[Result], texts: Iterable[str], description: str, *, workers: int | None = None
) -> Iterator[Result]:
    """Yield `task(chunk)` for consecutive chunks of the texts, in order, with few chunks in memory.

    `workers` is the number of processes: 0 for this process alone, None for all cores if the texts are many.
    The task is sent to each worker once. If workers cannot be started, or die, this process does their work.
    """
    total = length_hint(texts)
    chunks = _chunked(texts)
    with ExitStack() as stack, meter(description, total) as bar:
        crew = _start_workers(task, _worker_count(workers, total), stack)
        results = (
            _results_in_order(crew, chunks, stack)
            if crew
            else ((len(chunk), task(chunk)) for chunk in chunks)
        )
        for count, result in results:
            bar.advance(count)
            yield result


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _worker_count(workers: int | None, total: int) -> int:
    if workers is not None:
        return workers
    return cores() if total >= MANY and cores() > 1 else 0


def _chunked(texts: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _start_workers(task: Task[Result], number: int, stack: ExitStack) -> list[_Worker[Result]]:
    """Start up to `number` workers: fewer if the system refuses, none if the task cannot be pickled."""
    crew: list[_Worker[Result]] = []
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
        packed = pickle.dumps(task) if number else b""
        for _ in range(number):
            crew.append(stack.enter_context(_Worker(task, packed)))
    return crew


def _results_in_order(
    crew: list[_Worker[Result]], chunks: Iterator[list[str]], stack: ExitStack
) -> Iterator[tuple[int, Result]]:
    """Yield the results in the order of the chunks; compute a few chunks ahead."""
    idle: SimpleQueue[_Worker[Result]] = SimpleQueue()
    for worker in crew:
        idle.put(worker)

    def run(chunk: list[str]) -> tuple[int, Result]:
        worker = idle.get()
        try:
            return len(chunk), worker(chunk)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(len(crew))  # each thread waits for one pipe
    stack.callback(threads.shutdown, cancel_futures=True)
    ahead: deque[Future[tuple[int, Result]]] = deque()
    for chunk in chunks:
        ahead.append(threads.submit(run, chunk))
        if len(ahead) > 2 * len(crew):
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


class _Worker(Generic[Result]):
    """A Python process that runs the task on chunks; if it dies, the task runs in this process."""

    def __init__(self, task: Task[Result], packed: bytes) -> None:
        self._task = task
        self._packed: bytes | None = packed  # sent with the first chunk
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from gandalf.text.workers import run_worker; run_worker()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # There is a worker for each core, so libraries in a worker must not start threads.
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )

    def __call__(self, chunk: list[str]) -> Result:
        """Return the result for the chunk, from the worker if it is alive."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        try:
            if self._packed is not None:
                requests.write(self._packed)
                self._packed = None
            pickle.dump(chunk, requests)
            requests.flush()
            answer: Result = pickle.load(answers)
            return answer
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            return self._task(chunk)

    def __enter__(self) -> _Worker[Result]:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError), self._process:  # closes the pipes and waits
            pass


def run_worker() -> None:
    """Run as a worker: read the task, then chunks, from standard input; write results to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent closes the input
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other prints must not mix with the results
    try:
        task = pickle.load(requests)
        while True:
            pickle.dump(task(pickle.load(requests)), answers)
            answers.flush()
    except Exception:  # the end of the input, or an error that the parent gets again and reports
        return
