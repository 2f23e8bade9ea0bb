"""Names that a server answers to: those of loopback, the one it is bound to, and those of an option."""

from __future__ import annotations

import command_line
import pytest
from fastapi.testclient import TestClient
from http_server import refused

from gandalf.errors import DataError
from gandalf.serve.api import ServerOptions
from gandalf.serve.app import create_app
from gandalf.serve.hosts import allowed_hosts
from gandalf.serve.service import Served, Service


@pytest.fixture(scope="module")
def named(predictor):
    app = create_app(Service(Served(predictor)), ServerOptions(hosts=("0.0.0.0", "my.example", "fd00::7")))
    with TestClient(app, base_url="http://192.0.2.1:8000") as found:
        yield found


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8000", "LOCALHOST.:80", "127.0.0.1:1", "[::1]:8000"),
        *("0.0.0.0:8000", "my.example", "[fd00::7]", "192.0.2.1:8000"),
    ],
)
def test_own_names(named, host):
    assert named.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", "192.0.2.2"])
def test_other_names_are_refused(named, host):
    for answer in (
        named.get("/labels", headers={"host": host}),
        named.get("/", headers={"host": host}),
        named.post("/predict", json={"text": "gzip"}, headers={"host": host}),
    ):
        assert "--allow-host" in refused(answer, 421)


@pytest.mark.parametrize(
    "host", ["", " ", "a b", "http://localhost", "localhost:x", "user@localhost", "\xe9"]
)
def test_what_is_no_name_is_refused(named, host):
    refused(named.get("/health", headers={"host": host.encode("latin-1")}), 400)


def test_two_names_are_refused(named):
    refused(named.get("/health", headers=[("host", "localhost"), ("host", "localhost")]), 400)


@pytest.mark.parametrize("path", ["/predict/", "/labels/", "/static", "/health/"])
def test_nothing_leads_elsewhere(named, path):
    answer = named.get(path, follow_redirects=False)
    assert answer.status_code == 404 and "location" not in answer.headers


@pytest.mark.parametrize("name", ["http://my.example", "my.example:80", "a b", "", "*"])
def test_an_option_that_is_no_name(name, small_folder):
    with pytest.raises(DataError, match="not the name of a host"):
        allowed_hosts([name])
    if name == "a b":
        said = command_line.fails("serve", small_folder, "--port", 0, "--allow-host", name)
        assert "'a b' is not the name of a host" in said
