"""Explanations by brute force: words left out, nearest points, labels whose texts were taught."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec

import command_line
import numpy as np
import pytest
import torch
from small_classifier import LABELS as TOPIC_LABELS
from small_classifier import TEXTS, TOPICS, classifier
from small_model import LABELS, small_model

import gandalf
from gandalf.cli.explain import SATURATED
from gandalf.data.dataset import Dataset
from gandalf.data.words import split_words, word_places
from gandalf.errors import DataError
from gandalf.model import load_model
from gandalf.predict.explain import MOST_WORDS, Explainer, background
from gandalf.predict.predictor import Predictor
from gandalf.runs.graph import background_of

done = partial(command_line.done, "explain")
fails = partial(command_line.fails, "explain")


@pytest.fixture(scope="module")
def made_up_splits():
    return gandalf.synthetic(300, 120, seed=1).splits


@pytest.fixture(scope="module")
def explainer(trained, made_up_splits):
    model = load_model(trained)
    return Explainer(Predictor(model), background_of(model, made_up_splits))


def cosine(model, one, other):
    a, b = model.vectors([one, other]).double().numpy()
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def logit(model, text, label):
    x = model.vectors([text])[0].double()
    rows, bias = model.head.rows.detach().double(), model.head.bias.detach().double()
    return float(rows[label] @ x + bias[label])


def test_places_are_those_of_the_words():
    for text in ("HTTPServer 2 häuser", "a-b, c", "", "漢字 ok"):
        assert [text[start:end].lower() for start, end in word_places(text)] == split_words(text)


def test_words_are_left_out_in_turn(small_predictor):
    model = small_predictor.model
    found = Explainer(small_predictor).explain(" bzip2  Files, disk ", 1)
    assert [(word.word, word.start) for word in found.words] == [
        ("bzip", 0),
        ("2", 4),
        ("Files", 7),
        ("disk", 14),
    ]
    assert found.text == "bzip2  Files, disk" and found.label_text == "bzip2 files"
    rest = ["  2  Files, disk", "bzip    Files, disk", "bzip2   , disk", "bzip2  Files,  "]
    whole = logit(model, found.text, 1)
    assert found.probability == pytest.approx(1 / (1 + np.exp(-(2 * whole - 0.5))), rel=1e-5)
    for word, text in zip(found.words, rest, strict=True):
        without = logit(model, text, 1)
        assert word.effect == pytest.approx(whole - without, abs=1e-4)
        assert word.without == pytest.approx(1 / (1 + np.exp(-(2 * without - 0.5))), rel=1e-4)
    assert found.nearest is found.with_label is found.teachers is None


def test_the_word_that_is_the_label_carries_it(small_predictor):
    found = Explainer(small_predictor).explain("usage bzip2 disk", 2)
    effects = {word.word: word.effect for word in found.words}
    assert min(effects["usage"], effects["disk"]) > max(effects["bzip"], effects["2"])


def test_rows_alike(small_predictor):
    rows = small_predictor.model.head.rows.detach().double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = Explainer(small_predictor).explain("gzip", 0, shown=3).alike
    order = sorted((label for label in range(1, 5)), key=lambda label: (-(unit[label] @ unit[0]), label))
    assert [each.label for each in found] == order[:3]
    assert [each.similarity for each in found] == pytest.approx([unit[one] @ unit[0] for one in order[:3]])


def test_nearest_points_by_brute_force(explainer, made_up_splits):
    model, points = explainer.model, made_up_splits.train
    text, label = made_up_splits.test.texts[0], int(points.targets.indices[0])
    found = explainer.explain(text, label, shown=4)
    near = np.array([cosine(model, text, other) for other in points.texts])
    targets = points.targets.toarray()[:, label]
    assert [each.similarity for each in found.nearest] == pytest.approx(sorted(near)[::-1][:4], abs=1e-5)
    for each in (*found.nearest, *found.with_label):
        assert each.text == points.texts[each.point] and each.target == targets[each.point]
        assert each.similarity == pytest.approx(near[each.point], abs=1e-5)
    having = sorted(near[targets > 0])[::-1][:4]
    assert [each.similarity for each in found.with_label] == pytest.approx(having, abs=1e-5)


def test_teachers_are_the_column_of_the_graph(explainer, made_up_splits):
    points = made_up_splits.train
    graph = gandalf.label_graph(points, gandalf.GraphOptions("ratio")).matrix.toarray()
    label = int(np.argmax((graph > 0).sum(axis=0)))
    text = points.texts[0]
    found = explainer.explain(text, label, shown=10_000).teachers
    expected = {other: graph[other, label] for other in np.flatnonzero(graph[:, label]) if other != label}
    assert len(expected) > 2 and {each.label: each.target for each in found} == pytest.approx(expected)
    weights = [each.target * max(each.similarity, 0) for each in found]
    assert weights == sorted(weights, reverse=True)
    for each in found[:3]:
        assert each.similarity == pytest.approx(
            cosine(explainer.model, text, points.label_texts[each.label]), abs=1e-5
        )


def test_neighbours_in_the_graph_and_links_among_them(explainer, made_up_splits):
    graph = gandalf.label_graph(made_up_splits.train, gandalf.GraphOptions("ratio")).matrix.toarray()
    np.fill_diagonal(graph, 0)
    label = int(np.argmax((graph > 0).sum(axis=1)))
    found = explainer.near(label, shown=4)
    order = sorted(range(120), key=lambda other: (-graph[label, other], other))[:4]
    assert found.by == "graph" and [one.label for one in found.neighbours] == order
    assert [one.similarity for one in found.neighbours] == pytest.approx(graph[label, order])
    links = {(a, b): graph[a, b] for a in order for b in order if graph[a, b] > 0}
    assert links and {(a, b): value for a, b, value in found.links} == pytest.approx(links)


def test_neighbours_by_rows_where_there_is_no_graph(small_predictor):
    explainer = Explainer(small_predictor)
    found = explainer.near(0, shown=3)
    assert found.by == "rows" and found.links == ()
    assert found.neighbours == explainer.explain("x", 0, shown=3).alike


def test_an_added_label_was_taught_nothing(trained, made_up_splits):
    model = load_model(trained).add_labels(["entirely new thing"])
    found = Explainer(Predictor(model), background_of(model, made_up_splits)).explain("new thing", 120)
    assert found.teachers == found.with_label == () and len(found.nearest) == 5


def test_a_long_text_and_an_empty_one(small_predictor):
    explainer = Explainer(small_predictor)
    assert len(explainer.explain("file " * 200, 0).words) == MOST_WORDS
    assert explainer.explain("", 0).words == ()
    for label in (-1, 5):
        with pytest.raises(DataError, match="no label"):
            explainer.explain("x", label)


def test_a_model_without_label_points_is_explained_by_the_default_graph(made_up_splits):
    labels = made_up_splits.train.label_texts
    model = small_model(labels=labels, ids=False)
    model.config["recipe"] = {"targets": {"targets": "none"}}
    expected = gandalf.label_graph(made_up_splits.train, gandalf.GraphOptions("shrunk")).matrix
    assert (background_of(model, made_up_splits).graph != expected).nnz == 0


def test_other_data_is_refused(small_predictor, made_up_splits):
    points = made_up_splits.train
    with pytest.raises(DataError, match="120 labels, the model was trained on 5"):
        background(small_predictor.model, points, points.targets)
    others = Dataset(points.targets[:, :5], points.texts, ["a", "b", "c", "d", LABELS[4]])
    with pytest.raises(DataError, match="1 have the same text; give the data"):
        background(small_predictor.model, others, others.targets)


# ---- the command


def test_on_screen(trained, made_up, explainer, made_up_splits):
    text = made_up_splits.test.texts[0]
    label = int(explainer.predictor.predict(text, 1)[0][0])
    shown = done(trained, text, "--data", made_up)
    assert made_up_splits.train.label_texts[label] in shown.splitlines()[0]
    for title in (
        "Without the word",
        "Nearest training points that have it",
        "Labels whose texts were taught",
    ):
        assert title in shown


@pytest.mark.skipif(find_spec("omikuji") is None, reason="omikuji is an optional library: extra [parabel]")
def test_a_saturated_score_is_said_to_be_one(tmp_path):
    """Label trees are sure once all words of a topic are there, and stay so without one of them."""
    classifier(system="linear", settings=()).fit(TEXTS, TOPIC_LABELS).save(tmp_path / "model")
    said = done(tmp_path / "model", TOPICS["disk"], "--label", "disk")
    assert SATURATED in said and "+0.00" in said
    assert SATURATED not in done(tmp_path / "model", "usage", "--label", "network")
    assert SATURATED not in done(tmp_path / "model", "", "--label", "network")


def test_without_data_it_says_what_is_missing(small_folder):
    shown = done(small_folder, "bzip2 [red]files[/]", "--label", "disk")
    assert shown.startswith("disk usage") and "red" in shown and "--data" in shown
    assert "Labels with weights alike" in shown


def test_as_json(small_folder, small_predictor):
    found = json.loads(done(small_folder, "bzip2 files", "--label", "L2", "--top", 2, "--json"))
    expected = asdict(Explainer(small_predictor).explain("bzip2 files", 2, 2))
    assert found == json.loads(json.dumps(expected))


def test_refusals(small_folder, made_up):
    assert fails(small_folder, "x", "--label", "nothing such").startswith("no label has the id")
    assert "trained on 5" in fails(small_folder, "x", "--data", made_up)
    assert "--data" in fails(small_folder, "x", "--text-column", "t")


def test_no_gradients_are_left(small_predictor):
    Explainer(small_predictor).explain("gzip", 0)
    assert small_predictor.model.head.rows.grad is None and torch.is_grad_enabled()
