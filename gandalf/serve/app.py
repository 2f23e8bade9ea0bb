"""Make the application: its paths, its page, and the answers to errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from gandalf.errors import DataError
from gandalf.serve.annif import PROJECT, PROJECTS, SUGGEST_BODY, Annif, Project, Projects, Subjects
from gandalf.serve.api import Api, ServerOptions
from gandalf.serve.direct import DirectPredict
from gandalf.serve.guard import Guard, NeedsToken
from gandalf.serve.hosts import allowed_hosts
from gandalf.serve.limits import UnavailableError
from gandalf.serve.metrics import Metrics
from gandalf.serve.schemas import (
    About,
    Embedded,
    Error,
    Examples,
    Explanation,
    Labels,
    Near,
    Predictions,
    Readiness,
    Status,
)
from gandalf.serve.service import Service

STATIC = Path(str(resources.files("gandalf.serve") / "static"))
BAD, BUSY, UNKNOWN, REFUSED = (
    {status: {"model": Error} for status in some}
    for some in ((400, 413, 415, 421, 422), (503,), (404,), (401, 403, 409, 507))
)


def create_app(service: Service, options: ServerOptions | None = None) -> FastAPI:
    """Return the application that serves a model; adding labels needs a token and a journal."""
    metrics, options = Metrics(), options or ServerOptions()
    api = Api(service, metrics, options)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with api.running():
            yield

    app = FastAPI(
        title="gandalf",
        description="Labels of short texts. Every error is one sentence under the key `error`.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from another site
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host that the request named
    )
    _add_paths(app, api)
    changing = (api.add_labels, api.add_examples, api.remove_example)
    for route in app.routes:
        if isinstance(route, APIRoute) and route.endpoint == api.predict:
            route.app = DirectPredict(route.app, api.predicted)  # by far the most frequent request
        if isinstance(route, APIRoute) and route.endpoint in changing:
            route.app = NeedsToken(route.app, api.authorise)
    _add_page(app)
    _add_errors(app)
    app.add_middleware(Guard, metrics=metrics, limits=options.limits, hosts=allowed_hosts(options.hosts))
    return app


def _add_paths(app: FastAPI, api: Api) -> None:
    def add(path: str, method: str, call: Any, answer: Any, *responses: dict[int, Any], **more: Any) -> None:  # noqa: ANN401
        known: dict[int | str, Any] = {code: what for each in responses for code, what in each.items()}
        app.add_api_route(path, call, methods=[method], response_model=answer, responses=known, **more)

    add("/predict", "POST", api.predict, Predictions, BAD, UNKNOWN, BUSY)
    add("/embed", "POST", api.embed, Embedded, BAD, UNKNOWN, BUSY)
    add("/explain", "POST", api.explain, Explanation, BAD, UNKNOWN, BUSY)
    add("/labels", "GET", api.find_labels, Labels, BAD, BUSY)
    add("/labels", "POST", api.add_labels, Labels, BAD, UNKNOWN, REFUSED, BUSY, status_code=201)
    add("/examples", "POST", api.add_examples, Examples, BAD, UNKNOWN, REFUSED, BUSY, status_code=201)
    add("/examples/{id:path}", "DELETE", api.remove_example, Examples, BAD, UNKNOWN, REFUSED, BUSY)
    add("/labels/{label}/neighbours", "GET", api.neighbours, Near, BAD, UNKNOWN, BUSY)
    add("/about", "GET", api.about, About, BUSY)
    add("/health", "GET", api.health, Status)
    add("/ready", "GET", api.ready, Readiness, BUSY)
    annif, project = Annif(api), f"{PROJECTS}/{PROJECT}"
    add(PROJECTS, "GET", annif.projects, Projects)
    add(project, "GET", annif.project, Project)
    add(f"{project}/suggest", "POST", annif.suggest, Subjects, BAD, BUSY, openapi_extra=SUGGEST_BODY)
    app.add_api_route("/metrics", api.metrics, methods=["GET"], response_class=Response)


def _add_page(app: FastAPI) -> None:
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)
    app.mount("/static", _Static(directory=STATIC), name="static")


class _Static(StaticFiles):
    """Files of the page; an impossible path is answered by a 404."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except ValueError as error:  # the path holds a NUL
            raise HTTPException(404) from error


def _add_errors(app: FastAPI) -> None:
    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            return _error(415, "the request is not said to be JSON; send Content-Type: application/json")
        return _error(422, _validation_sentence(error))

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = {"allow": _methods(app, request)} if error.status_code == 405 else error.headers
        return _error(error.status_code, _http_sentence(request, error), headers)

    async def bad(request: Request, error: Exception) -> JSONResponse:
        return _error(400, str(error))

    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, UnavailableError)
        return _error(error.status, str(error), {"retry-after": "1"})

    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _error(500, "something went wrong in the server; its log says what")

    for kind, handler in (
        (RequestValidationError, invalid),
        (HTTPException, refused),
        (DataError, bad),
        (UnavailableError, unavailable),
        (Exception, broken),
    ):
        app.add_exception_handler(kind, handler)


def _error(status: int, sentence: str, headers: Any = None) -> JSONResponse:  # noqa: ANN401  starlette's
    safe = sentence.encode("utf-8", "replace").decode()  # the request may hold half of a surrogate pair
    return JSONResponse({"error": safe}, status_code=status, headers=headers)


def _methods(app: FastAPI, request: Request) -> str:
    """Return all methods of a path; with several routes, Starlette names those of the first route only."""
    here = (route for route in app.routes if route.matches(request.scope)[0] != Match.NONE)
    found = {method for route in here for method in getattr(route, "methods", None) or ()}
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))


def _http_sentence(request: Request, error: HTTPException) -> str:
    """Return a sentence for an HTTP error; Starlette's own details for 404 and 405 are replaced."""
    if error.status_code == 404 and error.detail == "Not Found":
        return "there is nothing at this path; /docs lists all paths"
    if error.status_code == 405:
        return f"{request.method} is not known at this path; /docs lists all paths"
    return str(error.detail)


def _validation_sentence(error: RequestValidationError) -> str:
    """Return the most useful fault of a request, with its place."""
    # If a value may have two types, one fault is always that the value has not the other type. Skip it.
    fault = min(error.errors(), key=lambda each: each["type"].endswith("_type"))
    if fault["type"] == "json_invalid":
        return f"the request is not JSON ({fault['ctx']['error']})"
    place = ".".join(str(part) for part in fault["loc"] if str(part).replace("_", "").isalnum())
    place = place.partition(".")[2]  # without the first part: body, query or path
    return f"{place}: {fault['msg']}" if place else f"the request: {fault['msg']}"
