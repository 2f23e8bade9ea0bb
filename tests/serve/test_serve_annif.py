"""The paths of Annif's REST interface: what its `http` backend sends and reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from http_server import process, refused
from small_model import LABELS

from gandalf.serve.limits import Limits

SUGGEST = "/v1/projects/gandalf/suggest"
ANNIF = os.environ.get("ANNIF", "")  # the command, in an environment of its own: make annif-test


def test_a_form_is_answered_as_a_prediction(client):
    text = "bzip2 files"
    (usual,) = client.post("/predict", json={"text": text, "k": 2}).json()["results"]
    found = client.post(SUGGEST, data={"text": text, "limit": 2})
    assert found.status_code == 200 and [*found.json()] == ["results"]
    assert found.json()["results"] == [
        {"uri": each["id"], "label": each["text"], "notation": None, "score": each["score"]}
        for each in usual["labels"]
    ]


def test_more_than_there_is_and_fields_of_annif_are_taken(client):
    data = {"text": "gzip", "limit": 1000, "project": "mine", "language": "en", "metadata_title": "a"}
    assert len(client.post(SUGGEST, data=data).json()["results"]) == len(LABELS)
    half = client.post(SUGGEST, data={"text": "gzip", "threshold": 0.5}).json()["results"]
    assert all(each["score"] >= 0.5 for each in half)


def test_of_a_long_text_the_beginning_counts(client):
    long = "gzip " * Limits().length
    short = client.post(SUGGEST, data={"text": long[: Limits().length]})
    assert client.post(SUGGEST, data={"text": long}).json() == short.json()


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        (b"limit=3", 422, "text"),
        (b"text=a&limit=0", 422, "limit"),
        (b"text=a&limit=x", 422, "limit"),
        (b"text=a&threshold=2", 422, "threshold"),
        (b"text=%ff", 422, "UTF-8"),
        (b"text=a&" + b"&".join(b"f%d=1" % n for n in range(200)), 422, "fields"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(client, content, status, named):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert named in refused(client.post(SUGGEST, content=content, headers=headers), status)


def test_json_is_told_to_be_a_form(client):
    assert "form" in refused(client.post(SUGGEST, json={"text": "gzip"}), 415)


def test_the_project_is_ready(client):
    project = client.get("/v1/projects/gandalf").json()
    assert project["is_trained"] is True and project["project_id"] == "gandalf"
    assert client.get("/v1/projects").json() == {"projects": [project]}
    refused(client.get("/v1/projects/other"), 404)


PROJECTS = """[served]
name=A model that gandalf serves
language=en
backend=http
vocab=labels
endpoint={address}v1/projects/gandalf/suggest
limit=3
"""


@pytest.mark.skipif(not ANNIF, reason="needs Annif in an environment of its own: make annif-test")
@pytest.mark.slow
def test_annif_asks_a_served_model(tmp_path):
    """Train on Annif's own files, serve, and let Annif suggest, list and evaluate."""
    subjects = {"http://a/1": "compressed files", "http://a/2": "disk usage", "http://a/3": "user accounts"}
    corpus, vocabulary = tmp_path / "corpus.tsv", tmp_path / "vocab.tsv"
    vocabulary.write_text("".join(f"<{uri}>\t{label}\n" for uri, label in subjects.items()))
    corpus.write_text(
        "".join(f"{label} {n}\t<{uri}>\n" for n in range(20) for uri, label in subjects.items())
    )
    model = tmp_path / "model"
    words = ["train", corpus, model, "--labels", vocabulary, "--system", "linear", "--validation", "0"]
    subprocess.run([sys.executable, "-m", "gandalf", *map(str, words)], check=True, capture_output=True)

    def annif(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [ANNIF, *words], input=given, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with process(model) as (_, address):
        (tmp_path / "projects.cfg").write_text(PROJECTS.format(address=address))
        annif("load-vocab", "--language", "en", "labels", str(vocabulary))
        listed = annif("list-projects")
        assert "served" in listed and "True" in listed
        first = annif("suggest", "served", given="how to read compressed files").splitlines()[0]
        assert first.split("\t")[:2] == ["<http://a/1>", "compressed files"]
        scores = tmp_path / "scores.json"
        annif("eval", "--metrics-file", str(scores), "served", str(corpus))
        assert json.loads(scores.read_text())["Precision@1"] == 1.0
