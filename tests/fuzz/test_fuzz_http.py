"""Requests changed at random: each gets a 2xx or a 4xx in JSON, or a closed connection; the server goes on.

Bodies of `/predict` are sent on the short way and on FastAPI's: both answer the same. Bounded and seeded in
`make test`; `make fuzz` goes on for longer.
"""

from __future__ import annotations

import json
import random
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from http_client import JSON, both_ways, that_adds
from http_server import BEARER, TOKEN, process, token_file
from mutate import SEED, TRIES, mutated_bytes, mutated_json

BODIES = {
    "predict": {"text": "disk usage", "k": 3, "threshold": 0.1, "allow": [0, "L1"], "deny": [2]},
    "embed": {"texts": ["disk usage", "compress"], "baseline": False},
    "explain": {"text": "disk usage", "label": 1, "baseline": False},
    "labels": {"labels": [{"text": "zstd", "examples": ["pack files"], "neighbours": [1]}]},
    "examples": {"examples": [{"text": "disk usage", "labels": [1], "values": [1.0], "id": "mine"}]},
}
REQUEST = (
    b"POST /predict?a=b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"accept: */*\r\ncontent-length: 22\r\nconnection: close\r\n\r\n"
    b'{"text": "disk usage"}'
)


def drawn(salt, number):
    return random.Random(f"{SEED} {salt} {number}")


def sent(content, dice):
    """A body with an odd value or odd bytes in it."""
    whole = json.dumps(content).encode()
    return (mutated_json if dice.random() < 0.7 else mutated_bytes)(whole, dice)


def assert_in_order(answer, what):
    assert 200 <= answer.status_code < 500, f"{what}: {answer.status_code} {answer.text}"
    found = answer.json()
    if answer.status_code >= 400:
        assert list(found) == ["error"] and "\n" not in found["error"], what
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", BODIES)
def test_bodies(path, tmp_path):
    refused = 0
    with that_adds(tmp_path / "added.jsonl") as client:
        for number in range(TRIES):
            body, what = sent(BODIES[path], drawn(path, number))
            answer = client.post(
                f"/{path}", content=body, headers=JSON | {"authorization": f"Bearer {TOKEN}"}
            )
            assert_in_order(answer, f"try {number} of seed {SEED}: {what}")
            refused += answer.status_code >= 400
        assert refused and client.get("/ready").status_code == 200


def test_both_ways_of_a_prediction_answer_alike(tmp_path):
    with that_adds(tmp_path / "added.jsonl") as client:
        for number in range(TRIES):
            body, what = sent(BODIES["predict"], drawn("both", number))
            short, usual = both_ways(client, body)
            assert (short.status_code, short.json()) == (usual.status_code, usual.json()), what


def answered(where, number):
    """The status of an answer to a changed request; None: the connection was closed."""
    request, what = mutated_bytes(REQUEST, drawn("bytes", number)) if number else (REQUEST, "unchanged")
    with socket.create_connection((where.host, where.port), timeout=120) as line:
        line.sendall(request)
        answer = b"".join(iter(lambda: line.recv(1 << 16), b""))
    if not answer:
        return None
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status < 500, f"try {number} of seed {SEED}: {what}: {answer!r}"
    assert b"application/json" in head.lower() and json.loads(body) is not None, f"{what}: {answer!r}"
    return status


def test_bytes_of_requests(small_folder, tmp_path):
    """Heads and bodies with odd bytes, over a connection; some of them wait for bytes that do not come."""
    words = ("--token-file", token_file(tmp_path), "--client-timeout", 2)
    with process(small_folder, *words) as (_, address), ThreadPoolExecutor(32) as many:
        where = httpx.URL(address)
        statuses = list(many.map(lambda number: answered(where, number), range(TRIES)))
        assert statuses[0] == 200 and set(statuses) & {400, 408, 422}
        with httpx.Client(base_url=address, headers=BEARER, timeout=120) as client:
            assert client.get("/ready").status_code == 200
            assert client.post("/labels", json=BODIES["labels"]).status_code == 201
