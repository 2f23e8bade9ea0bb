"""A small load generator on loopback: keep-alive connections, closed loop and open loop.

One thread and `select`, which waits to the microsecond; event loops wait to the millisecond, which would be
part of every latency. What the generator itself takes is kept beside what it measures: it shares the cores.
"""

from __future__ import annotations

import json
import select
import selectors
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

OK = 200


@dataclass
class Load:
    """What came of some requests."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)  # from when each was due
    statuses: Counter[int] = field(default_factory=Counter)
    refused: list[float] = field(default_factory=list)  # latencies of those that were not answered with 200
    late: list[float] = field(default_factory=list)  # how long after it was due each was sent
    processor: float = 0.0  # seconds of it that the generator took

    def as_dict(self) -> dict[str, float | dict[str, int]]:
        """Return requests a second and the percentiles of their milliseconds."""
        p50, p95, p99 = (1e3 * np.percentile(self.latencies or [0.0], [50, 95, 99])).tolist()
        refused = (
            {}
            if not self.refused
            else {"refused_p99_ms": round(1e3 * float(np.percentile(self.refused, 99)), 2)}
        )
        return {
            "requests_per_second": round(len(self.latencies) / max(self.seconds, 1e-9), 1),
            "p50_ms": round(p50, 2),
            "p95_ms": round(p95, 2),
            "p99_ms": round(p99, 2),
            **refused,
            "sent_late_p99_ms": round(1e3 * float(np.percentile(self.late or [0.0], 99)), 2),
            "client_cores": round(self.processor / max(self.seconds, 1e-9), 3),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


class Connection:
    """One keep-alive connection, with at most one request under way."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due, self.body, self._got = 0.0, b"", b""

    def post(self, body: bytes, due: float) -> None:
        """Send a request for predictions."""
        self.due, self.body, self._got = due, body, b""
        head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        with suppress(ConnectionError):  # that the server hung up is seen when its answer is looked for
            self.socket.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)

    def status(self) -> int | None:
        """Take in what has come; the status, if that is all of the answer, or 0 if the server hung up."""
        part = b""
        with suppress(ConnectionError):
            part = self.socket.recv(1 << 16)
        if not part:
            return 0
        self._got += part
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return None
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(head.split(b" ", 2)[1]) if len(body) >= int(length.split(b":")[1]) else None


class _Clients:
    """Connections to a server, and what came of their requests."""

    def __init__(self, host: str, port: int, asked: Sequence[bytes]) -> None:
        self._address, self._asked, self._number = (host, port), asked, 0
        self._all = selectors.DefaultSelector()
        self._idle: list[Connection] = []
        self._under_way = 0
        self.found = Load()
        self._began, self._used = time.perf_counter(), time.process_time()

    def ask(self, due: float) -> None:
        """Ask the next question now."""
        self._post(self._asked[self._number % len(self._asked)], due)
        self.found.late.append(time.perf_counter() - due)
        self._number += 1
        self._under_way += 1

    def _post(self, body: bytes, due: float) -> None:
        if self._idle:
            one = self._idle.pop()
        else:
            one = Connection(self._address)
            self._all.register(one.socket, selectors.EVENT_READ, one)
        one.post(body, due)

    def wait(self, seconds: float) -> int:
        """Take in what is answered; return how many were, after that time at the latest."""
        select.select([self._all], [], [], max(0.0, seconds))  # selectors round their time up
        return sum(self._answered(key.data) for key, _ in self._all.select(0))

    def _answered(self, one: Connection) -> bool:
        status = one.status()
        if status is None:
            return False
        if status == 0:
            self._hang_up(one)
            return False
        taken = time.perf_counter() - one.due
        self.found.latencies.append(taken)
        self.found.statuses[status] += 1
        if status != OK:
            self.found.refused.append(taken)
        self._idle.append(one)
        self._under_way -= 1
        return True

    def _hang_up(self, one: Connection) -> None:
        """Drop a connection that the server has closed; repeat its request, if any, on another."""
        self._all.unregister(one.socket)
        one.socket.close()
        if one in self._idle:
            self._idle.remove(one)
        else:
            self._post(one.body, one.due)

    def done(self) -> Load:
        """Wait for what is under way, and hang up."""
        while self._under_way:
            self.wait(60.0)
        self.found.seconds = time.perf_counter() - self._began
        self.found.processor = time.process_time() - self._used
        for key in [*self._all.get_map().values()]:
            key.data.socket.close()
        self._all.close()
        return self.found


def bodies(texts: Sequence[str], k: int = 10) -> list[bytes]:
    """Return requests for predictions."""
    return [json.dumps({"text": text, "k": k}).encode() for text in texts]


def closed_loop(host: str, port: int, asked: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Ask by so many clients, each again as soon as it is answered."""
    load = _Clients(host, port, asked)
    end = time.perf_counter() + seconds
    for _ in range(clients):
        load.ask(time.perf_counter())
    while time.perf_counter() < end:
        for _ in range(load.wait(1.0)):
            load.ask(time.perf_counter())
    return load.done()


def open_loop(host: str, port: int, asked: Sequence[bytes], rate: float, seconds: float) -> Load:
    """Ask at random times, whether or not others were answered; the clock starts when a request is due."""
    waits = np.random.default_rng(0).exponential(1 / rate, int(rate * seconds))
    load = _Clients(host, port, asked)
    for due in (time.perf_counter() + np.cumsum(waits)).tolist():
        while (left := due - time.perf_counter()) > 0:
            load.wait(left)
        load.ask(due)
    return load.done()
