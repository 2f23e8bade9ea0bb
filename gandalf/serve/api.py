"""Handle the requests of each path."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
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
class ServerOptions:
    """The options of a server apart from its models: its name, its protection and its threads."""

    name: str = "gandalf"
    token: str | None = None  # clients that send it may add labels and examples
    limits: Limits = field(default_factory=Limits)
    hosts: tuple[str, ...] = ()  # host names that the server answers to, besides those of loopback
    threads: int | None = None  # threads that predict; None: PyTorch's default


class Api:
    """The handlers of one server, with the batcher, threads and metrics that they share."""

    def __init__(self, service: Service, metrics: Metrics, options: ServerOptions) -> None:
        self.service, self.counts = service, metrics
        self.name, self.token, self.limits = options.name, options.token, options.limits
        self.batcher: Batcher[tuple[queries.Query, bool], queries.Answer] = Batcher(
            service.answer,
            batch_size=options.limits.texts,
            queue_size=options.limits.waiting,
            on_batch=metrics.batches.observe,
            on_start=lambda: None if options.threads is None else use_threads(options.threads),
        )
        self._threads = ThreadPoolExecutor(THREADS, "look-up")
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
        models = (False, True) if request.baseline else (False,)  # True: the baseline
        questions = [(await self._query(request, texts, baseline), baseline) for baseline in models]
        self.counts.waiting.set(self.batcher.waiting)
        answers = await asyncio.gather(*(self.batcher.ask(each, len(texts)) for each in questions))
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
        with _as_status(404):
            label = await self._run(lambda: served.names.one(request.label))
        found = await self._run_slow(lambda: self.service.explain(request.text, label, request.baseline))
        return JSONResponse(asdict(found))

    async def neighbours(self, label: LabelNumber, baseline: OfBaseline = False) -> JSONResponse:
        """Return the neighbours of a label in the label graph or, without training data, by rows."""
        await self._catch_up()
        with _as_status(404):
            self.service.at(baseline).names.one(label)
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
        return JSONResponse(_listed(added, self.service.served), status_code=201)

    async def add_examples(self, request: Request, given: ExamplesRequest) -> JSONResponse:
        """Add texts with known labels, which count at once; the answer comes when they are on disk."""
        self.authorise(request)
        examples = [Example(clean(one.text), one.labels, one.values, one.id) for one in given.examples]
        labels = [_new_label(each) for each in given.new_labels]
        added = await self._change(lambda: self.service.add_examples(examples, labels))
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
                "adds_labels": self.can_add,
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
        answers = (self.batcher.ask((queries.Query((text,), 1), baseline)) for baseline in models)
        try:
            await asyncio.gather(*answers)
        except UnavailableError:
            raise
        except Exception as error:
            log.exception("predictions fail")
            raise UnavailableError("predictions fail; the log of the server says why") from error
        adding = await self._run(lambda: self.service.trouble() or "on") if self.can_add else "off"
        return JSONResponse({"status": "ok", "adding": adding})

    async def metrics(self) -> Response:
        """Return counts in the format of Prometheus."""
        return Response(self.counts.text(), media_type=CONTENT_TYPE)

    async def _query(self, request: PredictRequest, texts: Sequence[str], baseline: bool) -> queries.Query:
        """Return the query of a request; raise a 404 for an unknown label, or without a baseline."""
        self._served(baseline)
        query = queries.Query(tuple(texts), request.k, request.threshold)
        if request.allow is None and not request.deny:
            return query
        await self._catch_up()
        numbers = self._served(baseline).names.numbers
        with _as_status(404):  # in a thread, since the first look-up among very many labels takes seconds
            allow = await self._run(lambda: numbers(request.allow or ()))
            deny = await self._run(lambda: numbers(request.deny))
        return replace(query, allow=None if request.allow is None else allow, deny=deny)

    def _served(self, baseline: bool) -> Served:
        """Return the model or the baseline; raise a 404 if there is no baseline."""
        with _as_status(404):
            return self.service.at(baseline)

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
        """Make a change, and count the labels anew; raise a 409 if the change cannot be made."""
        with _as_status(409):
            result = await self._run(change)
        self.counts.labels.set(self.service.served.model.num_labels)
        return result

    @property
    def can_add(self) -> bool:
        """Return True if clients with the token can add labels and examples."""
        return self.token is not None and self.service.adds

    def authorise(self, request: Request) -> None:
        """Raise a 403 if adding labels is off, or a 401 if the request has no valid token."""
        if self.token is None or not self.can_add:
            raise HTTPException(403, "adding labels is off; start the server with --token-file")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_valid = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != "bearer" or not is_valid:
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


@contextmanager
def _as_status(status: int) -> Iterator[None]:
    """Turn a DataError of the body into an HTTP error of this status."""
    try:
        yield
    except DataError as error:
        raise HTTPException(status, str(error)) from error


def _listed(labels: Sequence[int], served: Served) -> dict[str, Any]:
    described = [served.names.describe(label) for label in labels]
    return {"labels": described, "all_labels": served.model.num_labels}
