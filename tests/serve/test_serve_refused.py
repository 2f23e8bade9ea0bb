"""What the HTTP interface refuses, and with which sentence."""

from __future__ import annotations

import asyncio
import json
import threading

import httpx
import pytest
from fastapi.testclient import TestClient
from http_client import JSON, both_ways
from http_server import PATIENCE, refused
from starlette.staticfiles import StaticFiles

from gandalf.serve.api import ServerOptions
from gandalf.serve.app import create_app
from gandalf.serve.limits import Limits
from gandalf.serve.service import Served, Service

LIMITS = Limits()
BAD = [
    (b"{", "not JSON"),
    (b"", "the request"),
    (b"[]", "the request"),
    (b'{"text": 5}', "text: Input should be a valid string"),
    (b'{"text": "gzip \\ud800 file"}', "text: "),
    (b'{"text": []}', "text: List should have at least 1 item"),
    (b'{"k": 1}', "give either text or texts"),
    (b'{"text": "x", "texts": ["x"]}', "give either text or texts"),
    (b'{"text": null, "texts": ["x"]}', "text: "),
    (b'{"texts": "x"}', "texts: "),
    (b'{"texts": []}', "texts: List should have at least 1 item"),
    (b'{"text": "x", "k": 0}', "k: "),
    (b'{"text": "x", "k": 101}', "k: "),
    (b'{"text": "x", "k": "5"}', "k: "),
    (b'{"text": "x", "k": true}', "k: "),
    (b'{"text": "x", "k": 2.5}', "k: "),
    (b'{"text": "x", "threshold": 1.5}', "threshold: "),
    (b'{"text": "x", "threshold": NaN}', "threshold: "),
    (b'{"text": "x", "treshold": 0.5}', "treshold: "),
    (b'{"text": "x", "allow": "gzip"}', "allow: "),
    (b'{"text": "x", "allow": [true]}', "allow.0: "),
    (json.dumps({"text": "x" * (LIMITS.length + 1)}).encode(), "2000 characters"),
    (json.dumps({"text": ["x"] * (LIMITS.texts + 1)}).encode(), "text: List should have at most 256 items"),
    (json.dumps({"text": "x", "deny": [0] * (LIMITS.names + 1)}).encode(), "deny: "),
]


@pytest.mark.parametrize(("body", "said"), BAD)
def test_bad_requests(client, body, said):
    short, usual = both_ways(client, body)
    assert said in refused(short, 422) and short.json() == usual.json()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_that_is_not_said_to_be_json(client, kind):
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post("/predict", content=b'{"text": "x"}', headers=headers)
    assert "Content-Type: application/json" in refused(answer, 415)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"text": "x", "k": ' + b"1" * 5_000 + b"}", b"\xff\xfe"])
def test_bodies_that_json_itself_chokes_on(client, body):
    answer = client.post("/predict", content=body, headers=JSON)
    refused(answer, answer.status_code)
    assert answer.status_code in (400, 422)


def test_what_is_not_there(client):
    assert "no label 'no such'" in refused(
        client.post("/predict", json={"text": "x", "allow": ["no such"]}), 404
    )
    refused(client.post("/predict", json={"text": "x", "deny": [5]}), 404)
    refused(client.post("/explain", json={"text": "x", "label": 10**30}), 404)
    refused(client.get("/labels/5/neighbours"), 404)
    refused(client.get("/nothing"), 404)
    refused(client.get("/labels/x/neighbours"), 422)
    refused(client.get("/labels", params={"limit": 0}), 422)
    assert "GET is not known" in refused(client.get("/predict"), 405)
    assert client.delete("/labels").headers["allow"] == "GET, HEAD, POST"
    assert client.head("/predict").headers["allow"] == "POST"


def test_no_baseline(predictor):
    with TestClient(create_app(Service(Served(predictor)))) as alone:
        assert "no baseline" in refused(alone.post("/predict", json={"text": "x", "baseline": True}), 404)


def test_a_large_body_is_refused_with_and_without_its_length(predictor):
    app = create_app(Service(Served(predictor)), ServerOptions(limits=Limits(body=100)))
    with TestClient(app) as small:
        large = b'{"text": "' + b"x" * 200 + b'"}'
        assert "100 bytes" in refused(small.post("/predict", content=large, headers=JSON), 413)
        parts = (large[at : at + 10] for at in range(0, len(large), 10))
        assert "100 bytes" in refused(small.post("/predict", content=parts, headers=JSON), 413)
        assert small.post("/predict", content=b'{"text": "x"}', headers=JSON).status_code == 200


def test_a_full_queue_answers_503_at_once(predictor):
    class Slow(Service):
        began, go_on = threading.Event(), threading.Event()

        def answer(self, queries):
            self.began.set()
            assert self.go_on.wait(PATIENCE)
            return super().answer(queries)

    service = Slow(Served(predictor))
    app = create_app(service, ServerOptions(limits=Limits(waiting=2)))

    async def main():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://t") as ask,
        ):
            first = asyncio.create_task(ask.post("/predict", json={"text": "gzip"}))
            await asyncio.get_running_loop().run_in_executor(None, service.began.wait, PATIENCE)
            second = asyncio.create_task(ask.post("/predict", json={"text": ["gzip", "disk"]}))
            for _ in range(100):  # until it is in the queue: there is no thread on its way there
                await asyncio.sleep(0)
            busy, unready = await ask.post("/predict", json={"text": "gzip"}), await ask.get("/ready")
            service.go_on.set()
            return await first, await second, busy, unready, await ask.get("/ready")

    first, second, busy, unready, ready = asyncio.run(main())
    for answer in (busy, unready):
        assert "busy" in refused(answer, 503) and answer.headers["retry-after"] == "1"
    assert first.status_code == second.status_code == ready.status_code == 200


@pytest.mark.parametrize(
    "path", ["/static/%00", "/static/page.js%00", "/static/a%00/b", "/%00", "/labels/%00"]
)
def test_a_nul_in_a_path(client, path, monkeypatch):
    """Older releases of starlette let an error of the file system through."""
    with monkeypatch.context() as patched:
        patched.setattr(StaticFiles, "get_response", _older(StaticFiles.get_response))
        refused(client.get(path), 404)
        assert client.get("/static/page.js").status_code == 200


def _older(usual):
    async def get_response(self, path, scope):
        if "\0" in path:
            raise ValueError("embedded null byte")
        return await usual(self, path, scope)

    return get_response


def test_an_unforeseen_error_is_a_sentence(predictor, monkeypatch):
    service = Service(Served(predictor))
    monkeypatch.setattr(service, "explain", lambda *_: 1 / 0)
    with TestClient(create_app(service), raise_server_exceptions=False) as broken:
        said = refused(broken.post("/explain", json={"text": "x", "label": 0}), 500)
        assert "ZeroDivision" not in said
