"""Answer Annif's REST paths for one project, so that Annif's `http` backend can ask this server."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from gandalf.serve.api import Api
from gandalf.serve.schemas import LIMITS, PredictRequest

PROJECT = "gandalf"  # id of the only project: a server has one model
PROJECTS = "/v1/projects"
FORM = "application/x-www-form-urlencoded"
_FIELDS = 100  # most fields of a form; Annif sends further fields about a document


class SuggestForm(BaseModel):
    """A request of Annif for the labels of one text. Other fields, such as `project`, are ignored."""

    text: str = Field(description=f"The text; its first {LIMITS.length:,} characters are read.")
    limit: Annotated[int, Field(ge=1)] = Field(10, description=f"Number of labels; at most {LIMITS.k}.")
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Leave out labels with a lower score."
    )


class Subject(BaseModel):
    """A label with its score; `uri` is the label's id, or its text if labels have no ids."""

    uri: str
    label: str
    notation: str | None = None
    score: float


class Subjects(BaseModel):
    """The labels of the text, best first."""

    results: list[Subject]


class Project(BaseModel):
    """The description of a project that Annif reads before it uses the project."""

    project_id: str
    name: str
    is_trained: bool
    modification_time: str | None
    backend: dict[str, str]


class Projects(BaseModel):
    """The one project of this server."""

    projects: list[Project]


SUGGEST_BODY = {
    "requestBody": {"required": True, "content": {FORM: {"schema": SuggestForm.model_json_schema()}}}
}


class Annif:
    """The handlers of Annif's paths, which use the handlers of the server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def suggest(self, request: Request) -> JSONResponse:
        """Predict the labels of a text from a form of `text` and `limit`, as Annif's `http` backend sends."""
        form = await _form(request)
        wanted = PredictRequest(
            text=form.text[: LIMITS.length], k=min(form.limit, LIMITS.k), threshold=form.threshold
        )
        found = await self._api.predicted(wanted)
        return JSONResponse({"results": [_subject(label) for label in found["results"][0]["labels"]]})

    async def project(self) -> JSONResponse:
        """Describe the only project of this server."""
        return JSONResponse(self._described())

    async def projects(self) -> JSONResponse:
        """List the only project of this server."""
        return JSONResponse({"projects": [self._described()]})

    def _described(self) -> dict[str, Any]:
        return {
            "project_id": PROJECT,
            "name": self._api.name,
            "is_trained": True,
            "modification_time": None,
            "backend": {"backend_id": "gandalf"},
        }


def _subject(label: dict[str, Any]) -> dict[str, Any]:
    uri = label["text"] if label["id"] is None else label["id"]
    return {"uri": uri, "label": label["text"], "notation": None, "score": label["score"]}


async def _form(request: Request) -> SuggestForm:
    """Read the fields of a form; Starlette would need a further package for it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, f"the request is not said to be a form; send Content-Type: {FORM}")
    try:
        fields = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS
        )
    except ValueError as error:  # not UTF-8, or too many fields
        raise HTTPException(422, "the form cannot be read; it must be UTF-8 with few fields") from error
    try:
        return SuggestForm.model_validate(dict(fields))
    except ValidationError as error:
        fault = error.errors()[0]
        raise HTTPException(422, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
