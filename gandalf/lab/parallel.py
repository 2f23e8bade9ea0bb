"""Train several runs at once in worker processes, within a limit of time."""

from __future__ import annotations

import io
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import torch

from gandalf.errors import DataError
from gandalf.lab.store import Line, LineOrError
from gandalf.lab.variants import Run

PATIENCE = 10  # seconds that a process may take to end
Work = Callable[[Run], Line]


@dataclass
class Worker:
    """A process that does one run after another and keeps the data set in memory."""

    pipe: Connection
    process: Any
    run: Run | None = None
    started: float = 0.0

    @staticmethod
    def start(work: Work, threads: int) -> Worker:
        """Start a fresh process: a forked one could not use a GPU."""
        here, there = multiprocessing.Pipe()
        # Not a daemon, which could start no processes of its own; it ends when its pipe does.
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(there, work, threads))
        process.start()
        there.close()
        return Worker(here, process)

    def take(self, run: Run) -> None:
        """Begin a run."""
        self.run, self.started = run, time.monotonic()
        with suppress(OSError):  # if it is dead, that is found out where its answer is read
            self.pipe.send(run)

    def answer(self) -> LineOrError:
        """Wait for the line of the run, or for the reason of its failure."""
        try:
            return cast("LineOrError", self.pipe.recv())
        except (EOFError, OSError):
            self.process.join()
            return f"its process died ({self.process.exitcode}), perhaps for lack of memory"

    def end(self, *, at_once: bool = False) -> None:
        """End the process."""
        self.pipe.close()
        if at_once:
            self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def serve(pipe: Connection, work: Work, threads: int) -> None:
    """Do runs until the pipe closes or a run fails: after a failure a GPU may be in any state."""
    torch.set_num_threads(threads)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # for libraries that are loaded where they are used
        os.environ.setdefault(name, str(threads))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            run = pipe.recv()
            try:
                with redirect_stderr(io.StringIO()):  # bars of several processes would mix
                    line = work(run)
            except Exception as error:
                pipe.send(str(error) if isinstance(error, DataError) else traceback.format_exc())
                return
            pipe.send(line)


@dataclass
class Clock:
    """A limit of time, and the longest run of each kind so far."""

    limit: float
    began: float = field(default_factory=time.monotonic)
    longest: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Return the seconds left."""
        return self.limit - (time.monotonic() - self.began)

    def ended(self, worker: Worker) -> None:
        """Record how long the run of the worker took."""
        assert worker.run is not None
        kind = (worker.run.data, worker.run.system)
        self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - worker.started)

    def allows(self, run: Run) -> bool:
        """Return True if the run would end in time; an unknown kind counts as the longest of all."""
        others = max(self.longest.values(), default=0.0)
        return self.left > 1.2 * self.longest.get((run.data, run.system), others)


def in_turn(runs: Iterable[Run]) -> list[Run]:
    """Sort runs by data set, the data sets in the order of their first run."""
    runs = list(runs)
    place = {pair: n for n, pair in reversed(list(enumerate((run.data, run.split) for run in runs)))}
    return sorted(runs, key=lambda run: place[run.data, run.split])


def results(runs: list[Run], work: Work, jobs: int, clock: Clock) -> Iterator[tuple[Run, LineOrError]]:
    """Yield runs with their lines or failures as they end; start none that would end too late."""
    waiting, busy, idle = in_turn(runs), list[Worker](), list[Worker]()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    try:
        while waiting or busy:
            while len(busy) < jobs and (run := next(filter(clock.allows, waiting), None)) is not None:
                waiting.remove(run)
                worker = idle.pop() if idle else Worker.start(work, threads)
                worker.take(run)
                busy.append(worker)
            left = min(max(clock.left, 0.0), 1e6)
            ready = wait([worker.pipe for worker in busy], timeout=left) if busy else []
            if not ready:
                return  # nothing may be started any more, or the time is up for what runs
            for worker in [each for each in busy if each.pipe in ready]:
                busy.remove(worker)
                answer = worker.answer()
                assert worker.run is not None
                if isinstance(answer, str):
                    worker.end()
                else:
                    clock.ended(worker)
                    idle.append(worker)
                yield worker.run, answer
    finally:
        for worker in idle:
            worker.end()
        for worker in busy:
            worker.end(at_once=True)
