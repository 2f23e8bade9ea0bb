"""Batch concurrent requests: all requests that arrive during one batch form the next batch."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from gandalf.serve.limits import BusyError, UnavailableError

Question = TypeVar("Question")
Answered = TypeVar("Answered")

BROKEN = "the prediction broke off; ask again in a moment"

log = logging.getLogger("uvicorn.error")


@dataclass(eq=False)
class _Waiting(Generic[Question, Answered]):
    question: Question
    size: int
    future: asyncio.Future[Answered]


class Batcher(Generic[Question, Answered]):
    """Answers questions in the order of arrival, many at once, in a thread of its own.

    No question waits for a batch to fill: a single question is answered at once. If something other than an
    `Exception` is raised, such as a panic of a Rust library, the thread ends and another thread takes over.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], Sequence[Answered]],
        *,
        batch_size: int,
        queue_size: int,
        on_batch: Callable[[int], None] = lambda size: None,
        on_start: Callable[[], None] = lambda: None,  # called once in each thread
        drain: float = 5.0,  # seconds that a thread has to finish at the end
    ) -> None:
        self._answer, self._batch_size, self._queue_size = answer, batch_size, queue_size
        self._on_batch, self._on_start, self._drain = on_batch, on_start, drain
        self._queue: deque[_Waiting[Question, Answered]] = deque()
        self._in_progress: list[_Waiting[Question, Answered]] = []
        self._wake: SimpleQueue[bool] = SimpleQueue()  # wakes the thread: True: a question came; False: stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Total sizes of questions that came and that were taken. Each number is changed by one thread only.
        self._asked_size, self._taken_size = 0, 0

    @property
    def waiting(self) -> int:
        """Return the total size of the questions in the queue."""
        return self._asked_size - self._taken_size

    async def ask(self, question: Question, size: int = 1) -> Answered:
        """Return the answer; raise `BusyError` at once if the queue is full."""
        waiting = self.waiting
        if waiting and waiting + size > self._queue_size:
            raise BusyError
        one: _Waiting[Question, Answered] = _Waiting(
            question, size, asyncio.get_running_loop().create_future()
        )
        self._asked_size += size
        self._queue.append(one)
        self._wake.put(True)
        return await one.future

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer questions while the block runs; enter it in the event loop of the questions."""
        self._loop = asyncio.get_running_loop()
        self._start()
        try:
            yield
        finally:
            self._wake.put(False)
            joined: threading.Thread | None = None
            while self._thread is not None and joined is not self._thread:  # a broken thread is replaced
                joined = self._thread
                joined.join(self._drain)

    def _start(self) -> None:
        # A daemon, so that a thread that hangs does not keep the process alive.
        thread = threading.Thread(target=self._work, name="predict", daemon=True)
        thread.start()
        self._thread = thread

    def _work(self) -> None:
        begun = False
        try:
            while True:
                while batch := self._take_batch():
                    self._in_progress = batch
                    if not begun:  # here, so that an error in it answers the questions of this batch
                        self._on_start()
                        begun = True
                    self._answer_batch(batch)
                if not self._wake.get():
                    return
        except BaseException:  # clients wait for an answer, whatever was raised
            log.exception("the thread that predicts broke off; another one takes its place")
            for one in self._in_progress:
                self._in_loop(_set_error, one, UnavailableError(BROKEN))
            self._start()

    def _take_batch(self) -> list[_Waiting[Question, Answered]]:
        """Take the next questions that fit into a batch; drop abandoned questions."""
        batch: list[_Waiting[Question, Answered]] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= self._batch_size):
            one = self._queue.popleft()
            self._taken_size += one.size
            if not one.future.done():
                batch.append(one)
                size += one.size
        return batch

    def _answer_batch(self, batch: list[_Waiting[Question, Answered]]) -> None:
        """Answer a batch; after an error, answer its questions one by one."""
        try:
            self._on_batch(sum(one.size for one in batch))
            answers = self._answer([one.question for one in batch])
        except Exception as error:
            if len(batch) == 1:
                self._in_loop(_set_error, batch[0], error)
                return
            for one in batch:  # one bad question must not fail the others
                self._answer_batch([one])
            return
        self._in_loop(_set_answers, batch, answers)

    def _in_loop(self, call: Callable[..., None], *given: Any) -> None:  # noqa: ANN401  passed on unchanged
        assert self._loop is not None
        with suppress(RuntimeError):  # the event loop has ended, so no client waits
            self._loop.call_soon_threadsafe(call, *given)


def _set_answers(batch: Sequence[_Waiting[Any, Answered]], answers: Sequence[Answered]) -> None:
    for one, answer in zip(batch, answers, strict=True):
        if not one.future.done():
            one.future.set_result(answer)


def _set_error(one: _Waiting[Any, Any], error: Exception) -> None:
    if not one.future.done():
        one.future.set_exception(error)
