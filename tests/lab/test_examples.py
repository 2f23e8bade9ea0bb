"""Examples that count at once: added to a model, over HTTP, and by the command; removed without a trace."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import command_line
import numpy as np
import pytest
from http_client import that_adds
from http_server import BEARER, refused
from scipy.special import expit
from small_parts import needs_omikuji, small_network, small_part
from small_runs import small_splits

from gandalf.data.new_examples import Example
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model import ModelWithMemory, load_model, save_model
from gandalf.model.examples import examples_for, with_examples, without_example
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
    loudest = longer.votes_on(TEXTS[0], label)[0]
    assert (loudest.record.id, loudest.record.kind, loudest.value) == ("mine", "example", 1.0)
    back = without_example(longer, "mine")
    assert chance(back, TEXTS[0], label) == pytest.approx(chance(model, TEXTS[0], label), abs=1e-6)


def test_an_example_says_nothing_of_texts_that_are_far_away():
    model = small_network()
    longer = with_examples(model, [Example(TEXTS[0], [3])])
    vectors = model.unit_vectors(TEXTS)
    far = [at for at in range(8) if float(vectors[at] @ vectors[0]) < longer.memory.voting.doubt - 0.2]
    assert far
    for at in far:
        for label in range(5):
            assert chance(longer, TEXTS[at], label) == pytest.approx(
                chance(model, TEXTS[at], label), abs=0.01
            )


@pytest.mark.parametrize("kind", ["network", pytest.param("trees", marks=needs_omikuji)])
def test_a_label_that_is_wrong_falls_and_no_other_one(kind):
    model = small_part(kind)
    label = int(Predictor(model).predict(TEXTS[1], 1)[0][0])
    longer = with_examples(model, [Example(TEXTS[1], [label], [-1.0])])
    assert chance(longer, TEXTS[1], label) < chance(model, TEXTS[1], label)
    ids, scores = longer.best([TEXTS[1]], longer.num_labels)
    found = ids[0][ids[0] >= 0]
    np.testing.assert_allclose(
        expit(scores[0][ids[0] >= 0]), expit(longer.score([TEXTS[1]], found[np.newaxis]))[0], atol=1e-5
    )
    for other in found[found != label][:10].tolist():
        assert chance(longer, TEXTS[1], other) == pytest.approx(chance(model, TEXTS[1], other), abs=1e-4)


def test_labels_go_by_id_text_or_number():
    model = small_network()
    by_number, by_text = (
        with_examples(model, [Example(TEXTS[0], [name])]) for name in (4, model.label_texts[4])
    )
    np.testing.assert_array_equal(
        by_number.memory.groups[-1].values.toarray(), by_text.memory.groups[-1].values.toarray()
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
        (Example(TEXTS[0], [3, 3], [1.0, -1.0]), "names a label twice"),
        (Example("日本語の文章", [1]), "is known to the model"),
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
    found = examples_for(small_network(), points)
    assert [each.text for each in found] == list(points.texts)
    for row, each in enumerate(found):
        assert list(each.labels) == points.targets[[row]].indices.tolist()


def test_labels_of_other_texts_under_the_same_ids_are_refused():
    points = small_splits().train[:3]
    ids = [f"L{at}" for at in range(points.num_labels)]
    model = replace(small_network(), label_ids=ids)
    same = replace(points, label_ids=ids)
    assert examples_for(model, same)
    others = replace(same, label_texts=[f"other {text}" for text in points.label_texts])
    with pytest.raises(DataError, match="in the data, and"):
        examples_for(model, others)
    assert examples_for(small_network(), replace(same, label_ids=[f"X{at}" for at in range(len(ids))]))


# ---- the command


@pytest.fixture
def folder(tmp_path):
    save_model(small_network(), tmp_path / "model", metrics={"P@1": 50.0})
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
    assert "measured before examples were added" in (out / "README.md").read_text("utf-8")
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


def test_a_refused_request_leaves_nothing_behind(adding):
    """Labels of a request that was refused were once taken for known."""
    new = {"text": "new one gzip", "labels": ["typo"]}
    refused(post(adding, new, new_labels=[{"text": "alpha"}]), 409)
    assert post(adding, new | {"labels": ["beta"]}, new_labels=[{"text": "beta"}]).status_code == 201
    refused(post(adding, new | {"labels": ["alpha"]}, new_labels=[{"text": "gamma"}]), 409)


def test_an_id_may_hold_a_slash(adding):
    assert post(adding, {"text": "compress", "labels": [1], "id": "http://a/b"}).status_code == 201
    assert adding.delete("/examples/http%3A%2F%2Fa%2Fb", headers=BEARER).status_code == 200


def test_predictions_stay_calibrated(adding):
    before = adding.post("/predict", json={"text": "compress"}).json()["calibrated"]
    post(adding, {"text": "compress", "labels": [1]})
    assert adding.post("/predict", json={"text": "compress"}).json()["calibrated"] == before


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


def test_every_removal_reaches_the_other_server(tmp_path):
    """A file that is written anew may get the inode of the one it replaces."""
    model, path = small_network(), tmp_path / "added.jsonl"
    one, other = (Service(Served(Predictor(model)), journal=Journal(path, model)) for _ in range(2))
    one.add_examples([Example(TEXTS[at], [at], id=f"e{at}") for at in range(6)])
    for at in range(5):
        other.catch_up()
        assert one.remove_example(f"e{at}") and not one.remove_example(f"e{at}")
        other.catch_up()
        assert one.examples == other.examples == 5 - at
    one.add_examples([Example(TEXTS[at], [at], id=f"f{at}") for at in range(6)])
    other.catch_up()
    assert other.examples == 7


def test_after_a_removal_a_server_answers_as_after_a_restart(tmp_path):
    model, path = small_network(), tmp_path / "added.jsonl"
    service = Service(Served(Predictor(model)), journal=Journal(path, model))
    service.add_examples([Example(TEXTS[0], [0], id="e")])
    service.add([NewLabel("a label with examples", examples=(TEXTS[1], "", TEXTS[2]))])
    service.remove_example("e")
    again = Service(Served(Predictor(model)), journal=Journal(path, model))
    for text in TEXTS:
        assert answers(service, text) == pytest.approx(answers(again, text), abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_added_and_removed_a_server_answers_as_after_a_restart(seed, tmp_path):
    model, path, dice = small_network(), tmp_path / "added.jsonl", random.Random(seed)
    service, there = Service(Served(Predictor(model)), journal=Journal(path, model)), []
    for number in range(12):
        kind = dice.choice(["label", "label with examples", "example", "example", "removal", "removal"])
        if kind.startswith("label"):
            examples = (dice.choice(TEXTS),) if kind.endswith("examples") else ()
            service.add([NewLabel(f"{kind} {number}", examples=examples)])
        elif kind == "example":
            there.append(f"e{number}")
            service.add_examples([Example(dice.choice(TEXTS), [dice.randrange(5)], id=there[-1])])
        elif there:
            assert service.remove_example(there.pop(dice.randrange(len(there))))
    again = Service(Served(Predictor(model)), journal=Journal(path, model))
    assert again.examples == service.examples == len(there)
    for text in TEXTS:
        assert answers(service, text) == pytest.approx(answers(again, text), abs=1e-5)


def test_a_removal_makes_no_other_change_again(tmp_path, monkeypatch):
    model = small_network()
    service = Service(Served(Predictor(model)), journal=Journal(tmp_path / "added.jsonl", model))
    service.add_examples([Example(TEXTS[at], [at], id=f"e{at}") for at in range(3)])
    monkeypatch.setattr(service, "_with_journal_change", None)
    assert service.remove_example("e2") and service.examples == 2


def test_a_journal_outlives_a_change_of_the_folder(tmp_path):
    """What it removed may be gone, and what it added may be there already."""
    plain, path = small_network(), tmp_path / "added.jsonl"
    model = with_examples(plain, [Example(TEXTS[0], [1], id="old")])
    service = Service(Served(Predictor(model)), journal=Journal(path, model))
    service.remove_example("old")
    service.add_examples([Example(TEXTS[1], [2], id="new")])
    assert Service(Served(Predictor(plain)), journal=Journal(path, plain)).examples == 1
    holding = with_examples(plain, [Example(TEXTS[1], [3], id="new")])
    again = Service(Served(Predictor(holding)), journal=Journal(path, holding))
    assert again.examples == 1 and again.served.model.votes_on(TEXTS[1], 2)


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
    assert again.remove_example("kept") and not again.examples
    again.add_examples([Example(TEXTS[0], [1], id="kept")])
    again.add_examples([Example(TEXTS[1], [2], id="next")])
    assert again.examples == 2 and b"half" not in path.read_bytes()
