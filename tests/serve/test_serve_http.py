"""The HTTP interface: what is asked and answered."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from http_client import both_ways
from small_model import LABELS, small_model

from gandalf.predict.codes import build_codes
from gandalf.predict.explain import Explainer
from gandalf.predict.index import IndexSearch
from gandalf.predict.predictor import Predictor
from gandalf.serve.app import create_app
from gandalf.serve.limits import Limits
from gandalf.serve.service import Served, Service


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
    result = {"text": "bzip2  files", "labels": labels, "known": True}
    assert answer.json() == {"results": [result], "calibrated": True}


def test_many_texts(client, predictor):
    texts = ["gzip", "disk usage", ""]
    found = client.post("/predict", json={"text": texts, "k": 5}).json()["results"]
    assert [each["text"] for each in found] == texts
    assert [each["labels"] for each in found] == [*(expected(predictor, text, 5) for text in texts[:2]), []]
    assert [each["known"] for each in found] == [True, True, False]
    assert client.post("/predict", json={"texts": texts, "k": 5}).json()["results"] == found


def test_a_whole_number_may_be_written_with_a_point(client):
    found = client.post("/predict", json={"text": "gzip", "k": 2.0, "deny": [1.0]}).json()["results"][0][
        "labels"
    ]
    assert len(found) == 2 and all(each["label"] != 1 for each in found)


def test_k_above_the_labels_gives_all(client):
    assert len(client.post("/predict", json={"text": "gzip", "k": 100}).json()["results"][0]["labels"]) == 5


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
    assert (about["search"], about["recall"], about["baseline"]) == ("exact", None, "baseline")
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ok", "adding": "off"}
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
    predictor = Predictor(model, search=IndexSearch(index, model.head))
    with TestClient(create_app(Service(Served(predictor)))) as indexed:
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
    assert (asked["k"]["minimum"], asked["k"]["maximum"]) == (1, Limits().k)
    errors = document["paths"]["/predict"]["post"]["responses"]
    for status in ("400", "404", "413", "422", "503"):
        assert errors[status]["content"]["application/json"]["schema"]["$ref"].endswith("/Error")


@pytest.mark.parametrize(
    "body",
    [
        {"text": "bzip2 files", "k": 3},
        {"text": ["gzip", "ﬁle ☃ 𝄞", ""], "k": 2.0, "threshold": 0.1},
        {"texts": ["gzip", "disk usage"], "k": 1},
        {"text": "gzip", "deny": ["L1", 0], "baseline": True},
        {"text": "gzip", "allow": [1, "disk usage"]},
    ],
)
def test_the_short_way_leads_to_the_same(client, body):
    short, usual = both_ways(client, json.dumps(body).encode())
    assert short.status_code == usual.status_code == 200 and short.json() == usual.json()
    assert {*short.headers} == {*usual.headers}
