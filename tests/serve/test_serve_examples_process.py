"""Examples over HTTP, with the server as a process: kills, two servers of one folder, and adds under load."""

from __future__ import annotations

import os
import signal
import threading

import httpx
import pytest
from http_server import BEARER, PATIENCE, process, token_file
from small_model import small_model

from gandalf.model import save_model

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    model = small_model()
    save_model(model, tmp_path / "small")
    return tmp_path / "small"


def add(client, id):
    """The answer to an example of that id."""
    body = {"examples": [{"text": "compress files", "labels": [0], "id": id}]}
    return client.post("examples", json=body, headers=BEARER)


def remove(client, id):
    return client.delete(f"examples/{id}", headers=BEARER).status_code


def at(address):
    return httpx.Client(base_url=address, timeout=PATIENCE)


def test_a_kill_in_the_midst_of_a_stream_loses_nothing_that_was_acknowledged(folder, tmp_path):
    token, added, removed, enough = token_file(tmp_path), [], [], threading.Event()

    def stream(address):
        with at(address) as client:
            for number in range(10_000):
                try:
                    assert add(client, f"e{number}").status_code == 201
                    added.append(f"e{number}")
                    if number % 3 == 2:
                        assert remove(client, f"e{number}") == 200
                        removed.append(f"e{number}")
                except httpx.TransportError:
                    return
                if number == 8:
                    enough.set()

    with process(folder, "--token-file", token) as (started, address):
        adder = threading.Thread(target=stream, args=[address])
        adder.start()
        assert enough.wait(PATIENCE)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
        adder.join()
    with process(folder, "--token-file", token) as (_, address), at(address) as client:
        kept = [id for id in added if id not in removed]
        # The last one may have been on its way out, its acknowledgement lost.
        gone = [id for id in kept if remove(client, id) != 200]
        assert len(kept) >= 6 and gone in ([], [added[-1]])
        assert all(remove(client, id) == 404 for id in removed)


def test_two_processes_of_one_folder_keep_what_either_was_told(folder, tmp_path):
    token = token_file(tmp_path)
    with (
        process(folder, "--token-file", token) as (_, first),
        process(folder, "--token-file", token) as (_, second),
        at(first) as one,
        at(second) as two,
    ):
        for number in range(6):
            assert add(one if number % 2 else two, f"e{number}").status_code == 201
        assert remove(one, "e0") == 200  # that the other was given
    with process(folder, "--token-file", token) as (_, address), at(address) as client:
        assert add(client, "last").json()["all_examples"] == 6
        assert remove(client, "e0") == 404 and remove(client, "e4") == 200


def test_requests_are_answered_while_examples_are_added(folder, tmp_path):
    answers, done = [], threading.Event()

    def ask(address):
        with at(address) as client:
            while not done.is_set():
                answers.append(client.post("predict", json={"text": "compress files"}).status_code)

    with process(folder, "--token-file", token_file(tmp_path)) as (_, address), at(address) as client:
        asking = [threading.Thread(target=ask, args=[address]) for _ in range(3)]
        for each in asking:
            each.start()
        try:
            for number in range(40):
                assert add(client, f"e{number}").status_code == 201
                assert number % 2 or remove(client, f"e{number}") == 200
        finally:
            done.set()
            for each in asking:
                each.join()
        assert add(client, "last").json()["all_examples"] == 21
    assert len(answers) > 10 and set(answers) == {200}
