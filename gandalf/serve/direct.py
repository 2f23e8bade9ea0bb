"""Answer valid prediction requests directly, without FastAPI's routing.

FastAPI takes as long for a request as the encoder for a text. An invalid request is passed on to FastAPI,
which answers with the error. So FastAPI alone decides which requests are valid, and documents them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gandalf.serve.schemas import PredictRequest

VALUES: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
JSON = (b"content-type", b"application/json")


class DirectPredict:
    """A layer around the route of predictions that answers valid requests itself."""

    def __init__(self, route: ASGIApp, answer: Callable[[PredictRequest], Awaitable[dict[str, Any]]]) -> None:
        self._route, self._answer = route, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a valid request; pass any other request on unchanged."""
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        request = _parsed(messages) if JSON in scope["headers"] else None
        if request is None:
            await self._route(scope, _replayed(messages, receive), send)
            return
        body = VALUES.dump_json(await self._answer(request))
        headers = [JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _parsed(messages: list[Message]) -> PredictRequest | None:
    """Return the request in the messages, or None if it is invalid."""
    try:
        return PredictRequest.model_validate_json(b"".join(each.get("body", b"") for each in messages))
    except ValidationError:
        return None


def _replayed(messages: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that gives these messages, and then further ones."""
    rest = iter(messages)

    async def receiving() -> Message:
        message = next(rest, None)
        return await receive() if message is None else message

    return receiving
