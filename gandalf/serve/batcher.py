"""Concurrent requests become batches: whatever has come while one batch was computed is the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from gandalf.serve.limits import BusyError

Question = TypeVar("Question")
Answered = TypeVar("Answered")


@dataclass(eq=False)
class _Waiting(Generic[Question, Answered]):
    question: Question
    size: int
    future: asyncio.Future[Answered]


class Batcher(Generic[Question, Answered]):
    """Answers questions in the order they come, many at once, in one thread of its own.

    Nobody waits for a batch to fill: a question that comes alone is answered alone, at once.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Question]], Sequence[Answered]],
        *,
        most: int,
        waiting: int,
        seen: Callable[[int], None] = lambda size: None,
        begin: Callable[[], None] = lambda: None,  # called once in the thread
    ) -> None:
        self._answer, self._most, self._room, self._seen = answer, most, waiting, seen
        self._queue: deque[_Waiting[Question, Answered]] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict", initializer=begin)
        self.waiting = 0  # the sizes of all that is in the queue

    async def ask(self, question: Question, size: int = 1) -> Answered:
        """The answer, or `BusyError` at once if the queue is full."""
        if self.waiting and self.waiting + size > self._room:
            raise BusyError
        one: _Waiting[Question, Answered] = _Waiting(
            question, size, asyncio.get_running_loop().create_future()
        )
        self._queue.append(one)
        self.waiting += size
        self._wake.set()
        return await one.future

    async def run(self) -> None:
        """Answer for as long as the task lives."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while batch := self._taken():
                    self._seen(sum(one.size for one in batch))
                    await self._settle(batch)
        finally:
            self._thread.shutdown(wait=False)

    def _taken(self) -> list[_Waiting[Question, Answered]]:
        """As many as fit into a batch, without those that nobody waits for any more."""
        batch: list[_Waiting[Question, Answered]] = []
        size = 0
        while self._queue and (not batch or size + self._queue[0].size <= self._most):
            one = self._queue.popleft()
            self.waiting -= one.size
            if not one.future.done():
                batch.append(one)
                size += one.size
        return batch

    async def _settle(self, batch: list[_Waiting[Question, Answered]]) -> None:
        try:
            answers = await self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            for one in batch:  # one question's fault is not the others'
                await self._settle([one])
            return
        for one, answer in zip(batch, answers, strict=True):
            if not one.future.done():
                one.future.set_result(answer)

    async def _computed(self, batch: list[_Waiting[Question, Answered]]) -> Sequence[Answered]:
        loop = asyncio.get_running_loop()
        questions = [one.question for one in batch]
        return await loop.run_in_executor(self._thread, self._answer, questions)


def _fail(one: _Waiting[Question, Answered], error: Exception) -> None:
    if not one.future.done():
        one.future.set_exception(error)
