"""The HTTP interface: what is asked and answered, what is refused, and with which sentence."""

from __future__ import annotations

import asyncio
import json
import threading

import httpx
import pytest
from fastapi.testclient import TestClient
from http_server import BEARER, TOKEN, refused
from small_model import LABELS, small_model

from gandalf.predict.codes import build_codes
from gandalf.predict.explain import Explainer
from gandalf.predict.predictor import Predictor
from gandalf.serve.app import create_app
from gandalf.serve.journal import Journal
from gandalf.serve.limits import Limits
from gandalf.serve.service import Served, Service


@pytest.fixture(scope="module")
def predictor():
    return Predictor(small_model())


@pytest.fixture(scope="module")
def client(predictor):
    baseline = Served(Predictor(small_model(seed=3, calibrated=False)))
    with TestClient(create_app(Service(Served(predictor), baseline))) as found:
        yield found


@pytest.fixture
def adding(tmp_path):
    model = small_model()
    journal = Journal(tmp_path / "added.jsonl", model)
    with TestClient(create_app(Service(Served(Predictor(model)), journal=journal), token=TOKEN)) as found:
        yield found


JSON = {"content-type": "application/json"}


def expected(predictor, text, k):
    ids, scores = predictor.predict(text, k)
    return [
        {"label": label, "id": f"L{label}", "text": LABELS[label], "score": pytest.approx(score, rel=1e-5)}
        for label, score in zip(ids.tolist(), scores.tolist(), strict=True)
    ]


# ---- predictions


def test_one_text(client, predictor):
    answer = client.post("/predict", json={"text": " bzip2  files\n", "k": 2})
    labels = expected(predictor, "bzip2 files", 2)
    assert answer.status_code == 200
    assert answer.json() == {"results": [{"text": "bzip2  files", "labels": labels}], "calibrated": True}


def test_many_texts(client, predictor):
    texts = ["gzip", "disk usage", ""]
    found = client.post("/predict", json={"text": texts, "k": 5}).json()["results"]
    assert [each["text"] for each in found] == texts
    assert [each["labels"] for each in found] == [expected(predictor, text, 5) for text in texts]


def test_a_whole_number_may_be_written_with_a_point(client):
    found = client.post("/predict", json={"text": "x", "k": 2.0, "deny": [1.0]}).json()["results"][0][
        "labels"
    ]
    assert len(found) == 2 and all(each["label"] != 1 for each in found)


def test_k_above_the_labels_gives_all(client):
    assert len(client.post("/predict", json={"text": "x", "k": 100}).json()["results"][0]["labels"]) == 5


def test_threshold_allow_and_deny(client, predictor):
    def numbers(**more):
        found = client.post("/predict", json={"text": "bzip2 files", "k": 5, **more}).json()
        return [label["label"] for label in found["results"][0]["labels"]]

    order = [label["label"] for label in expected(predictor, "bzip2 files", 5)]
    scores = predictor.predict("bzip2 files", 5)[1]
    assert numbers(threshold=float(scores[1])) == order[:2] and numbers(threshold=1.0) == []
    assert numbers(allow=["disk usage", "L1", 3]) == [label for label in order if label in (1, 2, 3)]
    assert numbers(deny=["GZIP"]) == [label for label in order if label not in (0, 4)]
    assert numbers(allow=[]) == [] and numbers(allow=[1, 2], deny=[1]) == [2]


def test_the_baseline_beside_it(client):
    found = client.post("/predict", json={"text": "gzip", "k": 1, "baseline": True}).json()
    other = Predictor(small_model(seed=3, calibrated=False)).predict("gzip", 1)
    assert found["baseline"][0]["labels"][0]["label"] == other[0][0]
    assert found["baseline"][0]["labels"][0]["score"] == pytest.approx(float(other[1][0]), rel=1e-5)


# ---- explanations and labels


def test_explain(client, predictor):
    found = client.post("/explain", json={"text": "disk usage", "label": "disk usage"}).json()
    assert found["label"] == 2 and found["nearest"] is None and found["words"][0]["word"] == "disk"
    expected_ = Explainer(predictor).explain("disk usage", 2)
    assert [word["effect"] for word in found["words"]] == pytest.approx([w.effect for w in expected_.words])
    other = client.post("/explain", json={"text": "disk usage", "label": 2, "baseline": True}).json()
    assert other["probability"] != found["probability"]


def test_neighbours(client, predictor):
    found = client.get("/labels/1/neighbours").json()
    near = Explainer(predictor).near(1)
    assert found["by"] == "rows" and [each["label"] for each in found["neighbours"]] == [
        n.label for n in near.neighbours
    ]


def test_labels(client):
    found = client.get("/labels", params={"search": "FILES"}).json()
    assert found == {"labels": [{"label": 1, "id": "L1", "text": "bzip2 files"}], "all_labels": 5}
    assert len(client.get("/labels", params={"limit": 3}).json()["labels"]) == 3


def test_about_health_ready_metrics(client):
    about = client.get("/about").json()
    assert (about["labels"], about["adds_labels"], about["has_data"]) == (5, False, False)
    assert (about["search"], about["recall"]) == ("exact", None)
    assert client.get("/health").json() == client.get("/ready").json() == {"status": "ok"}
    client.post("/predict", json={"text": "x"})
    client.get("/some/path/1"), client.get("/some/path/2"), client.get("/labels/1/neighbours")
    lines = client.get("/metrics").text.splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(counts['gandalf_requests_total{path="/predict",status="200"}']) >= 1
    assert float(counts['gandalf_requests_total{path="other",status="404"}']) == 2
    assert float(counts['gandalf_requests_total{path="/labels/{label}/neighbours",status="200"}']) >= 1
    assert counts["gandalf_labels"] == "5.0" and float(counts["gandalf_batch_texts_count"]) >= 1


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/health", "/labels?limit=2", "/metrics", "/static/style.css", "/no"]
)
def test_head_is_get_without_what_it_shows(client, path):
    whole, head = client.get(path), client.head(path)
    assert head.content == b"" and head.status_code == whole.status_code
    assert head.headers["content-type"] == whole.headers["content-type"]
    if path != "/metrics":  # which have counted one more
        assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))


def test_an_index_tells_its_recall():
    model = small_model(labels=[f"label{a} {b}" for a in "abcdefgh" for b in "abcdefgh"], ids=False)
    index = build_codes(model)
    with TestClient(create_app(Service(Served(Predictor(model, search=index.over(model.head)))))) as indexed:
        about = indexed.get("/about").json()
    assert about["search"] == "four-bit codes, 50 labels scored again"
    assert about["recall"] == index.recall > 0.9


def test_nothing_is_loaded_from_elsewhere(client):
    for path in ("/", "/docs"):
        answer = client.get(path)
        assert answer.status_code == 200 and "default-src 'self'" in answer.headers["content-security-policy"]
        assert "http://" not in answer.text.replace("http://www.w3.org", "") and "https://" not in answer.text


def test_the_document_tells_every_answer(client):
    document = client.get("/openapi.json").json()
    assert {*document["paths"]} >= {"/predict", "/explain", "/labels", "/health", "/ready", "/metrics"}
    asked = document["components"]["schemas"]["PredictRequest"]["properties"]
    assert (asked["k"]["minimum"], asked["k"]["maximum"]) == (1, LIMITS.k)
    errors = document["paths"]["/predict"]["post"]["responses"]
    for status in ("400", "404", "413", "422", "503"):
        assert errors[status]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")


def both_ways(client, body):
    """The answer by the short way, and by FastAPI's: a content type with a parameter takes that."""
    usual = {"content-type": "application/json; charset=utf-8"}
    return (client.post("/predict", content=body, headers=headers) for headers in (JSON, usual))


@pytest.mark.parametrize(
    "body",
    [
        {"text": "bzip2 files", "k": 3},
        {"text": ["gzip", "ﬁle ☃ 𝄞", ""], "k": 2.0, "threshold": 0.1},
        {"text": "gzip", "deny": ["L1", 0], "baseline": True},
        {"text": "gzip", "allow": [1, "disk usage"]},
    ],
)
def test_the_short_way_leads_to_the_same(client, body):
    short, usual = both_ways(client, json.dumps(body).encode())
    assert short.status_code == usual.status_code == 200 and short.json() == usual.json()
    assert {*short.headers} == {*usual.headers}


# ---- what is refused

LIMITS = Limits()
BAD = [
    (b"{", "not JSON"),
    (b"", "the request"),
    (b"[]", "the request"),
    (b'{"text": 5}', "text: Input should be a valid string"),
    (b'{"text": "gzip \\ud800 file"}', "text: "),
    (b'{"text": []}', "text: List should have at least 1 item"),
    (b'{"k": 1}', "text: Field required"),
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
    app = create_app(Service(Served(predictor)), limits=Limits(body=100))
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
            assert self.go_on.wait(10)
            return super().answer(queries)

    service = Slow(Served(predictor))
    app = create_app(service, limits=Limits(waiting=2))

    async def main():
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://t") as ask,
        ):
            first = asyncio.create_task(ask.post("/predict", json={"text": "gzip"}))
            await asyncio.get_running_loop().run_in_executor(None, service.began.wait, 10)
            second = asyncio.create_task(ask.post("/predict", json={"text": ["gzip", "disk"]}))
            while (await ask.get("/ready")).status_code == 200:
                await asyncio.sleep(0)
            busy = await ask.post("/predict", json={"text": "gzip"})
            service.go_on.set()
            return await first, await second, busy, await ask.get("/ready")

    first, second, busy, ready = asyncio.run(main())
    assert "busy" in refused(busy, 503) and busy.headers["retry-after"] == "1"
    assert first.status_code == second.status_code == ready.status_code == 200


def test_an_unforeseen_error_is_a_sentence(predictor, monkeypatch):
    service = Service(Served(predictor))
    monkeypatch.setattr(service, "explain", lambda *_: 1 / 0)
    with TestClient(create_app(service), raise_server_exceptions=False) as broken:
        said = refused(broken.post("/explain", json={"text": "x", "label": 0}), 500)
        assert "ZeroDivision" not in said


# ---- adding labels


def new(*labels):
    return {"labels": list(labels)}


def test_adding_is_off_by_default(client):
    assert "off" in refused(client.post("/labels", json=new({"text": "x"}), headers=BEARER), 403)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}])
def test_a_wrong_token(adding, headers):
    answer = adding.post("/labels", json=new({"text": "x"}), headers=headers)
    assert "token" in refused(answer, 401) and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"x" * 70_000, b'{"labels": []}'])
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_who_has_no_token_is_told_so_whatever_is_sent(client, adding, body, kind):
    headers = {"content-type": kind}
    assert "token" in refused(adding.post("/labels", content=body, headers=headers), 401)
    assert "off" in refused(client.post("/labels", content=body, headers=headers | BEARER), 403)
    answer = adding.post("/labels", content=body, headers=headers | BEARER)
    assert refused(answer, answer.status_code) and answer.status_code in (400, 415, 422)


def test_a_label_is_added_and_answers(adding):
    before = adding.post("/predict", json={"text": "compress tar"}).json()["results"][0]["labels"][0]
    body = new({"text": "compress tar", "examples": ["compress a file"]})
    answer = adding.post("/labels", json=body, headers=BEARER)
    assert answer.status_code == 201
    added = {"label": 5, "id": "compress tar", "text": "compress tar"}
    assert answer.json() == {"labels": [added], "all_labels": 6}
    best = adding.post("/predict", json={"text": "compress tar"}).json()["results"][0]["labels"][0]
    assert best["label"] == 5 != before["label"]
    assert adding.get("/labels", params={"search": "tar"}).json()["labels"] == [added]
    assert "gandalf_labels 6.0" in adding.get("/metrics").text
    like = {"text": "more tar", "id": "M", "neighbours": ["compress tar", "L1", 0]}
    assert adding.post("/labels", json=new(like), headers=BEARER).json()["labels"][0]["id"] == "M"


@pytest.mark.parametrize(
    ("label", "status"),
    [
        ({"text": "gzip"}, 409),
        ({"text": "  "}, 409),
        ({"text": "new", "neighbours": ["no such"]}, 409),
        ({"text": ""}, 422),
        ({"text": "new", "examples": "one"}, 422),
        ({"id": "x"}, 422),
    ],
)
def test_labels_that_cannot_be_added(adding, label, status):
    refused(adding.post("/labels", json=new(label), headers=BEARER), status)
    assert adding.get("/about").json()["labels"] == 5
