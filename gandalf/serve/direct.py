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
        came = [await receive()]
        while came[-1].get("more_body"):
            came.append(await receive())
        request = _read(came) if JSON in scope["headers"] else None
        if request is None:
            await self._route(scope, _replayed(came, receive), send)
            return
        body = VALUES.dump_json(await self._answer(request))
        headers = [JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _read(came: list[Message]) -> PredictRequest | None:
    """Return the request in the messages, or None if it is invalid."""
    try:
        return PredictRequest.model_validate_json(b"".join(each.get("body", b"") for each in came))
    except ValidationError:
        return None


def _replayed(came: list[Message], receive: Receive) -> Receive:
    """Return a `receive` that gives the messages that came, and then further ones."""
    left = iter(came)

    async def receiving() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return receiving
