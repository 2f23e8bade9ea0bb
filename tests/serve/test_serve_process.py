"""The server as a process: it drains when told to end, loses nothing when killed, and workers agree."""

from __future__ import annotations

import os
import signal
import socket
import threading

import command_line
import httpx
import pytest
from http_server import BEARER, PATIENCE, process, token_file
from small_model import small_model

from gandalf.model import save_model
from gandalf.serve.sockets import bound_socket

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    save_model(small_model(), tmp_path / "small")
    return tmp_path / "small"


def add(address, text):
    return httpx.post(f"{address}labels", json={"labels": [{"text": text}]}, headers=BEARER, timeout=PATIENCE)


def test_added_labels_are_served_without_a_token_too(folder, tmp_path):
    with process(folder, "--token-file", token_file(tmp_path)) as (started, address):
        assert add(address, "a label of mine").status_code == 201
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
    with process(folder) as (_, address):
        found = httpx.get(f"{address}labels", params={"search": "of mine"}, timeout=PATIENCE).json()["labels"]
        assert [each["text"] for each in found] == ["a label of mine"]
        assert add(address, "another").status_code == 403


def test_what_was_acknowledged_survives_a_kill(folder, tmp_path):
    """Killed in the midst of a stream of additions."""
    token, acknowledged, enough = token_file(tmp_path), [], threading.Event()

    def stream(address):
        with httpx.Client(timeout=PATIENCE) as client:
            for number in range(10_000):
                try:
                    text = f"label number {number}"
                    body = {"labels": [{"text": text}]}
                    answer = client.post(f"{address}labels", json=body, headers=BEARER)
                except httpx.TransportError:
                    return
                assert answer.status_code == 201
                acknowledged.append(text)
                if number == 5:
                    enough.set()

    with process(folder, "--token-file", token) as (started, address):
        adder = threading.Thread(target=stream, args=[address])
        adder.start()
        assert enough.wait(PATIENCE)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
        adder.join()
    with process(folder, "--token-file", token) as (_, address):
        asked = {"search": "label number", "limit": 100}
        found = httpx.get(f"{address}labels", params=asked, timeout=PATIENCE).json()
        assert len(acknowledged) >= 6
        texts = [each["text"] for each in found["labels"]]
        # One more may have been written whose acknowledgement did not arrive.
        assert texts[: len(acknowledged)] == acknowledged[:100] and len(texts) <= len(acknowledged) + 1


def test_it_drains_when_told_to_end(folder):
    with process(folder) as (started, address), httpx.Client(base_url=address, timeout=PATIENCE) as client:
        assert client.get("/health").status_code == 200
        body = b'{"text": "gzip"}'

        def parts():
            yield body[:5]
            started.terminate()  # the request is under way, and only half of it is there
            yield body[5:]

        json = {"content-type": "application/json"}
        answer = client.post("/predict", content=parts(), headers=json)
        assert answer.status_code == 200 and answer.json()["results"][0]["text"] == "gzip"
        assert started.wait(PATIENCE) in (0, -signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{address}health")


def test_who_sends_too_much_reads_why(folder):
    with process(folder) as (_, address), httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for _ in range(5):
            answer = client.post("/predict", content=b"x" * (4 << 20))  # sent whole before an answer is read
            assert answer.status_code == 413 and "connection" not in answer.headers
        assert client.get("/health").status_code == 200
        parts = (b"x" * (1 << 20) for _ in range(4))  # without its length
        assert client.post("/predict", content=parts).status_code == 413
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as more:
            more.sendall(b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n")
            told = b"".join(iter(lambda: more.recv(4096), b""))  # until it hangs up
        assert told.startswith(b"HTTP/1.1 413") and b"connection: close" in told.lower()


def test_workers_share_what_is_added(folder, tmp_path):
    with process(folder, "--token-file", token_file(tmp_path), "--workers", 2) as (started, address):
        health = httpx.get(f"{address}health", timeout=PATIENCE)
        assert health.status_code == 200  # the first who comes is served
        assert add(address, "compress tar").status_code == 201
        found = [
            httpx.post(f"{address}predict", json={"text": "compress tar", "k": 6}, timeout=PATIENCE)
            for _ in range(12)
        ]
        assert all(len(each.json()["results"][0]["labels"]) == 6 for each in found)
        assert (
            'gandalf_requests_total{path="/predict",status="200"} 12.0'
            in httpx.get(f"{address}metrics", timeout=PATIENCE).text
        )
        _read_their_writes(address)
        started.terminate()
        assert started.wait(PATIENCE) in (0, -signal.SIGTERM)


def _read_their_writes(address):
    """Whatever was acknowledged by one worker is known to all, over connections that any of them may take."""
    for number in range(12):
        name = f"label {number} of many"
        assert add(address, name).status_code == 201
        example = {"text": "compress tar", "labels": [name], "id": f"e{number}"}
        assert (
            httpx.post(f"{address}examples", json={"examples": [example]}, headers=BEARER).status_code == 201
        )
        for _ in range(4):  # each by a connection of its own
            asked = {"text": "compress tar", "allow": [name]}
            found = httpx.post(f"{address}predict", json=asked, timeout=PATIENCE)
            assert found.status_code == 200, found.text
            assert found.json()["results"][0]["labels"][0]["text"] == name
            explained = httpx.post(f"{address}explain", json={"text": "tar", "label": name}, timeout=PATIENCE)
            assert explained.status_code == 200 and explained.json()["remembered"] is not None
            labels = httpx.get(f"{address}labels", params={"search": name}, timeout=PATIENCE).json()["labels"]
            assert [each["text"] for each in labels] == [name]
    for number in range(12):
        answers = [
            httpx.delete(f"{address}examples/e{number}", headers=BEARER, timeout=PATIENCE) for _ in range(3)
        ]
        assert [each.status_code for each in answers] == [200, 404, 404]


fails = command_line.fails


def test_refusals(folder, tmp_path):
    token = tmp_path / "token"
    assert "no token can be read" in fails("serve", folder, "--port", 0, "--token-file", token)
    token.write_text("short")
    assert "at least 16 characters" in fails("serve", folder, "--port", 0, "--token-file", token)
    assert "no such model folder" in fails("serve", tmp_path / "none", "--port", 0)
    assert "no such model folder" in fails("serve", folder, "--port", 0, "--baseline", tmp_path / "none")
    assert "--port" in fails("serve", folder, "--host", "203.0.113.77", "--port", "1")
    assert "trained on 5" in fails("serve", folder, "--port", 0, "--data", "man")


def test_an_address_that_is_taken_is_told_before_anything_is_loaded(tmp_path):
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        said = fails("serve", tmp_path / "no model", "--port", taken.getsockname()[1])
    assert "cannot listen at 127.0.0.1" in said and "--port" in said


def test_answers_are_sent_without_delay():
    with bound_socket("127.0.0.1", 0) as found:
        assert found.proto == socket.IPPROTO_TCP  # else asyncio leaves Nagle's algorithm on: 40 ms a request


@pytest.mark.parametrize(
    ("command", "missing", "extra"), [("serve", "fastapi", "serve"), ("export", "onnx", "onnx")]
)
def test_a_missing_library_is_named(folder, tmp_path, command, missing, extra):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\nfrom gandalf.cli.main import app; app(sys.argv[1:])\n"
    )
    ran = command_line.python(code, command, folder, *([tmp_path / "out"] if command == "export" else []))
    assert ran.returncode == 2 and ran.stderr.startswith("error: "), ran.stderr
    assert f"needs {missing}" in ran.stderr and f"gandalf-xmc[{extra}]" in ran.stderr
