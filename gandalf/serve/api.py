"""Handle the requests of each path."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gandalf.data.formats.texts import clean
from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.predict import queries
from gandalf.predict.embedding import dense_vectors
from gandalf.serve.batcher import Batcher
from gandalf.serve.limits import BusyError, Limits, UnavailableError
from gandalf.serve.metrics import CONTENT_TYPE, Metrics
from gandalf.serve.schemas import (
    LIMITS,
    AddRequest,
    EmbedRequest,
    ExamplesRequest,
    ExplainRequest,
    NewLabelRequest,
    PredictRequest,
)
from gandalf.serve.service import Served, Service, use_threads

THREADS = 16  # threads for all but predictions; more than `Limits.explaining`, so that look-ups do not wait

Found = TypeVar("Found")
SearchWords = Annotated[str, Query(max_length=LIMITS.length, description="Words of the label's text.")]
SearchLimit = Annotated[int, Query(ge=1, le=LIMITS.k)]
LabelNumber = Annotated[int, Path(ge=0)]
ExampleId = Annotated[str, Path(min_length=1, max_length=LIMITS.length)]

log = logging.getLogger("uvicorn.error")
OfBaseline = Annotated[bool, Query(description="Ask the baseline model.")]


@dataclass(frozen=True)
class Manner:
    """The name, threads and host names of a server."""

    name: str = "gandalf"
    threads: int | None = None  # threads that predict; None: PyTorch's default
    hosts: tuple[str, ...] = ()  # host names that the server answers to, besides those of loopback


class Api:
    """The handlers of one server, with the batcher, threads and metrics that they share."""

    def __init__(
        self, service: Service, metrics: Metrics, limits: Limits, token: str | None, manner: Manner
    ) -> None:
        self.service, self.counts, self.limits, self.token, self.name = (
            service,
            metrics,
            limits,
            token,
            manner.name,
        )
        self.batcher: Batcher[tuple[queries.Query, bool], queries.Answer] = Batcher(
            service.answer,
            most=limits.texts,
            waiting=limits.waiting,
            seen=metrics.batches.observe,
            begin=lambda: None if manner.threads is None else use_threads(manner.threads),
        )
        self._threads = ThreadPoolExecutor(THREADS, "beside")
        self._explaining = set[Future[Any]]()  # explanations in progress, abandoned ones too
        metrics.labels.set(service.served.model.num_labels)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer requests while the block runs; enter it in the event loop of the requests."""
        with self.batcher.running():
            yield
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def predict(self, request: PredictRequest) -> JSONResponse:
        """Predict the most probable labels of one text or many."""
        return JSONResponse(await self.predicted(request))

    async def predicted(self, request: PredictRequest) -> dict[str, Any]:
        """Like `predict`, but return plain values."""
        texts = [clean(text) for text in request.all_texts]
        wanted = [False, True] if request.baseline else [False]
        asked = [(await self._query(request, texts, baseline), baseline) for baseline in wanted]
        self.counts.waiting.set(self.batcher.waiting)
        answers = await asyncio.gather(*(self.batcher.ask(each, len(texts)) for each in asked))
        found: dict[str, Any] = {"results": self._results(texts, answers[0], self.service.served)}
        if request.baseline:
            found["baseline"] = self._results(texts, answers[1], self.service.at(True))
        return found | {"calibrated": self.service.served.model.calibration is not None}

    async def embed(self, request: EmbedRequest) -> JSONResponse:
        """Return vectors of texts, for search and clustering elsewhere; a linear model of words has none."""
        model, texts = self._served(request.baseline).model, [clean(text) for text in request.texts]
        return JSONResponse({"vectors": await self._run_slow(lambda: dense_vectors(model, texts).tolist())})

    async def explain(self, request: ExplainRequest) -> JSONResponse:
        """Explain why a text gets a label: the words that carry its score, and the points that taught it."""
        await self._catch_up()
        served = self._served(request.baseline)
        label = await self._run(lambda: _or_not_found(lambda: served.names.one(request.label)))
        found = await self._run_slow(lambda: self.service.explain(request.text, label, request.baseline))
        return JSONResponse(asdict(found))

    async def neighbours(self, label: LabelNumber, baseline: OfBaseline = False) -> JSONResponse:
        """Return the neighbours of a label in the label graph or, without training data, by rows."""
        await self._catch_up()
        served = self._served(baseline)
        _or_not_found(lambda: served.names.one(label))
        return JSONResponse(asdict(await self._run_slow(lambda: self.service.near(label, baseline))))

    async def find_labels(self, search: SearchWords = "", limit: SearchLimit = 20) -> JSONResponse:
        """Find labels by words of their texts; labels whose text begins with the words come first."""
        await self._catch_up()
        served = self.service.served
        found = await self._run(lambda: served.names.search(search, limit))
        return JSONResponse(_listed(found, served))

    async def add_labels(self, request: Request, labels: AddRequest) -> JSONResponse:
        """Add labels by text, with `Authorization: Bearer TOKEN`; the answer comes when they are on disk."""
        self.authorise(request)
        chosen = [_new_label(each) for each in labels.labels]
        added = await self._change(lambda: self.service.add(chosen))
        self.counts.labels.set(self.service.served.model.num_labels)
        return JSONResponse(_listed(added, self.service.served), status_code=201)

    async def add_examples(self, request: Request, given: ExamplesRequest) -> JSONResponse:
        """Add texts with known labels, which count at once; the answer comes when they are on disk."""
        self.authorise(request)
        examples = [Example(clean(one.text), one.labels, one.values, one.id) for one in given.examples]
        labels = [_new_label(each) for each in given.new_labels]
        added = await self._change(lambda: self.service.add_examples(examples, labels))
        self.counts.labels.set(self.service.served.model.num_labels)
        listed = [{"id": each.id, "text": each.text} for each in added]
        found = {"examples": listed, "all_examples": self.service.examples}
        return JSONResponse(found, status_code=201)

    async def remove_example(self, request: Request, id: ExampleId) -> JSONResponse:
        """Remove an added example; after the answer it does not count any more."""
        self.authorise(request)
        if not await self._change(lambda: self.service.remove_example(id)):
            raise HTTPException(404, f"there is no example {id!r}")
        return JSONResponse({"examples": [], "all_examples": self.service.examples})

    async def about(self) -> JSONResponse:
        """Describe the served model."""
        await self._catch_up()
        served, baseline = self.service.served, self.service.baseline
        return JSONResponse(
            {
                "name": self.name,
                "labels": served.model.num_labels,
                "search": "exact" if served.index is None else str(served.index),
                "recall": None if served.index is None else served.index.recall,
                "calibrated": served.model.calibration is not None,
                "baseline": None if baseline is None else baseline.name,
                "adds_labels": self.token is not None and self.service.adds,
                "has_data": served.background is not None,
            }
        )

    async def health(self) -> JSONResponse:
        """Answer, so that a monitor knows that the process runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> JSONResponse:
        """Predict one text like the text of a request, so that a monitor knows that predictions work."""
        if self.batcher.waiting >= self.limits.waiting:
            raise BusyError
        text = self.service.served.model.label_texts[0]
        models = (False,) if self.service.baseline is None else (False, True)
        asked = (self.batcher.ask((queries.Query((text,), 1), baseline)) for baseline in models)
        try:
            await asyncio.gather(*asked)
        except UnavailableError:
            raise
        except Exception as error:
            log.exception("predictions fail")
            raise UnavailableError("predictions fail; the log of the server says why") from error
        can_add = self.token is not None and self.service.adds
        adding = await self._run(lambda: self.service.trouble() or "on") if can_add else "off"
        return JSONResponse({"status": "ok", "adding": adding})

    async def metrics(self) -> Response:
        """Return counts in the format of Prometheus."""
        return Response(self.counts.text(), media_type=CONTENT_TYPE)

    async def _query(self, request: PredictRequest, texts: Sequence[str], baseline: bool) -> queries.Query:
        self._served(baseline)  # raises a 404 without a baseline
        plain = queries.Query(tuple(texts), request.k, request.threshold)
        if request.allow is None and not request.deny:
            return plain
        await self._catch_up()
        numbers = self._served(baseline).names.numbers
        # In a thread, since the first look-up among very many labels takes seconds.
        allow = await self._run(lambda: _or_not_found(lambda: numbers(request.allow or ())))
        deny = await self._run(lambda: _or_not_found(lambda: numbers(request.deny)))
        return replace(plain, allow=None if request.allow is None else allow, deny=deny)

    def _served(self, baseline: bool) -> Served:
        return _or_not_found(lambda: self.service.at(baseline))

    def _results(self, texts: Sequence[str], answers: queries.Answer, served: Served) -> list[dict[str, Any]]:
        return [
            {
                "text": text,
                "labels": [served.names.describe(label) | {"score": score} for label, score in answer],
                "known": bool(answer) or bool(served.model.knows([text])[0]),
            }
            for text, answer in zip(texts, answers, strict=True)
        ]

    async def _catch_up(self) -> None:
        """Apply the changes that other workers have acknowledged."""
        if self.service.is_behind():
            await self._run(self.service.catch_up)

    async def _run(self, work: Callable[[], Found]) -> Found:
        """Run short work in a thread; the work goes on if the request is abandoned."""
        return await asyncio.wrap_future(self._threads.submit(work))

    async def _run_slow(self, work: Callable[[], Found]) -> Found:
        """Run long work in a thread; raise BusyError if `Limits.explaining` of them are in progress."""
        if len(self._explaining) >= self.limits.explaining:
            raise BusyError
        future = self._threads.submit(work)
        self._explaining.add(future)
        future.add_done_callback(self._explaining.discard)
        return await asyncio.wrap_future(future)

    async def _change(self, change: Callable[[], Found]) -> Found:
        """Make a change; raise a 409 if it cannot be made."""
        try:
            return await self._run(change)
        except DataError as error:
            raise HTTPException(409, str(error)) from error

    def authorise(self, request: Request) -> None:
        """Raise a 403 if adding labels is off, or a 401 if the request has no valid token."""
        if self.token is None or not self.service.adds:
            raise HTTPException(403, "adding labels is off; start the server with --token-file")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != "bearer" or not right:
            raise HTTPException(
                401,
                "the token is missing or wrong; send Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )


def _new_label(given: NewLabelRequest) -> NewLabel:
    return NewLabel(
        clean(given.text),
        None if given.id is None else clean(given.id),
        tuple(map(clean, given.examples)),
        tuple(given.neighbours),
    )


def _or_not_found(look_up: Callable[[], Found]) -> Found:
    """Return the result of a look-up; turn its DataError into a 404."""
    try:
        return look_up()
    except DataError as error:
        raise HTTPException(404, str(error)) from error


def _listed(labels: Sequence[int], served: Served) -> dict[str, Any]:
    described = [served.names.describe(label) for label in labels]
    return {"labels": described, "all_labels": served.model.num_labels}
