"""The short way to a prediction: a request that is in order is read, answered and written directly.

FastAPI would take as long for this as the encoder. Whatever is not in order goes its way, and is told there
what is wrong; so what is accepted, what is refused and the document of both are FastAPI's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gandalf.serve.schemas import PredictRequest

VALUES: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
JSON = (b"content-type", b"application/json")


class Straight:
    """Stands in front of a route's own application."""

    def __init__(self, usual: ASGIApp, answer: Callable[[PredictRequest], Awaitable[dict[str, Any]]]) -> None:
        self._usual, self._answer = usual, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on as it came."""
        came = [await receive()]
        while came[-1].get("more_body"):
            came.append(await receive())
        request = _read(came) if JSON in scope["headers"] else None
        if request is None:
            await self._usual(scope, _again(came, receive), send)
            return
        body = VALUES.dump_json(await self._answer(request))
        headers = [JSON, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _read(came: list[Message]) -> PredictRequest | None:
    try:
        return PredictRequest.model_validate_json(b"".join(each.get("body", b"") for each in came))
    except ValidationError:
        return None


def _again(came: list[Message], receive: Receive) -> Receive:
    """What came, and then whatever comes."""
    left = iter(came)

    async def receiving() -> Message:
        message = next(left, None)
        return await receive() if message is None else message

    return receiving
