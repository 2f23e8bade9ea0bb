"""A small load generator on loopback: keep-alive connections, closed loop and open loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Load:
    """What came of some requests."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, float | dict[str, int]]:
        """Requests a second and the percentiles of their milliseconds."""
        p50, p95, p99 = (1e3 * np.percentile(self.latencies or [0.0], [50, 95, 99])).tolist()
        return {
            "requests_per_second": round(len(self.latencies) / max(self.seconds, 1e-9), 1),
            "p50_ms": round(p50, 2),
            "p95_ms": round(p95, 2),
            "p99_ms": round(p99, 2),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


class Connection:
    """One keep-alive connection."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> int:
        """The status of the answer; the answer itself is read and dropped."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        assert self.reader is not None
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
        self.writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await self.reader.readexactly(int(length.split(b":")[1]))
        if b"connection: close" in answer.lower():
            self.close()
        return int(answer.split(b" ", 2)[1])

    def close(self) -> None:
        """Hang up."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


def bodies(texts: Sequence[str], k: int = 10) -> list[bytes]:
    """Requests for predictions."""
    return [json.dumps({"text": text, "k": k}).encode() for text in texts]


async def closed_loop(host: str, port: int, asked: Sequence[bytes], clients: int, seconds: float) -> Load:
    """So many clients, each asking again as soon as it is answered."""
    found, end = Load(), time.perf_counter() + seconds
    start = time.perf_counter()

    async def client(number: int) -> None:
        connection, at = Connection(host, port), number
        while time.perf_counter() < end:
            began = time.perf_counter()
            found.statuses[await connection.post("/predict", asked[at % len(asked)])] += 1
            found.latencies.append(time.perf_counter() - began)
            at += clients
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    found.seconds = time.perf_counter() - start
    return found


async def open_loop(host: str, port: int, asked: Sequence[bytes], rate: float, seconds: float) -> Load:
    """Requests at random times, whether or not others were answered; the clock starts when one is due."""
    rng = np.random.default_rng(0)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))
    found, idle = Load(), list[Connection]()
    start = time.perf_counter()

    async def one(number: int, at: float) -> None:
        connection = idle.pop() if idle else Connection(host, port)
        found.statuses[await connection.post("/predict", asked[number % len(asked)])] += 1
        found.latencies.append(time.perf_counter() - start - at)
        idle.append(connection)

    tasks = []
    for number, at in enumerate(due.tolist()):
        await asyncio.sleep(max(0.0, at - (time.perf_counter() - start)))
        tasks.append(asyncio.create_task(one(number, at)))
    await asyncio.gather(*tasks)
    found.seconds = time.perf_counter() - start
    for connection in idle:
        connection.close()
    return found
