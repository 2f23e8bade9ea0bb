"""Guard every request: limit its size and time, check its host and token, and send security headers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gandalf.serve.hosts import asked_host, is_own_address
from gandalf.serve.limits import Limits
from gandalf.serve.metrics import Metrics

BAD, TOO_LARGE, NOT_HERE, LATE = 400, 413, 421, 503
PATIENCE = 16  # times the limit that is read and dropped: a client that still sends does not read the answer
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, limits: Limits, hosts: Collection[str]) -> None:
        self._app, self._metrics, self._most, self._deadline = app, metrics, limits.body, limits.deadline
        self._hosts = hosts
        self._sentence = f"the request is larger than {limits.body:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or refuse it, and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, is_head = time.perf_counter(), 0, scope["method"] == "HEAD"
        if is_head:  # answered like GET, without the body
            scope = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *HEADERS]
            elif is_head:
                message["body"] = b""
            await send(message)

        try:
            async with asyncio.timeout(self._deadline):
                await self._pass_or_refuse(scope, receive, sending)
        except TimeoutError:
            if status:  # a part of the answer is sent already; the error closes the connection
                raise
            late = f"there was no answer within {self._deadline:g} seconds; ask again in a moment"
            await _refuse(sending, LATE, late, (b"retry-after", b"1"))
        finally:
            path = getattr(scope.get("route"), "path", "other")  # a route, so that paths stay few
            self._metrics.requests.labels(path, str(status or 500)).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - began)

    async def _pass_or_refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before its body is read.

        uvicorn then reads and drops the body, unless the answer closes the connection.
        """
        announced, host = _announced(scope), asked_host(scope)
        if host is None:
            await _refuse(send, BAD, "the request must name its host, in one Host header")
        elif host not in self._hosts and not is_own_address(host, scope):
            other = (
                f"this server does not answer to the name {host[:100]!r}; its option --allow-host adds names"
            )
            await _refuse(send, NOT_HERE, other)
        elif announced > self._most:
            hang_up = announced > PATIENCE * self._most
            await _refuse(send, TOO_LARGE, self._sentence, *[(b"connection", b"close")] * hang_up)
        else:
            await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        """Return `receive` with a limit on the total bytes, for requests that do not announce their size."""
        size = 0

        async def receiving() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._most:
                raise HTTPException(TOO_LARGE, self._sentence)
            return message

        return receiving


class NeedsToken:
    """A layer around a route that checks the token before the body is read."""

    def __init__(self, app: ASGIApp, authorise: Callable[[Request], None]) -> None:
        self._app, self._authorise = app, authorise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; raise an error if its token is missing or wrong."""
        self._authorise(Request(scope))
        await self._app(scope, receive, send)


async def _refuse(send: Send, status: int, sentence: str, *more: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _announced(scope: Scope) -> int:
    """Return the size that the request announces, or 0."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
