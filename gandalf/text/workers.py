"""A task run over many texts, chunk by chunk, in as many Pythons as there are cores.

The workers are plain sub-processes that speak through pipes. Unlike `multiprocessing` they never run the
caller's script again and never copy a process that holds threads, so a library may start them anywhere.
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

CHUNK = 8_192  # texts sent at once
MANY = 200_000  # texts; with fewer, one process is done (100,000 a second) before others have started

Result = TypeVar("Result")
Task = Callable[[Sequence[str]], Result]


def map_chunks(
    task: Task[Result], texts: Iterable[str], description: str, *, workers: int | None = None
) -> Iterator[Result]:
    """Yield `task(chunk)` for consecutive chunks of the texts, in order, holding few of them at a time.

    `workers` is the number of processes: 0 for this one alone, None for all cores where it pays. The task
    is sent to each of them once; where they cannot be started, or die, this process does the work.
    """
    total = length_hint(texts)
    chunks = _chunked(texts)
    with ExitStack() as stack, meter(description, total) as bar:
        crew = _crew(task, _number(workers, total), stack)
        results = _in_turn(crew, chunks, stack) if crew else ((len(chunk), task(chunk)) for chunk in chunks)
        for count, result in results:
            bar.advance(count)
            yield result


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _number(workers: int | None, total: int) -> int:
    if workers is not None:
        return workers
    return cores() if total >= MANY and cores() > 1 else 0


def _chunked(texts: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _crew(task: Task[Result], number: int, stack: ExitStack) -> list[_Worker[Result]]:
    """As many workers as can be started: none where the system allows none or the task cannot travel."""
    crew: list[_Worker[Result]] = []
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
        packed = pickle.dumps(task) if number else b""
        for _ in range(number):
            crew.append(stack.enter_context(_Worker(task, packed)))
    return crew


def _in_turn(
    crew: list[_Worker[Result]], chunks: Iterator[list[str]], stack: ExitStack
) -> Iterator[tuple[int, Result]]:
    """Results in the order of the chunks, a few chunks ahead of the one asked for."""
    idle: SimpleQueue[_Worker[Result]] = SimpleQueue()
    for worker in crew:
        idle.put(worker)

    def run(chunk: list[str]) -> tuple[int, Result]:
        worker = idle.get()
        try:
            return len(chunk), worker(chunk)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(len(crew))  # each waits on one pipe
    stack.callback(threads.shutdown, cancel_futures=True)
    ahead: deque[Future[tuple[int, Result]]] = deque()
    for chunk in chunks:
        ahead.append(threads.submit(run, chunk))
        if len(ahead) > 2 * len(crew):
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


class _Worker(Generic[Result]):
    """Another Python that runs the task on what it is sent; without it, the task runs here."""

    def __init__(self, task: Task[Result], packed: bytes) -> None:
        self._task = task
        self._packed: bytes | None = packed  # sent with the first chunk
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from gandalf.text.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Each worker is one core's worth: libraries in it must not start threads of their own.
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )

    def __call__(self, chunk: list[str]) -> Result:
        """The task's answer for the chunk, from the worker while it lives."""
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
        with suppress(OSError), self._process:  # which closes the pipes and waits
            pass


def serve() -> None:
    """Be a worker: read the task, then chunks, from standard input and answer on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer; it closes our input
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not mix with the answers
    try:
        task = pickle.load(requests)
        while True:
            pickle.dump(task(pickle.load(requests)), answers)
            answers.flush()
    except Exception:  # the end of the input, or an error that the parent meets again and reports
        return
