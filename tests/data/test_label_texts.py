"""Several texts for a label: each is a label point with that label's targets; nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array
from strategies import targets

import gandalf
from gandalf.augment.label_points import Keep, augment, label_points
from gandalf.data.check import check
from gandalf.data.dataset import Dataset, Splits
from gandalf.data.export import export
from gandalf.data.holdout import hold_out_points
from gandalf.data.load import load
from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.graph.matched_pairs import match_labels
from gandalf.recipe import Targets, Text
from gandalf.runs.prepare import epoch_steps, fit_tokens, with_label_points
from gandalf.systems import recipe

LABELS = ["hardware", "accounts", "", "urgent"]
OTHERS = [(3, "now"), (0, "kit"), (0, "broken thing"), (2, "nameless")]


def small(matrix=None, others=OTHERS, labels=LABELS, **more):
    matrix = csr_array(np.eye(3, 4, dtype=np.float32)) if matrix is None else matrix
    return Dataset(
        matrix, [f"text {s}" for s in range(matrix.shape[0])], labels, other_label_texts=others, **more
    )


def test_each_text_of_a_label_is_a_point_with_the_targets_of_the_label():
    graph = csr_array(np.arange(1, 17, dtype=np.float32).reshape(4, 4) / 16)
    made = label_points(small(ids=list("abc")), graph)
    assert made.texts == ["hardware", "accounts", "urgent", "kit", "broken thing", "nameless", "now"]
    np.testing.assert_array_equal(made.targets.toarray(), graph.toarray()[[0, 1, 3, 0, 0, 2, 3]])
    assert made.ids == [f"label:{label}" for label in (0, 1, 3, 0, 0, 2, 3)]


@given(targets(), st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abc ")), max_size=8), st.data())
def test_augmentation_by_brute_force(matrix, others, data):
    number = matrix.shape[1]
    names = data.draw(st.lists(st.sampled_from(["x", "y", ""]), min_size=number, max_size=number))
    others = [(label % number, text) for label, text in others]
    points = small(matrix, others, names)
    graph = label_graph(points, GraphOptions("ratio")).matrix
    share = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    found = augment(points, graph, Keep(share=share, seed=3))
    bare = [f"label {label}" for label in range(number)]  # the same draw of labels, with no text left out
    plain = augment(small(matrix, None, bare), graph, Keep(share=share, seed=3))
    drawn = [bare.index(text) for text in plain.texts[len(points) :]]
    expected = [(label, names[label]) for label in drawn]
    expected += [(label, text) for label in range(number) for at, text in others if at == label in drawn]
    expected = [(label, text) for label, text in expected if text.strip()]
    assert found.texts[len(points) :] == [text for _, text in expected]
    rows = graph.toarray()[[label for label, _ in expected]].reshape(len(expected), number)
    np.testing.assert_array_equal(found.targets.toarray()[len(points) :], rows)
    np.testing.assert_array_equal(found.targets.toarray()[: len(points)], matrix.toarray())


def test_the_other_texts_stay_with_the_labels():
    points = small(features=csr_array(np.eye(3, dtype=np.float32)), label_features=csr_array(np.eye(4, 3)))
    ordered = sorted(OTHERS, key=lambda pair: pair[0])
    cut = hold_out_points(small(csr_array(np.ones((9, 4)))), 0.3, 0)
    for one in (points, points[[1, 0]], points + points, cut.rest, cut.held):
        assert one.other_label_texts == ordered
    assert augment(points, csr_array(eye_array(4, format="csr"))).features is None
    assert small() != small(others=OTHERS[1:]) and small() == small(others=OTHERS[::1])
    assert small(others=[]) == small(others=None) and small(others=[]).other_label_texts is None


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match=r"other_label_texts names label 4.* 4 labels"):
        small(others=[(4, "x")])
    with pytest.raises(DataError, match="names label -1"):
        small(others=[(-1, "x"), (2, "y")])
    with pytest.raises(DataError, match="needs label_texts"):
        Dataset(csr_array(np.eye(2)), ["a", "b"], other_label_texts=[(0, "x")])


def test_a_label_without_a_text_makes_no_point_in_training():
    made = with_label_points(small(others=None), Targets(targets="self"), 0)
    assert made.points.texts[3:] == ["hardware", "accounts", "urgent"]
    assert made.is_label.tolist() == [False] * 3 + [True] * 3


def test_training_knows_the_words_and_the_number_of_all_texts():
    points = small()
    tokens = fit_tokens(points, Text(kind="words"), recipe("astec").encoder)
    of_others = tokens.encode(["kit", "zzz", ""])
    assert of_others[0].any() and (of_others[0] != of_others[1]).any()
    assert epoch_steps(points, 1) == 3 + 4 + 4 and epoch_steps(small(others=None), 1) == 3 + 4


@given(targets(), st.integers(0, 2**16))
def test_a_point_with_any_text_of_a_label_is_matched_to_it(matrix, seed):
    """By brute force: the same as if the point had the name, where the text says which label it is."""
    rng = np.random.default_rng(seed)
    number = matrix.shape[1]
    names = [f"name {rng.integers(number)}" for _ in range(number)]
    others = sorted({(int(rng.integers(number)), f"other {rng.integers(4)}") for _ in range(4)})
    texts = [*names, *(text for _, text in others), "else"]
    chosen = [texts[rng.integers(len(texts))] for _ in range(matrix.shape[0])]
    owners = {text: {label for label, each in others if each == text} for _, text in others}
    meant = {}
    for text, labels in owners.items():
        (label, *more) = labels
        if not more and names.count(names[label]) == 1:
            meant[text] = names[label]
    found = match_labels(Dataset(matrix, chosen, names, other_label_texts=others))
    renamed = match_labels(Dataset(matrix, [meant.get(text, text) for text in chosen], names))
    np.testing.assert_array_equal(found.matched_points.toarray(), renamed.matched_points.toarray())
    assert (found.labels, found.texts, len(found.pairs)) == (
        renamed.labels,
        renamed.texts,
        len(renamed.pairs),
    )
    np.testing.assert_array_equal(found.pairs.observed, renamed.pairs.observed)


FORMS = {
    "labels.csv": 'id,text,synonyms\nhw,hardware,kit;broken thing\nacc,accounts,\nnow,urgent,"[""now""]"\n',
    "labels.tsv": "id\ttext\tother_texts\nhw\thardware\tkit|broken thing|kit|\n"
    "acc\taccounts\t\nnow\turgent\tnow\n",
    "labels.jsonl": '{"id": "hw", "text": ["hardware", "kit", "broken thing", "hardware", ""]}\n'
    '{"id": "acc", "text": "accounts"}\n{"id": "now", "text": "urgent", "queries": ["now"]}\n',
}
READ = [(0, "kit"), (0, "broken thing"), (2, "now")]


@pytest.mark.parametrize("name", FORMS)
def test_label_files_with_several_texts(name, tmp_path):
    (tmp_path / "train.csv").write_text("text,labels\na,hw|now\nb,acc\n")
    (tmp_path / "test.csv").write_text("text,labels\na,hw\n")
    (tmp_path / name).write_text(FORMS[name])
    found = load(tmp_path)
    assert found.train.label_texts == ["hardware", "accounts", "urgent"]
    assert found.train.other_label_texts == found.test.other_label_texts == READ
    result = run("check", tmp_path)
    assert "3 labels, 3 other label texts" in result.stdout


def test_label_texts_of_a_program():
    rows = [{"text": "a", "label": "hw"}]
    found = load(rows, labels={"hw": ["hardware", "kit"], "acc": "accounts"}).train
    assert found.label_texts == ["hardware", "accounts"] and found.other_label_texts == [(0, "kit")]
    assert load([{"text": "a", "label": 1}], labels=[["x", "y"], "z"]).train.other_label_texts == [(0, "y")]


@pytest.mark.parametrize("format", ["raw", "csv", "jsonl"])
@pytest.mark.parametrize("ids", [None, ["h", "a", "n", "u"]])
def test_what_is_written_is_read_back(format, ids, tmp_path):
    points = small(others=OTHERS, label_ids=ids)
    if format == "raw" and ids is None:
        points = small(others=OTHERS, label_ids=list("0123"))  # the layout numbers what has no name
    export(Splits(points), tmp_path / "out", format)
    found = load(tmp_path / "out").train
    assert (found.label_texts, found.other_label_texts) == (points.label_texts, points.other_label_texts)
    np.testing.assert_array_equal(found.targets.toarray(), points.targets.toarray())


def test_metrics_and_predictions_do_not_change():
    man = gandalf.load("man")
    others = [(label, f"other {label}") for label in range(0, man.train.num_labels, 7)]
    more = gandalf.Splits(
        *(gandalf.Dataset(**{**one.__dict__, "other_label_texts": others}) for one in (man.train, man.test)),
        name=man.name,
    )
    scores = csr_array(man.test.targets)
    assert gandalf.evaluate(scores, more).as_dict() == gandalf.evaluate(scores, man).as_dict()


def test_a_model_keeps_the_names_alone():
    rows = [{"text": f"word{n % 4} thing{n}", "label": f"l{n % 4}"} for n in range(40)]
    labels = {f"l{n}": [f"name {n}", f"synonym{n}"] for n in range(4)}
    made = gandalf.train(rows, "astec", labels=labels, targets="self", steps=3, device="cpu")
    assert made.label_points == 8 and list(made.model.label_texts) == [f"name {n}" for n in range(4)]


def test_check_reads_them_without_a_word_against():
    report = check(
        [{"text": "a b", "label": "x"}], gandalf.data.formats.TableOptions(labels={"x": ["y", "z"]})
    )
    assert report.passed and json.dumps(report.as_dict())
