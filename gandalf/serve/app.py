"""The application: paths, and how errors are told."""

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
from gandalf.serve.api import Api, Manner
from gandalf.serve.guard import Guard, Locked
from gandalf.serve.hosts import allowed_hosts
from gandalf.serve.limits import Limits, UnavailableError
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
from gandalf.serve.straight import Straight

STATIC = Path(str(resources.files("gandalf.serve") / "static"))
BAD, BUSY, UNKNOWN, REFUSED = (
    {status: {"model": Error} for status in some}
    for some in ((400, 413, 415, 421, 422), (503,), (404,), (401, 403, 409, 507))
)


def create_app(
    service: Service,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    manner: Manner | None = None,
) -> FastAPI:
    """The application that serves a model; labels can be added where there is a token and a journal."""
    metrics, limits, manner = Metrics(), limits or Limits(), manner or Manner()
    api = Api(service, metrics, limits, token, manner)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with api.running():
            yield

    app = FastAPI(
        title="gandalf",
        description="Labels of short texts. Every error is one sentence under the key `error`.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # they would lead to whatever host was asked for
    )
    _add_paths(app, api)
    changing = (api.add_labels, api.add_examples, api.remove_example)
    for route in app.routes:
        if isinstance(route, APIRoute) and route.endpoint == api.predict:
            route.app = Straight(route.app, api.predicted)  # asked far more often than anything else
        if isinstance(route, APIRoute) and route.endpoint in changing:
            route.app = Locked(route.app, api.authorise)
    _add_page(app)
    _add_errors(app)
    app.add_middleware(Guard, metrics=metrics, limits=limits, hosts=allowed_hosts(manner.hosts))
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
    """Files of the page; a path that no file can have is one that is not there."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except ValueError as error:  # a NUL in it
            raise HTTPException(404) from error


def _add_errors(app: FastAPI) -> None:
    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        if request.method == "POST" and "json" not in request.headers.get("content-type", ""):
            return _told(415, "the request is not said to be JSON; send Content-Type: application/json")
        return _told(422, _sentence(error))

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = {"allow": _methods(app, request)} if error.status_code == 405 else error.headers
        return _told(error.status_code, _about(request, error), headers)

    async def bad(request: Request, error: Exception) -> JSONResponse:
        return _told(400, str(error))

    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, UnavailableError)
        return _told(error.status, str(error), {"retry-after": "1"})

    async def broken(request: Request, error: Exception) -> JSONResponse:
        return _told(500, "something went wrong in the server; its log says what")

    for kind, handler in (
        (RequestValidationError, invalid),
        (HTTPException, refused),
        (DataError, bad),
        (UnavailableError, unavailable),
        (Exception, broken),
    ):
        app.add_exception_handler(kind, handler)


def _told(status: int, sentence: str, headers: Any = None) -> JSONResponse:  # noqa: ANN401  starlette's
    safe = sentence.encode("utf-8", "replace").decode()  # JSON may have held half of a surrogate pair
    return JSONResponse({"error": safe}, status_code=status, headers=headers)


def _methods(app: FastAPI, request: Request) -> str:
    """All that is known at a path; of several routes, starlette names the first one's alone."""
    here = (route for route in app.routes if route.matches(request.scope)[0] != Match.NONE)
    found = {method for route in here for method in getattr(route, "methods", None) or ()}
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))


def _about(request: Request, error: HTTPException) -> str:
    if error.status_code == 404 and error.detail == "Not Found":
        return "there is nothing at this path; /docs lists what there is"
    if error.status_code == 405:
        return f"{request.method} is not known at this path; /docs lists what is"
    return str(error.detail)


def _sentence(error: RequestValidationError) -> str:
    """The fault that says most, with its place."""
    # Where a value may be of two types, one of the faults is always that it is not of the other type.
    fault = min(error.errors(), key=lambda each: each["type"].endswith("_type"))
    if fault["type"] == "json_invalid":
        return f"the request is not JSON ({fault['ctx']['error']})"
    place = ".".join(str(part) for part in fault["loc"] if str(part).replace("_", "").isalnum())
    place = place.partition(".")[2]  # what comes first says whether it is of the body, the query or the path
    return f"{place}: {fault['msg']}" if place else f"the request: {fault['msg']}"
