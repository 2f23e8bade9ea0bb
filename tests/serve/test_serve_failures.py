"""A prediction that breaks or hangs: its requests are told so, and the server goes on."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
from http_server import refused

from gandalf.serve.api import ServerOptions
from gandalf.serve.app import create_app
from gandalf.serve.batcher import Batcher
from gandalf.serve.limits import Limits, UnavailableError
from gandalf.serve.service import Served, Service

SOON = 120  # seconds after which a test gives up, on a machine that is busy


class Panic(BaseException):
    """As a Rust panic reaches Python: no `Exception`."""


# ---- the thread that predicts


def within(batcher, questions):
    """What each question gets, asked at the same time; an error stands for itself."""

    async def main():
        with batcher.running():
            asked = [batcher.ask(question) for question in questions]
            return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), SOON)

    return asyncio.run(main())


def test_a_panic_fails_its_requests_and_another_thread_goes_on():
    threads = []

    def answer(questions):
        threads.append(threading.get_ident())
        if "panic" in questions:
            raise Panic("index out of bounds")
        return questions

    batcher = Batcher(answer, batch_size=1, queue_size=10)
    found = within(batcher, ["one", "panic", "two", "panic", "three"])
    assert found[::2] == ["one", "two", "three"]
    assert all(isinstance(error, UnavailableError) for error in found[1::2])
    assert threads[0] == threads[1] and threads[1] != threads[2] == threads[3] != threads[4]


def test_a_panic_while_a_thread_begins_fails_what_waits():
    begun = []

    def begin():
        begun.append(threading.get_ident())
        if len(begun) < 3:
            raise Panic

    found = within(
        Batcher(list, batch_size=1, queue_size=10, on_start=begin), ["one", "two", "three", "four"]
    )
    assert [type(each) for each in found[:2]] == [UnavailableError] * 2 and found[2:] == ["three", "four"]
    assert len(begun) == 3


def test_a_thread_that_hangs_does_not_keep_the_server_from_ending():
    go_on, began = threading.Event(), threading.Event()

    def answer(questions):
        began.set()
        go_on.wait(SOON)
        return questions

    async def main():
        batcher = Batcher(answer, batch_size=1, queue_size=10, drain=0.1)
        with batcher.running():
            asked = asyncio.create_task(batcher.ask("x"))
            await asyncio.get_running_loop().run_in_executor(None, began.wait, SOON)
            asked.cancel()
        return next(each for each in threading.enumerate() if each.name == "predict")

    left = asyncio.run(main())
    assert left.daemon and left.is_alive()  # nobody has waited for it
    go_on.set()
    left.join(SOON)


def test_a_panic_fails_all_that_were_asked_with_it():
    """Questions that share a fault are asked again one by one, and one of them panics."""

    def answer(questions):
        if len(questions) > 1:
            raise ValueError
        if questions == ["panic"]:
            raise Panic
        return questions

    found = within(Batcher(answer, batch_size=3, queue_size=10), ["one", "panic", "two"])
    assert found[0] == "one" and all(isinstance(error, UnavailableError) for error in found[1:])


# ---- over HTTP


class Breaking(Service):
    """Fails as it is told, or waits until it is let go."""

    fault: BaseException | None = None
    hangs = False
    go_on = threading.Event()

    def answer(self, queries):
        if self.hangs:
            self.go_on.wait(SOON)
        if self.fault is not None:
            raise self.fault
        return super().answer(queries)

    def explain(self, text, label, baseline=False):
        if self.hangs:
            self.go_on.wait(SOON)
        return super().explain(text, label, baseline)


@pytest.fixture
def service(predictor):
    made = Breaking(Served(predictor))
    made.go_on = threading.Event()
    yield made
    made.go_on.set()


def asked(app, body):
    """What comes of some requests, one after the other, in one event loop."""

    async def main():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await asyncio.wait_for(body(client), SOON)

    return asyncio.run(main())


def predict(client):
    return client.post("/predict", json={"text": "gzip"})


@pytest.mark.parametrize("fault", [Panic("rust"), MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_a_panic_is_a_503_and_readiness_follows(service, fault):
    async def body(client):
        service.fault = fault
        broken = await predict(client), await client.get("/ready"), await predict(client)
        service.fault = None
        return *broken, await predict(client), await client.get("/ready")

    first, unready, again, after, ready = asked(create_app(service), body)
    for answer in (first, unready, again) if not isinstance(fault, Exception) else (unready,):
        refused(answer, 503)
        assert answer.headers["retry-after"] == "1"
    assert after.status_code == ready.status_code == 200


def test_a_server_whose_predictions_all_fail_is_not_ready(service):
    async def body(client):
        service.fault = ZeroDivisionError()
        return await predict(client), await client.get("/ready"), await client.get("/health")

    answer, ready, health = asked(create_app(service), body)
    refused(answer, 500)
    assert "ZeroDivision" not in refused(ready, 503) and health.status_code == 200


def test_a_server_whose_baseline_fails_is_not_ready(predictor):
    class WithoutBaseline(Service):
        def answer(self, queries):
            if any(of_baseline for _, of_baseline in queries):
                raise ZeroDivisionError
            return super().answer(queries)

    async def body(client):
        return await predict(client), await client.get("/ready")

    answer, ready = asked(create_app(WithoutBaseline(Served(predictor), Served(predictor))), body)
    assert answer.status_code == 200 and "predictions fail" in refused(ready, 503)


def test_every_request_has_a_deadline(service):
    async def body(client):
        service.hangs = True
        explained = client.post("/explain", json={"text": "gzip", "label": 0})
        late = await asyncio.gather(predict(client), client.get("/ready"), explained)
        service.hangs = False
        service.go_on.set()
        while (await predict(client)).status_code != 200 or (await client.get("/ready")).status_code != 200:
            await asyncio.sleep(0.01)  # 0.3 seconds may be too few for an answer on a machine that is busy
        return late

    for late in asked(create_app(service, ServerOptions(limits=Limits(deadline=0.3))), body):
        assert "0.3 seconds" in refused(late, 503)


def test_an_explanation_that_was_given_up_still_counts_until_it_ends(service):
    async def body(client):
        service.hangs = True
        explain = {"text": "gzip", "label": 0}
        late, full = [await client.post("/explain", json=explain) for _ in range(2)]
        service.hangs = False
        service.go_on.set()
        while (free := await client.post("/explain", json=explain)).status_code != 200:
            await asyncio.sleep(0.01)
        return late, full, free

    late, full, _ = asked(create_app(service, ServerOptions(limits=Limits(deadline=0.3, explaining=1))), body)
    assert "seconds" in refused(late, 503) and "busy" in refused(full, 503)
