"""Limit what a client's connection may send before its request is known, and how slowly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gandalf.serve.limits import Limits

BAD, LATE, LARGE, LARGE_HEAD = 400, 408, 413, 431


class Connection(HttpToolsProtocol):
    """A connection that is closed if the client sends or reads too slowly, or sends too large a head.

    Bytes are counted as they arrive, since the parser reports a header only at its end.
    """

    def __init__(self, *given: Any, limits: Limits, **more: Any) -> None:  # noqa: ANN401  uvicorn's
        super().__init__(*given, **more)
        self._limits = limits
        self._send_timer: asyncio.TimerHandle | None = None  # fires if the client does not send in time
        self._read_timer: asyncio.TimerHandle | None = None  # fires if the client does not read in time
        self._heads_begun, self._in_head = 0, False
        self._counted_bytes = 0  # bytes of the head, or bytes beside the content of the body
        self._refusal = (BAD, "the request is not HTTP as this server reads it")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_send_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timers."""
        self._send_timer = _replaced(self._send_timer)
        self._read_timer = _replaced(self._read_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that came, and refuse too many of them."""
        if self._send_timer is None and self._is_idle():
            self._start_send_timer()
        heads, in_head = self._heads_begun, self._in_head
        super().data_received(data)
        if self.transport.is_closing() or heads != self._heads_begun or in_head != self._in_head:
            return
        self._counted_bytes += len(data)
        if in_head and self._counted_bytes > self._limits.head:
            self._refuse(LARGE_HEAD, self._large_head())
        elif not in_head and self._counted_bytes > self._limits.body:
            self._refuse(LARGE, "there is too much around the body of the request")

    def on_message_begin(self) -> None:
        """Start to count the bytes of a head."""
        super().on_message_begin()
        self._heads_begun, self._in_head, self._counted_bytes = self._heads_begun + 1, True, 0

    def on_headers_complete(self) -> None:
        """Start the request; raise an error, which refuses it, if its head is too large."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head:
            self._refusal = (LARGE_HEAD, self._large_head())
            raise ValueError
        self._in_head, self._counted_bytes = False, 0
        self._start_send_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on; the application counts its bytes."""
        self._counted_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the request is complete."""
        self._send_timer = _replaced(self._send_timer)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser cannot read."""
        self._refuse(*self._refusal)

    def pause_writing(self) -> None:
        """Start a timer: the client does not read the answer."""
        super().pause_writing()
        self._read_timer = _replaced(self._read_timer, self._call_later(self.transport.abort))

    def resume_writing(self) -> None:
        """Stop the timer: the client reads again."""
        super().resume_writing()
        self._read_timer = _replaced(self._read_timer)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if the last answer was not read."""
        self._close()

    def _start_send_timer(self) -> None:
        self._send_timer = _replaced(self._send_timer, self._call_later(self._refuse_slow_client))

    def _refuse_slow_client(self) -> None:
        self._send_timer = None
        if self._heads_begun == 0 or (not self._in_head and self._is_idle()):
            self._close()  # the client has sent nothing, or only bytes that were dropped
        else:
            self._refuse(LATE, f"the request was not there within {self._limits.sending:g} seconds")

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _large_head(self) -> str:
        return f"the head of the request is larger than {self._limits.head:,} bytes"

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer with an error, unless another answer is being sent, and close the connection."""
        under_way = not self._is_idle() and (self._in_head or self.cycle.response_started)
        if not under_way and not self.pipeline:
            body = json.dumps({"error": sentence}).encode()
            head = (
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(STATUS_LINE[status] + head.encode() + body)
        self._close()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
            self._call_later(self.transport.abort)  # if the client does not read the rest

    def _call_later(self, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(self._limits.sending, call)


def _replaced(
    timer: asyncio.TimerHandle | None, new: asyncio.TimerHandle | None = None
) -> asyncio.TimerHandle | None:
    """Stop a timer, and return the new timer or None."""
    if timer is not None:
        timer.cancel()
    return new
