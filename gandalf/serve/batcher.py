"""Concurrent requests become batches: whatever has come while one batch was computed is the next one."""

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
    """Answers questions in the order they come, many at once, in one thread of its own.

    Nobody waits for a batch to fill: a question that comes alone is answered alone, at once. What is no
    `Exception`, such as a panic of a library written in Rust, ends the thread; another one takes its place.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], Sequence[Answered]],
        *,
        most: int,
        waiting: int,
        seen: Callable[[int], None] = lambda size: None,
        begin: Callable[[], None] = lambda: None,  # called once in each thread
        drain: float = 5.0,  # seconds that a thread has at the end
    ) -> None:
        self._answer, self._most, self._room, self._seen, self._begin = answer, most, waiting, seen, begin
        self._drain = drain
        self._queue: deque[_Waiting[Question, Answered]] = deque()
        self._under_way: list[_Waiting[Question, Answered]] = []
        self._bell: SimpleQueue[bool] = SimpleQueue()  # wakes the thread: there is something, or no more
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Sizes of all that came and of all that was taken: each is changed in one thread alone.
        self._came, self._went = 0, 0

    @property
    def waiting(self) -> int:
        """The sizes of all that is in the queue."""
        return self._came - self._went

    async def ask(self, question: Question, size: int = 1) -> Answered:
        """Return the answer, or raise `BusyError` at once if the queue is full."""
        waiting = self.waiting
        if waiting and waiting + size > self._room:
            raise BusyError
        one: _Waiting[Question, Answered] = _Waiting(
            question, size, asyncio.get_running_loop().create_future()
        )
        self._came += size
        self._queue.append(one)
        self._bell.put(True)
        return await one.future

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer for as long as the block lasts; to be entered in the event loop that asks."""
        self._loop = asyncio.get_running_loop()
        self._start()
        try:
            yield
        finally:
            self._bell.put(False)
            joined: threading.Thread | None = None
            while self._thread is not None and joined is not self._thread:  # it may have been replaced
                joined = self._thread
                joined.join(self._drain)

    def _start(self) -> None:
        # As a daemon: a thread that hangs does not keep the process from ending.
        thread = threading.Thread(target=self._work, name="predict", daemon=True)
        thread.start()
        self._thread = thread

    def _work(self) -> None:
        begun = False
        try:
            while True:
                while batch := self._taken():
                    self._under_way = batch
                    if not begun:  # here, since what fails here fails somebody's question
                        self._begin()
                        begun = True
                    self._settle(batch)
                if not self._bell.get():
                    return
        except BaseException:  # whatever it is, somebody waits for an answer
            log.exception("the thread that predicts broke off; another one takes its place")
            for one in self._under_way:
                self._in_loop(_fail, one, UnavailableError(BROKEN))
            self._start()

    def _taken(self) -> list[_Waiting[Question, Answered]]:
        """As many as fit into a batch, without those that nobody waits for any more."""
        batch: list[_Waiting[Question, Answered]] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= self._most):
            one = self._queue.popleft()
            self._went += one.size
            if not one.future.done():
                batch.append(one)
                size += one.size
        return batch

    def _settle(self, batch: list[_Waiting[Question, Answered]]) -> None:
        try:
            self._seen(sum(one.size for one in batch))
            answers = self._answer([one.question for one in batch])
        except Exception as error:
            if len(batch) == 1:
                self._in_loop(_fail, batch[0], error)
                return
            for one in batch:  # one question's fault is not the others'
                self._settle([one])
            return
        self._in_loop(_give, batch, answers)

    def _in_loop(self, call: Callable[..., None], *given: Any) -> None:  # noqa: ANN401  handed on as it is
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(call, *given)


def _give(batch: Sequence[_Waiting[Any, Answered]], answers: Sequence[Answered]) -> None:
    for one, answer in zip(batch, answers, strict=True):
        if not one.future.done():
            one.future.set_result(answer)


def _fail(one: _Waiting[Any, Any], error: Exception) -> None:
    if not one.future.done():
        one.future.set_exception(error)
