"""Applications that tests ask without a process, by a client in this one."""

from __future__ import annotations

from contextlib import contextmanager

from fastapi.testclient import TestClient
from http_server import TOKEN
from small_model import small_model

from gandalf.predict.predictor import Predictor
from gandalf.serve.api import ServerOptions
from gandalf.serve.app import create_app
from gandalf.serve.journal import Journal
from gandalf.serve.service import Served, Service

JSON = {"content-type": "application/json"}


@contextmanager
def beside_a_baseline(predictor):
    """A client of two models, and of labels that stay as they are."""
    baseline = Served(Predictor(small_model(seed=3, calibrated=False)))
    with TestClient(create_app(Service(Served(predictor), baseline))) as found:
        yield found


@contextmanager
def that_adds(path):
    """A client of a model whose labels may be added to, in a journal there."""
    model = small_model()
    service = Service(Served(Predictor(model)), journal=Journal(path, model))
    with TestClient(create_app(service, ServerOptions(token=TOKEN))) as found:
        yield found


def both_ways(client, body):
    """The answer by the short way, and by FastAPI's: a content type with a parameter takes that."""
    usual = {"content-type": "application/json; charset=utf-8"}
    return (client.post("/predict", content=body, headers=headers) for headers in (JSON, usual))
