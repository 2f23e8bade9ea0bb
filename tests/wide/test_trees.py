"""The system parabel: label trees by omikuji behind the same commands and the same model folder."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from command_line import done, fails
from scipy.sparse import csr_array
from small_runs import small_splits
from tiny_set import write_tiny_set

import gandalf
from gandalf.data.tf_idf import TfIdf
from gandalf.errors import DataError
from gandalf.model import Trees, load_network, save_model
from gandalf.recipe import LabelTrees
from gandalf.runs.checks import check_recipe
from gandalf.settings import override
from gandalf.systems import recipe
from gandalf.wide.mixing import as_logits
from gandalf.wide.wide_model import silenced, word_features

needs_omikuji = pytest.mark.skipif(
    find_spec("omikuji") is None,
    reason="omikuji is an optional library: extra [parabel]",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees") / "model"
    found = gandalf.train(small_splits(), "parabel", out=folder, targets="ratio")
    return found, folder


def given_by_hand(model: Trees, text: str) -> list[tuple[int, float]]:
    """What omikuji says of a text whose features are made by counting its words."""
    words = text.lower().split()
    column = {word: at for at, word in enumerate(model.wide.words.words)}
    counts = {column[word]: words.count(word) for word in words if word in column}
    weights = {at: count * float(model.wide.words.idf[at]) for at, count in counts.items()}
    length = sum(value**2 for value in weights.values()) ** 0.5
    pairs = [(at, value / length) for at, value in sorted(weights.items())] or [(len(column), 1.0)]
    return model.wide.forest.predict(pairs, top_k=model.num_labels)


@needs_omikuji
def test_predictions_are_those_of_the_trees_on_tf_idf_words(trained):
    model = trained[0].model
    texts = [*(small_splits().test.texts)[:20], "", "neverseenword"]
    ids, scores = model.best(texts, 5)
    for row, text in enumerate(texts):
        expected = sorted((-score, label) for label, score in given_by_hand(model, text))[:5]
        np.testing.assert_allclose(1 / (1 + np.exp(-scores[row])), [-s for s, _ in expected], atol=1e-5)
        if len({round(s, 6) for s, _ in expected}) == 5:  # else near-ties may change places
            assert ids[row].tolist() == [label for _, label in expected]


@needs_omikuji
def test_excluded_pairs_are_never_predicted_and_the_others_move_up(trained):
    model = trained[0].model
    texts = list(small_splits().test.texts[:10])
    ids, scores = model.best(texts, 4)
    exclude = csr_array((np.ones(10), (range(10), ids[:, 1])), shape=(10, model.num_labels))
    without, values = model.best(texts, 3, exclude)
    assert without.tolist() == np.delete(ids, 1, axis=1).tolist()
    assert values.tolist() == np.delete(scores, 1, axis=1).tolist()


@needs_omikuji
def test_where_labels_run_out_there_is_no_prediction(trained):
    model = trained[0].model
    ids, scores = model.best([small_splits().test.texts[0]], model.num_labels + 5)
    assert ids[0, -1] == -1 and np.isneginf(scores[0, -1])
    assert (ids[0] >= 0).sum() == np.isfinite(scores[0]).sum()


def same(one, other):
    """Trees are read in no order, and their scores summed so: equal but for rounding, and ties apart."""
    (ids, scores), (other_ids, expected) = one, other
    apart = np.abs(np.diff(expected, axis=1)).min(axis=1) > 1e-5
    assert apart.mean() > 0.5
    return np.allclose(scores, expected, atol=1e-6) and np.array_equal(ids[apart, :4], other_ids[apart, :4])


@needs_omikuji
def test_a_folder_gives_back_the_same_model_without_pickle(trained, tmp_path):
    found, folder = trained
    texts = list(small_splits().test.texts)
    expected = gandalf.Predictor(found.model).predict(texts, 5)
    again = gandalf.load_model(folder)
    assert isinstance(again, Trees) and again.calibration == found.model.calibration is not None
    assert same(gandalf.Predictor(again).predict(texts, 5), expected)
    suffixes = {path.suffix for path in folder.iterdir()}
    assert suffixes <= {".json", ".jsonl", ".cbor", ".toml", ".md"}
    save_model(again, tmp_path / "copy")
    copy = gandalf.Predictor(gandalf.load_model(tmp_path / "copy")).predict(texts, 5)
    assert same(copy, expected)


@needs_omikuji
def test_the_card_lists_no_setting_that_nothing_heeds(trained):
    card = (trained[1] / "README.md").read_text("utf-8").partition("## Recipe")[2]
    names = {line.partition(":")[0] for line in card.splitlines() if line.startswith("- ")}
    assert names == {"- system", "- seed", "- trees", "- targets", "- validation"}
    assert "targets ratio" in card and "number 3" in card
    assert not any(word in card for word in ("label_epochs", "label_weight", "every 1", "patience"))


@needs_omikuji
def test_calibrated_scores_are_probabilities_in_order(trained):
    ids, scores = gandalf.Predictor(trained[0].model).predict(list(small_splits().test.texts), 5)
    assert np.all((scores >= 0) & (scores <= 1)) and np.all(np.diff(scores, axis=1) <= 0)
    assert len(set(ids[0].tolist())) == 5


@needs_omikuji
def test_it_learns_and_label_points_are_among_the_points(trained):
    found, folder = trained
    assert found.label_points == small_splits().train.num_labels
    assert found.points == len(small_splits().train)  # those held to calibrate are learnt from in the end
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    assert metrics["P@1"] > 5 * 100 / small_splits().train.num_labels


@needs_omikuji
def test_the_commands_speak_json_alone(tmp_path):
    data, model = write_tiny_set(tmp_path / "tiny"), tmp_path / "model"
    made = json.loads(
        done("train", data, model, "--system", "parabel", "--targets", "self", "--validation", "0", "--json")
    )
    assert made["training"]["label_points"] == 4
    done("predict", model, data, "-o", tmp_path / "p.npz")
    assert done("evaluate", tmp_path / "p.npz", data)
    said = json.loads(done("predict", model, "alpha one", "--json"))
    assert said["labels"][0]["text"] in ("first label", "second label")


@needs_omikuji
def test_a_model_folder_with_a_part_missing_or_damaged_is_refused(trained, tmp_path):
    found, _ = trained
    for name in ("tree0.cbor", "features.json", "settings.json"):
        folder = tmp_path / name
        save_model(found.model, folder)
        (folder / name).unlink()
        with pytest.raises(DataError, match="no complete model folder"):
            gandalf.load_model(folder)
        (folder / name).write_bytes(b"{")
        with pytest.raises(DataError):
            gandalf.load_model(folder)


@needs_omikuji
def test_trees_are_no_dead_end_and_what_needs_an_encoder_says_so(trained, tmp_path):
    _, folder = trained
    with pytest.raises(DataError, match="label trees, which have no encoder"):
        load_network(folder)
    (tmp_path / "new.txt").write_text("a new label\n", "utf-8")
    done("add-labels", folder, tmp_path / "new.txt", "-o", tmp_path / "out")
    assert gandalf.load_model(tmp_path / "out").num_labels == trained[0].model.num_labels + 1
    assert "differ by at most" in done("export", folder, tmp_path / "slim")
    text = small_splits().test.texts[0]
    assert "probability" in done("explain", folder, text)
    said = fails("serve", folder, "--port", 0, "--index", "codes")
    assert "an index needs the rows of a single network" in said and "has no encoder" not in said


@needs_omikuji
def test_targets_are_chosen_on_held_points_for_trees_too():
    found = gandalf.train(small_splits(), "parabel", targets="auto")
    assert found.model.config["targets"]["targets"] in ("none", "self", "ratio", "shrunk", "calibrated")


def test_without_omikuji_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "omikuji", None)
    data = write_tiny_set(tmp_path / "tiny")
    said = fails("train", data, tmp_path / "model", "--system", "parabel", "--targets", "self")
    assert said == "linear models and label trees need omikuji; pip install 'gandalf-xmc[parabel]'"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "change", ["training.epochs=5", "encoder.dim=7", "head.rate=1", "targets.label_weight=0.5"]
)
def test_settings_that_trees_would_not_heed_are_refused(change):
    with pytest.raises(DataError, match="says nothing about label trees"):
        check_recipe(override(recipe("parabel"), [change]))
    check_recipe(override(recipe("parabel"), ["trees.number=1", "targets.targets=none"]))
    assert recipe("astec").trees == LabelTrees()


def test_logits_are_what_a_sigmoid_turns_back():
    scores = [0.0, 1e-3, 0.5, 0.999, 1.0]
    np.testing.assert_allclose(1 / (1 + np.exp(-as_logits(scores).astype(float))), scores, atol=2e-7)


def test_a_text_without_known_words_has_a_column_of_its_own():
    words, _ = TfIdf.fit(["a b", "b c"], 2)
    found = word_features(words, ["b", "nothing", ""]).toarray()
    assert found[:, -1].tolist() == [0.0, 1.0, 1.0] and found.shape == (3, 3)
    assert not found[1:, :-1].any()


def test_silence_ends_where_it_should(capfd):
    with silenced():
        os.write(1, b"not heard")
    os.write(1, b"heard")
    assert capfd.readouterr().out == "heard"
