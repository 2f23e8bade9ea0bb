"""Labels that are added over HTTP: by whom, and what then."""

from __future__ import annotations

import pytest
from http_client import that_adds
from http_server import BEARER, TOKEN, refused


@pytest.fixture
def adding(tmp_path):
    with that_adds(tmp_path / "added.jsonl") as found:
        yield found


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
