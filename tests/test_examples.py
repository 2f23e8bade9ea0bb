"""Examples that count at once: added to a model, over HTTP, and by the command; removed without a trace."""

from __future__ import annotations

import json

import command_line
import numpy as np
import pytest
from http_client import that_adds
from http_server import BEARER, refused
from small_parts import small_network, small_part
from small_runs import small_splits

from gandalf.data.new_examples import Example, examples_of
from gandalf.errors import DataError
from gandalf.model import ModelWithMemory, load_model, save_model
from gandalf.model.examples import with_examples, without_example
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query
from gandalf.serve.journal import Journal
from gandalf.serve.service import Served, Service

TEXTS = list(small_splits().test.texts[:8])


def chance(model, text: str, label: int) -> float:
    ids, scores = Predictor(model).predict(text, model.num_labels)
    return float(scores[ids == label][0])


@pytest.mark.parametrize("kind", ["network", "network with memory"])
def test_an_example_counts_for_its_text_and_says_so(kind):
    model = small_part(kind)
    label = 17
    longer = with_examples(model, [Example(TEXTS[0], [label], id="mine")])
    assert isinstance(longer, ModelWithMemory) and longer.num_labels == model.num_labels
    assert chance(longer, TEXTS[0], label) > chance(model, TEXTS[0], label) + 0.02
    loudest = longer.voices(TEXTS[0], label)[0]
    assert (loudest.record.id, loudest.record.kind, loudest.value) == ("mine", "example", 1.0)
    back = without_example(longer, "mine")
    assert chance(back, TEXTS[0], label) == pytest.approx(chance(model, TEXTS[0], label), abs=1e-6)


def test_an_example_says_nothing_of_texts_that_are_far_away():
    model = small_network()
    longer = with_examples(model, [Example("aardvark zither", [3])])
    for text in TEXTS[:4]:
        vectors = model.unit_vectors([text, "aardvark zither"])
        if float(vectors[0] @ vectors[1]) < longer.memory.voting.doubt - 0.2:
            for label in range(5):
                assert chance(longer, text, label) == pytest.approx(chance(model, text, label), abs=0.01)


def test_a_label_that_is_wrong_falls():
    model = small_network()
    label = int(Predictor(model).predict(TEXTS[1], 1)[0][0])
    longer = with_examples(model, [Example(TEXTS[1], [label], [-1.0])])
    assert chance(longer, TEXTS[1], label) < chance(model, TEXTS[1], label)


def test_labels_go_by_id_text_or_number():
    model = small_network()
    by_number, by_text = (
        with_examples(model, [Example(TEXTS[0], [name])]) for name in (4, model.label_texts[4])
    )
    np.testing.assert_array_equal(
        by_number.memory.blocks[-1].values.toarray(), by_text.memory.blocks[-1].values.toarray()
    )


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (Example("  ", [1]), "no text"),
        (Example("text", []), "no list of labels"),
        (Example("text", "zip"), "no list of labels"),
        (Example("text", ["no such label"]), "is no label of the model"),
        (Example("text", [10_000]), "is no label of the model"),
        (Example("text", [1], [float("nan")]), "has the value nan"),
        (Example("text", [1], [2.0]), "has the value 2.0"),
        (Example("text", [1, 2], [1.0]), "2 labels and 1 values"),
    ],
)
def test_examples_that_cannot_be_are_refused(example, said):
    with pytest.raises(DataError, match=said):
        with_examples(small_network(), [example])


def test_an_id_is_taken_once():
    one = Example(TEXTS[0], [1], id="a")
    with pytest.raises(DataError, match="already"):
        with_examples(small_network(), [one, one])
    with pytest.raises(DataError, match="no example 'b'"):
        without_example(with_examples(small_network(), [one]), "b")
    with pytest.raises(DataError, match="no example 'b'"):
        without_example(small_network(), "b")


def test_points_of_a_data_set_are_examples():
    points = small_splits().train[:3]
    found = examples_of(points)
    assert [each.text for each in found] == list(points.texts)
    assert [len(each.labels) for each in found] == np.diff(points.targets.indptr).tolist()


# ---- the command


@pytest.fixture
def folder(tmp_path):
    save_model(small_network(), tmp_path / "model")
    return tmp_path / "model"


def write_csv(path, rows):
    lines = [f'"{text}","{label}"' for text, label in rows]
    path.write_text("\n".join(["text,labels", *lines]) + "\n", "utf-8")
    return path


def test_the_command_adds_examples(folder, tmp_path):
    names = small_network().label_texts
    file = write_csv(tmp_path / "more.csv", [(TEXTS[0], names[3]), (TEXTS[1], names[9])])
    out = tmp_path / "longer"
    said = command_line.done("add-examples", folder, file, "-o", out)
    assert "2 examples added" in said and "gandalf remember" in said
    longer = load_model(out)
    assert len(longer.memory.examples) == 2
    assert chance(longer, TEXTS[0], 3) > chance(load_model(folder), TEXTS[0], 3)
    command_line.done("add-examples", out, file, "--in-place", "--json")
    assert len(load_model(out).memory.examples) == 4


def test_new_labels_come_with_examples_if_that_is_asked_for(folder, tmp_path):
    file = write_csv(tmp_path / "more.csv", [(TEXTS[0], "a wholly new label"), (TEXTS[1], "another one")])
    said = command_line.fails("add-examples", folder, file, "-o", tmp_path / "out")
    assert "is no label of the model" in said and not (tmp_path / "out").exists()
    said = command_line.done("add-examples", folder, file, "-o", tmp_path / "out", "--new-labels")
    assert "2 new labels" in said
    longer = load_model(tmp_path / "out")
    assert longer.label_texts[-2:] == ["a wholly new label", "another one"]
    assert chance(longer, TEXTS[0], longer.num_labels - 2) > 0.3


# ---- a server


@pytest.fixture
def adding(tmp_path):
    with that_adds(tmp_path / "added.jsonl") as found:
        yield found


def post(client, *examples, **more):
    return client.post("/examples", json={"examples": list(examples), **more}, headers=BEARER)


def score_of(client, text: str, label: int) -> float:
    labels = client.post("/predict", json={"text": text, "k": 5}).json()["results"][0]["labels"]
    return next((each["score"] for each in labels if each["label"] == label), 0.0)


def test_the_next_request_uses_an_example_and_removal_ends_it(adding, tmp_path):
    text = "compress a file"
    before = score_of(adding, text, 3)
    answer = post(adding, {"text": text, "labels": [3], "id": "mine"}, {"text": "other", "labels": ["L1"]})
    assert answer.status_code == 201 and answer.json()["all_examples"] == 2
    assert answer.json()["examples"][0] == {"id": "mine", "text": text}
    assert score_of(adding, text, 3) > before + 0.1
    explained = adding.post("/explain", json={"text": text, "label": 3}).json()["remembered"]
    assert explained[0]["id"] == "mine" and explained[0]["share"] > 0.1
    gone = adding.delete("/examples/mine", headers=BEARER)
    assert gone.status_code == 200 and gone.json()["all_examples"] == 1
    assert score_of(adding, text, 3) == pytest.approx(before, abs=0.05)
    kept = (tmp_path / "added.jsonl").read_text("utf-8")
    assert "mine" not in kept and text not in kept and "other" in kept
    assert "no example" in refused(adding.delete("/examples/mine", headers=BEARER), 404)


def test_new_labels_come_with_examples(adding):
    answer = post(
        adding, {"text": "make it tiny", "labels": ["shrinking"]}, new_labels=[{"text": "shrinking"}]
    )
    assert answer.status_code == 201 and adding.get("/about").json()["labels"] == 6
    assert score_of(adding, "make it tiny", 5) > 0.2


@pytest.mark.parametrize(
    ("example", "status"),
    [
        ({"text": "x", "labels": ["no such"]}, 409),
        ({"text": " ", "labels": [1]}, 409),
        ({"text": "x", "labels": [1], "values": [1.0, 1.0]}, 409),
        ({"text": "", "labels": [1]}, 422),
        ({"text": "x", "labels": []}, 422),
        ({"text": "x", "labels": [1], "values": [7.0]}, 422),
        ({"text": "x"}, 422),
    ],
)
def test_examples_that_cannot_be_added_over_http(adding, example, status):
    refused(post(adding, example), status)
    assert "remembered" in adding.post("/explain", json={"text": "compress", "label": 0}).json()


def test_nan_is_refused_over_http(adding):
    body = b'{"examples": [{"text": "x", "labels": [1], "values": [NaN]}]}'
    headers = BEARER | {"content-type": "application/json"}
    answer = adding.post("/examples", content=body, headers=headers)
    assert answer.status_code in (400, 422) and refused(answer, answer.status_code)


def test_examples_need_the_token(client, adding):
    body = {"examples": [{"text": "x", "labels": [1]}]}
    assert "off" in refused(client.post("/examples", json=body, headers=BEARER), 403)
    assert "token" in refused(adding.post("/examples", json=body), 401)
    assert "token" in refused(adding.delete("/examples/x"), 401)


# ---- several processes on one journal


def answers(service, text):
    """Scores by label."""
    (found,) = service.answer([(Query((text,), 5), False)])
    return dict(found[0])


def test_two_servers_of_one_journal_agree_and_a_restart_loses_nothing(tmp_path):
    model, path = small_network(), tmp_path / "added.jsonl"
    one, other = (Service(Served(Predictor(model)), journal=Journal(path, model)) for _ in range(2))
    for at in range(5):
        (one, other)[at % 2].add_examples([Example(TEXTS[at], [at], id=f"e{at}")])
    one.catch_up()
    other.catch_up()
    again = Service(Served(Predictor(model)), journal=Journal(path, model))
    for service in (one, other, again):
        assert service.examples == 5
        for text in TEXTS[:5]:
            assert answers(service, text) == pytest.approx(answers(one, text), abs=1e-5)
    other.remove_example("e2")
    one.catch_up()
    assert one.examples == other.examples == 4 and TEXTS[2] not in path.read_text("utf-8")
    assert answers(one, TEXTS[2]) == pytest.approx(answers(other, TEXTS[2]), abs=1e-5)
    one.add_examples([Example(TEXTS[6], [6], id="after")])
    other.catch_up()
    assert other.examples == 5


def test_an_example_of_the_folder_is_removed_by_its_id(tmp_path):
    model, path = with_examples(small_network(), [Example(TEXTS[0], [1], id="old")]), tmp_path / "added.jsonl"
    service = Service(Served(Predictor(model)), journal=Journal(path, model))
    service.remove_example("old")
    again = Service(Served(Predictor(model)), journal=Journal(path, model))
    assert service.examples == again.examples == 0
    assert json.loads(path.read_text("utf-8").splitlines()[1]) == {"removed": ["old"]}


def test_a_line_that_was_cut_short_was_never_acknowledged(tmp_path):
    model, path = small_network(), tmp_path / "added.jsonl"
    service = Service(Served(Predictor(model)), journal=Journal(path, model))
    service.add_examples([Example(TEXTS[0], [1], id="kept")])
    with open(path, "ab") as file:
        file.write(b'{"examples": [{"text": "half')
    again = Service(Served(Predictor(model)), journal=Journal(path, model))
    again.add_examples([Example(TEXTS[1], [2], id="next")])
    assert again.examples == 2 and b"half" not in path.read_bytes()
