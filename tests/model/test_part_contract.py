"""What every kind of model promises: networks, label trees and mixes keep one contract."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from command_line import done, fails, python
from fastapi.testclient import TestClient
from scipy.sparse import csr_array
from scipy.special import expit
from small_parts import KINDS, needs_omikuji, small_network, small_part, small_trees
from small_runs import small_splits

import gandalf
from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.estimator import GandalfClassifier
from gandalf.model import Calibration, Mix, ModelWithMemory, load_model, save_model
from gandalf.model_folder import HASHES, SLIM_FACTS
from gandalf.predict.explain import Explainer, cosines
from gandalf.predict.predictor import Predictor
from gandalf.predict.queries import Query, answer
from gandalf.runs.graph import background_of
from gandalf.serve.app import create_app
from gandalf.serve.journal import Journal
from gandalf.serve.service import Served, Service
from gandalf.slim import SlimPredictor
from gandalf.wide.mixing import NO_LABEL, as_logits, best_of_mix

TEXTS = [*small_splits().test.texts[:12], "", "neverseenword"]


@pytest.fixture(scope="module", params=KINDS)
def part(request):
    return small_part(request.param)


@pytest.fixture(scope="module")
def folder(part, tmp_path_factory):
    found = tmp_path_factory.mktemp("part") / "model"
    save_model(part, found)
    return found


def every(part, texts):
    """All labels of each text."""
    return np.tile(np.arange(part.num_labels), (len(texts), 1))


def close(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(expit(found), expit(expected), atol=tolerance)


def test_best_is_what_scores_say(part):
    """Parts of a mix propose all labels if so many are asked for, else a label may lack a part's share."""
    scores = part.score(TEXTS, every(part, TEXTS))
    ids, values = (each[:, :5] for each in part.best(TEXTS, part.num_labels))
    assert ids.dtype == np.int64 and values.dtype == np.float32
    close(values, np.take_along_axis(scores, ids, axis=1), 1e-3)
    close(values, np.sort(scores, axis=1)[:, ::-1][:, :5], 1e-3)
    assert (np.diff(values, axis=1) <= 0).all()
    few, lower = part.best(TEXTS, 5)
    assert (lower <= np.take_along_axis(scores, few, axis=1) + 1e-3).all()


def test_excluded_labels_are_dropped_and_the_others_move_up(part):
    ids, values = part.best(TEXTS, 4)
    rows = range(len(TEXTS))
    exclude = csr_array((np.ones(len(TEXTS)), (rows, ids[:, 1])), shape=(len(TEXTS), part.num_labels))
    without, others = part.best(TEXTS, 3, exclude)
    assert not (without == ids[:, 1:2]).any()
    close(others, np.delete(values, 1, axis=1), 1e-3)


def test_more_labels_than_there_are_end_in_no_label(part):
    ids, values = part.best(TEXTS[:3], part.num_labels + 7)
    assert ids.shape == (3, part.num_labels + 7)
    assert (ids[:, part.num_labels :] == NO_LABEL).all() and np.isneginf(values[:, part.num_labels :]).all()
    assert ((ids == NO_LABEL) == np.isneginf(values)).all()
    for row in ids:
        found = row[row != NO_LABEL]
        assert len(set(found.tolist())) == len(found)


def test_no_text_and_one_text(part):
    assert part.best([], 3)[0].shape == (0, 3)
    assert part.score([], np.empty((0, 2), dtype=np.int64)).shape == (0, 2)
    close(part.best(TEXTS[:1], 3)[1], part.best(TEXTS, 3)[1][:1], 1e-4)


def test_vectors_have_length_1_and_known_words_are_known(part):
    found = part.unit_vectors(TEXTS[:4])
    own = [float(cosines(found, found[[at]])[at]) for at in range(4)]
    assert own == pytest.approx([1.0] * 4, abs=1e-5)
    assert part.knows(TEXTS[:13]).tolist() == [True] * 12 + [False]


def test_labels_alike_are_others_nearest_first(part):
    found = part.similar_labels(3, 5)
    assert len(found) == 5 and 3 not in [label for label, _ in found]
    values = [value for _, value in found]
    assert values == sorted(values, reverse=True)
    assert len(part.similar_labels(0, 10_000)) == part.num_labels - 1


def test_a_folder_gives_the_same_model_back(part, folder, tmp_path):
    again = load_model(folder)
    assert type(again) is type(part) and again.calibration == part.calibration
    assert list(again.label_texts) == list(part.label_texts)
    close(again.score(TEXTS, every(part, TEXTS)), part.score(TEXTS, every(part, TEXTS)), 1e-5)
    save_model(again, tmp_path / "copy")
    save_model(again, tmp_path / "copy", overwrite=True)
    listed = json.loads((tmp_path / "copy" / "config.json").read_bytes())["files"]
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert sorted(path.relative_to(tmp_path / "copy").as_posix() for path in files) == listed
    (files[-1].parent / "diary.txt").write_text("dear diary")
    with pytest.raises(DataError, match="not part of a model"):
        save_model(again, tmp_path / "copy", overwrite=True)


def test_damage_gets_one_sentence(part, folder, tmp_path):
    """Any file that predictions depend on, missing or cut short."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder)
        if path.name in ("README.md", "metrics.json"):
            continue
        copy = tmp_path / name.as_posix().replace("/", "_")
        save_model(load_model(folder), copy)
        (copy / name).write_bytes(path.read_bytes()[: path.stat().st_size // 3])
        with pytest.raises(DataError) as cut:
            load_model(copy)
        (copy / name).unlink()
        with pytest.raises(DataError) as gone:
            load_model(copy)
        for said in (str(cut.value), str(gone.value)):
            assert said and "\n" not in said


def test_an_added_label_is_found_by_its_own_text(part):
    words = " ".join(TEXTS[0].split()[:2]), " ".join(TEXTS[1].split()[-2:])
    new = [
        NewLabel(f"{words[0]} {words[1]} anew", None, (TEXTS[0],), ()),
        NewLabel(f"{words[1]} again", None, (), (0,)),
    ]
    longer = part.with_labels(new)
    assert longer.num_labels == part.num_labels + 2 and part.num_labels == small_splits().train.num_labels
    found, _ = longer.best([new[0].text, new[1].text], 5)
    assert part.num_labels in found[0] and part.num_labels + 1 in found[1]
    if not isinstance(part, ModelWithMemory):  # there a new label's text and examples vote from now on
        close(longer.score(TEXTS, every(part, TEXTS)), part.score(TEXTS, every(part, TEXTS)), 1e-5)
    with pytest.raises(DataError, match="already"):
        longer.with_labels([new[1]])
    assert part.add_labels(["by a plain list"], examples=[[TEXTS[2]]]).label_texts[-1] == "by a plain list"


def test_what_new_labels_need_can_be_fitted_before(part, tmp_path):
    new, more = [NewLabel("a wholly new label")], [NewLabel("and one more")]
    plain = part.with_labels(new).with_labels(more)
    ready = part.with_label_maker()
    longer = ready.with_labels(new).with_labels(more)
    assert ready.with_label_maker() is not None and ready.num_labels == part.num_labels
    close(ready.score(TEXTS, every(part, TEXTS)), part.score(TEXTS, every(part, TEXTS)), 1e-5)
    close(longer.score(TEXTS, every(longer, TEXTS)), plain.score(TEXTS, every(longer, TEXTS)), 1e-5)
    save_model(longer, tmp_path / "longer")
    again = load_model(tmp_path / "longer")
    close(again.score(TEXTS, every(longer, TEXTS)), longer.score(TEXTS, every(longer, TEXTS)), 1e-5)


def test_queries_are_answered_together_as_alone(part):
    predictor = Predictor(part)
    queries = [
        Query((TEXTS[0],), 3),
        Query((TEXTS[1], TEXTS[2]), 4, allow=(3, 1, 7)),
        Query((TEXTS[3],), 2, deny=(0, 1)),
        Query((TEXTS[4],), 2, allow=(5, 6, 7, 8, 9), deny=(5,)),
        Query((TEXTS[5],), 2, allow=()),
    ]
    together = answer(predictor, queries)
    for query, found in zip(queries, together, strict=True):
        (alone,) = answer(predictor, [query])
        for one, other in zip(found, alone, strict=True):
            assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-5)
        allowed = set(range(part.num_labels)) if query.allow is None else set(query.allow)
        for row in found:
            assert {label for label, _ in row} <= allowed - set(query.deny)
    assert len(together[1][0]) == 3 and len(together[3][0]) == 2 and together[4] == ((),)


def test_an_explanation_adds_up(part):
    predictor = Predictor(part)
    text = TEXTS[0]
    label = int(predictor.predict(text, 1)[0][0])
    found = Explainer(predictor, background_of(part, small_splits())).explain(text, label)
    score = part.score([text], np.array([[label]]))
    assert found.probability == pytest.approx(float(predictor.calibration(score)[0, 0]), abs=1e-5)
    for word in found.words:
        left = part.score([f"{text[: word.start]} {text[word.end :]}"], np.array([[label]]))
        assert word.effect == pytest.approx(float(score[0, 0] - left[0, 0]), abs=1e-3)
    assert len(found.nearest) == 5 and all(point.target > 0 for point in found.with_label)
    vectors = part.unit_vectors([text, found.nearest[0].text])
    assert cosines(vectors, vectors[[0]])[1] == pytest.approx(found.nearest[0].similarity, abs=1e-5)
    if isinstance(part, Mix):
        mean = sum(share.weight * share.probability for share in found.shares)
        assert mean == pytest.approx(found.probability, abs=1e-5)
        assert {share.part for share in found.shares} == {"linear", "deep"}
    elif isinstance(part, ModelWithMemory):
        model, memory = found.shares
        mean = model.weight * model.probability + memory.weight * memory.probability
        assert float(expit(score)[0, 0]) == pytest.approx(mean, abs=1e-5)
        spoken = [vote.share * vote.value for vote in part.votes_on(text, label)]
        assert memory.probability == pytest.approx(sum(spoken), abs=1e-5)
        assert [each.share for each in found.remembered] == pytest.approx([0.4 * each for each in spoken[:5]])
    else:
        assert found.shares == () and found.remembered is None


def test_a_server_adds_labels_and_remembers_them(part, tmp_path):
    path = tmp_path / "added.jsonl"
    service = Service(Served(Predictor(part)), journal=Journal(path, part))
    assert service.add([NewLabel("a label of the server")]) == [part.num_labels]
    again = Service(Served(Predictor(part)), journal=Journal(path, part))
    assert again.served.model.num_labels == part.num_labels + 1
    query = Query(("a label of the server",), 3)
    for one, other in zip(*(each.answer([(query, False)]) for each in (service, again)), strict=True):
        assert [score for _, score in one[0]] == pytest.approx([score for _, score in other[0]], abs=1e-5)


def test_the_page_is_told_of_the_parts(part):
    with TestClient(create_app(Service(Served(Predictor(part))))) as client:
        found = client.post("/explain", json={"text": TEXTS[0], "label": 3}).json()
        assert len(found["shares"]) == (2 if isinstance(part, Mix | ModelWithMemory) else 0)
        assert (found["remembered"] is None) != isinstance(part, ModelWithMemory)
        assert client.post("/predict", json={"text": TEXTS[0], "k": 3}).json()["results"][0]["labels"]
        assert client.get("/labels/3/neighbours").json()["by"] == "rows"
        assert client.get("/about").json()["labels"] == part.num_labels


def test_the_commands_take_it(part, folder, tmp_path):
    text = TEXTS[0]
    said = json.loads(done("predict", folder, text, "--json"))
    explained = json.loads(done("explain", folder, text, "--json"))
    assert explained["label_text"] == said["labels"][0]["text"]
    shown = done("explain", folder, text)
    assert ("parts: " in shown) == isinstance(part, Mix | ModelWithMemory)
    assert ("What remembered points add" in shown) == isinstance(part, ModelWithMemory)
    (tmp_path / "new.txt").write_text("a new label\nanother new one\n", "utf-8")
    longer = tmp_path / "longer"
    assert "2 labels added" in done("add-labels", folder, tmp_path / "new.txt", "-o", longer)
    assert load_model(longer).num_labels == part.num_labels + 2
    (tmp_path / "more.txt").write_text("a third\n", "utf-8")
    done("add-labels", longer, tmp_path / "more.txt", "--in-place")
    assert load_model(longer).num_labels == part.num_labels + 3


def test_an_export_predicts_the_same_without_pytorch(part, tmp_path):
    longer = part.with_labels([NewLabel("a new label of the export")])
    save_model(longer, tmp_path / "model")
    assert "differ by at most" in done("export", tmp_path / "model", tmp_path / "slim")
    done("export", tmp_path / "model", tmp_path / "slim", "--overwrite")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'safetensors', 'faiss']))\n"
        "from gandalf.slim import SlimPredictor\n"
        "import json; found = SlimPredictor(sys.argv[1]).predict(json.loads(sys.argv[2]), 5)\n"
        "print(json.dumps([each.tolist() for each in found]))\n"
    )
    ran = python(code, tmp_path / "slim", json.dumps(TEXTS))
    assert ran.returncode == 0, ran.stderr
    ids, scores = (np.array(each) for each in json.loads(ran.stdout))
    exact, expected = Predictor(load_model(tmp_path / "model")).predict(TEXTS, 5)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    apart = np.abs(np.diff(expected, axis=1)).min(axis=1) > 1e-4
    assert (ids[apart, :4] == exact[apart, :4]).all()
    assert len(SlimPredictor(tmp_path / "slim").named(TEXTS[0], 3)) == 3


def test_a_trained_folder_predicts_the_same_without_pytorch(part, tmp_path):
    longer = part.with_labels([NewLabel("a new label that was added")])
    save_model(longer, tmp_path / "model")
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnxruntime', 'faiss']))\n"
        "from gandalf.slim import SlimPredictor\n"
        "import json; found = SlimPredictor(sys.argv[1]).predict(json.loads(sys.argv[2]), 5)\n"
        "print(json.dumps([each.tolist() for each in found]))\n"
    )
    ran = python(code, tmp_path / "model", json.dumps(TEXTS))
    assert ran.returncode == 0, ran.stderr
    ids, scores = (np.array(each) for each in json.loads(ran.stdout))
    exact, expected = Predictor(load_model(tmp_path / "model")).predict(TEXTS, 5)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    apart = np.abs(np.diff(expected, axis=1)).min(axis=1) > 1e-4
    assert (ids[apart, :4] == exact[apart, :4]).all()


def test_damage_of_an_export_gets_one_sentence(part, folder, tmp_path):
    done("export", folder, tmp_path / "slim")
    for path in sorted(each for each in (tmp_path / "slim").rglob("*") if each.is_file()):
        if path.suffix == ".data":
            continue  # of the graph, beside it
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 3])
        with pytest.raises(DataError) as cut:
            SlimPredictor(tmp_path / "slim")
        path.unlink()
        with pytest.raises(DataError) as gone:
            SlimPredictor(tmp_path / "slim")
        path.write_bytes(whole)
        for said in (str(cut.value), str(gone.value)):
            assert said and "\n" not in said
    SlimPredictor(tmp_path / "slim")


def test_an_estimator_keeps_it_when_pickled(part):
    classifier = GandalfClassifier()
    classifier.model_, classifier.classes_ = part, np.arange(part.num_labels)
    again = pickle.loads(pickle.dumps(classifier))
    one, other = (each.predict_proba(TEXTS, 5).toarray() for each in (classifier, again))
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert again.predict_top(TEXTS[:2], 3) == classifier.predict_top(TEXTS[:2], 3)


# ---- what only a mix promises


def by_hand(part, text, k):
    """The k best of a dict from label to the weighted sum of the parts' probabilities."""
    sums: dict[int, float] = {}
    for each, weight in zip(part.parts, part.weights, strict=True):
        ids, scores = each.best([text], 50)
        for label, chance in zip(ids[0].tolist(), each.calibration(scores)[0].tolist(), strict=True):
            if label != NO_LABEL:
                sums[label] = sums.get(label, 0.0) + weight * chance
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@needs_omikuji
def test_probabilities_of_a_mix_are_weighted_sums():
    part = small_part("mix")
    ids, scores = part.best(TEXTS, 6)
    for row, text in enumerate(TEXTS):
        expected = by_hand(part, text, 6)
        np.testing.assert_allclose(expit(scores[row]), [value for _, value in expected], atol=1e-5)
        values = [value for _, value in expected]
        if min(-np.diff(values)) > 1e-5:
            assert ids[row].tolist() == [label for label, _ in expected]


def test_ties_in_a_mix_go_to_the_smaller_label():
    one = np.array([[4, 2, NO_LABEL]]), np.array([[0.5, 0.25, 0.0]])
    other = np.array([[1, 2, 4]]), np.array([[0.5, 0.25, 0.0]])
    ids, scores = best_of_mix([one, other], (0.5, 0.5), 5)
    assert ids.tolist() == [[1, 2, 4, NO_LABEL, NO_LABEL]]
    np.testing.assert_allclose(expit(scores[0, :3]), 0.25, atol=1e-6)
    assert np.isneginf(scores[0, 3:]).all()
    np.testing.assert_allclose(expit(as_logits([0.0, 0.3, 1.0])), [0.0, 0.3, 1.0], atol=1e-6)


@needs_omikuji
@pytest.mark.parametrize("name", ["../x", "..", "/etc", "a/b", "", "linear"])
def test_names_that_leave_the_folder_are_refused(name, tmp_path):
    part = small_part("mix")
    with pytest.raises(DataError, match="plain names"):
        Mix(("linear", name), part.parts, part.weights, part.label_texts, part.label_ids, {})
    save_model(part, tmp_path / "model")
    save_model(part, tmp_path / "source")
    done("export", tmp_path / "source", tmp_path / "slim")
    for path, of_parts in (
        (tmp_path / "model" / "config.json", "encoder"),
        (tmp_path / "slim" / SLIM_FACTS, None),
    ):
        facts = json.loads(path.read_bytes())
        del facts[HASHES]  # as in a folder of someone who wants it to be read
        (facts if of_parts is None else facts[of_parts])["parts"][1] = name
        path.write_text(json.dumps(facts))
    for read in (lambda: load_model(tmp_path / "model"), lambda: SlimPredictor(tmp_path / "slim")):
        with pytest.raises(DataError, match=r"not in its folder|plain names"):
            read()


@needs_omikuji
def test_what_makes_no_mix_is_refused(tmp_path):
    trees, network = small_trees(), small_network()
    labels = (trees.label_texts, trees.label_ids, {})
    for weights in ((0.5, 0.6), (1.0, 0.0), (1.0,), (-0.5, 1.5)):
        with pytest.raises(DataError, match="weight"):
            Mix(("a", "b"), (trees, network), weights, *labels)
    longer = network.with_labels([NewLabel("one more")])
    with pytest.raises(DataError, match="the part b has"):
        Mix(("a", "b"), (trees, longer), (0.5, 0.5), *labels)
    save_model(small_part("mix"), tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    facts = json.loads(path.read_bytes())
    for change in ({"weights": [0.5, 2]}, {"weights": ["a", 1]}, {"parts": []}, {"parts": None}):
        path.write_text(json.dumps(facts | {"encoder": facts["encoder"] | change}))
        with pytest.raises(DataError):
            load_model(tmp_path / "model")


@needs_omikuji
def test_an_index_is_for_a_network_alone(tmp_path):
    for kind, what in (("trees", "label trees"), ("mix", "a mix of several models")):
        save_model(small_part(kind), tmp_path / kind)
        for index in ("codes", "hnsw"):
            said = fails("serve", tmp_path / kind, "--port", 0, "--index", index)
            assert what in said and said.endswith("leave --index out")


@needs_omikuji
def test_an_export_of_an_earlier_release_is_read(tmp_path):
    save_model(small_network(), tmp_path / "model")
    done("export", tmp_path / "model", tmp_path / "slim")
    path = tmp_path / "slim" / SLIM_FACTS
    facts = json.loads(path.read_bytes())
    del facts[HASHES]  # there were none
    path.write_text(json.dumps({name: facts[name] for name in facts if name not in ("kind", "size")}))
    expected = Predictor(load_model(tmp_path / "model")).predict(TEXTS, 3)[1]
    np.testing.assert_allclose(SlimPredictor(tmp_path / "slim").predict(TEXTS, 3)[1], expected, atol=1e-4)
    path.write_text(json.dumps(facts | {"kind": "magic"}))
    with pytest.raises(DataError, match="this release cannot run"):
        SlimPredictor(tmp_path / "slim")


@needs_omikuji
def test_the_calibration_of_a_mix_comes_after_the_mean():
    part = small_part("mix")
    part.calibration = Calibration(2.0, 0.5)
    known = TEXTS[:12]
    scores = Predictor(part).predict(known, 3)[1]
    np.testing.assert_allclose(scores, expit(2 * part.best(known, 3)[1] + 0.5), rtol=1e-4)
    assert gandalf.Predictor(part).named(TEXTS[0], 2)
