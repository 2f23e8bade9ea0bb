"""`gandalf mix`: one model of several that exist, weights fitted on training points alone."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import command_line
import numpy as np
import pytest
from scipy.sparse import csr_array
from small_model import small_model
from small_parts import needs_omikuji, small_part
from small_runs import small, small_splits

import gandalf
from gandalf.data.dataset import Splits
from gandalf.errors import DataError
from gandalf.model import Mix, load_model, save_model
from gandalf.model.with_memory import networks
from gandalf.runs.mix import TOO_KIND, mix_models

done = partial(command_line.done, "mix")
fails = partial(command_line.fails, "mix")


@pytest.fixture(scope="module")
def networks_of_one_cut():
    """Two networks that held the same points out of their training."""
    settings = ("validation.share=0.2", "training.last_stretch=0")
    return {
        name: gandalf.train(small_splits(), small(*settings, f"encoder.dim={dim}")).model
        for name, dim in (("small", 8), ("large", 24))
    }


def test_points_that_all_models_held_out_are_taken(networks_of_one_cut):
    found = mix_models(networks_of_one_cut, small_splits())
    assert not found.seen and found.points <= 0.2 * len(small_splits().train)
    assert sum(found.fitted.weights) == pytest.approx(1.0)
    assert mix_models(networks_of_one_cut, small_splits(), share=0.1).seen
    other = replace(small_splits(), name="other")
    assert mix_models(networks_of_one_cut, other).seen


@needs_omikuji
def test_trees_are_asked_without_the_points_that_networks_held_out(networks_of_one_cut):
    """Trees learn from all points in the end: on points that they know they would win every time."""
    trees = gandalf.train(small_splits(), "parabel", targets="ratio").model
    models = {"trees": trees, "large": networks_of_one_cut["large"]}
    fair, unfair = mix_models(models, small_splits()), mix_models(models, small_splits(), share=0.2)
    assert not fair.seen and unfair.seen
    assert fair.alone["trees"]["P@1"] < unfair.alone["trees"]["P@1"]
    alone = {"one": trees, "two": replace(trees)}
    assert not mix_models(alone, small_splits()).seen
    unknown = {"trees": replace(trees, config={}), "large": networks_of_one_cut["large"]}
    assert mix_models(unknown, small_splits()).seen


def test_the_test_split_has_no_say(networks_of_one_cut):
    splits = small_splits()
    wrong = csr_array(splits.test.targets[:, ::-1])
    for test in (replace(splits.test, targets=wrong), None):
        one = mix_models(networks_of_one_cut, splits)
        other = mix_models(networks_of_one_cut, Splits(splits.train, test, splits.name))
        assert (one.fitted.names, one.fitted.weights) == (other.fitted.names, other.fitted.weights)
        assert one.as_dict() == other.as_dict()


@needs_omikuji
def test_a_part_that_adds_nothing_is_dropped_and_a_mix_gives_its_parts():
    both = small_part("mix")
    assert len(networks(both)) == 1
    found = mix_models(
        {"both": both, "noise": small_model(labels=list(both.label_texts), seed=7)}, small_splits()
    )
    assert set(found.alone) == {"both-linear", "both-deep", "noise"}
    assert "both-linear" in found.fitted.names and found.seen
    assert len(found.fitted.names) == (len(found.model.parts) if isinstance(found.model, Mix) else 1)


def test_other_labels_are_refused(networks_of_one_cut):
    network = networks_of_one_cut["small"]
    longer = network.add_labels(["one more label"])
    with pytest.raises(DataError, match="small has 120 labels, and longer 121"):
        mix_models({"small": network, "longer": longer}, small_splits())
    renamed = replace(network, label_texts=["another text", *network.label_texts[1:]])
    with pytest.raises(DataError, match=r"label 0 is .* in small, and 'another text' in renamed"):
        mix_models({"small": network, "renamed": renamed}, small_splits())
    with pytest.raises(DataError, match="1 of them added later"):
        mix_models({"one": longer, "two": longer}, small_splits())
    with pytest.raises(DataError, match="a mix has 2 to 6"):
        mix_models({"one": network}, small_splits())
    with pytest.raises(DataError, match="a mix has 2 to 6"):
        mix_models({str(number): network for number in range(7)}, small_splits())


@needs_omikuji
def test_the_command(tmp_path, networks_of_one_cut):
    gandalf.export(small_splits(), tmp_path / "data", "raw")
    trees = small_part("trees")
    save_model(trees, tmp_path / "model")
    (tmp_path / "more").mkdir()
    save_model(networks_of_one_cut["large"], tmp_path / "more" / "model")
    models = (tmp_path / "model", tmp_path / "more" / "model")
    said = json.loads(done(*models, "-o", tmp_path / "mixed", "--data", tmp_path / "data", "--json"))
    assert [each["name"] for each in said["mixing"]["parts"]] == ["model", "model-2"]
    assert sum(each["weight"] for each in said["mixing"]["parts"]) == pytest.approx(1.0)
    assert said["P@1"] > 0 and said["mixing"]["may_have_been_seen"]
    found = load_model(tmp_path / "mixed")
    assert found.num_labels == trees.num_labels and found.calibration is not None
    ids, scores = gandalf.Predictor(found).predict(list(small_splits().test.texts), 3)
    assert (np.diff(scores, axis=1) <= 0).all() and (ids[:, 0] >= 0).all()
    assert json.loads((tmp_path / "mixed" / "metrics.json").read_bytes())["P@1"] == said["P@1"]
    assert "not empty" in fails(*models, "-o", tmp_path / "mixed", "--data", tmp_path / "data")
    shown = done(*models, "-o", tmp_path / "mixed", "--data", tmp_path / "data", "--overwrite")
    assert "the mix" in shown and "weight" in shown
    assert "is the model" in fails(*models, "-o", models[0], "--data", tmp_path / "data")
    assert "part of the data" in fails(*models, "-o", tmp_path / "data" / "x", "--data", tmp_path / "data")
    assert "between 0 and 1" in fails(
        *models, "-o", tmp_path / "other", "--data", tmp_path / "data", "--share", 0
    )
    assert "no such model folder" in fails(
        tmp_path / "none", models[1], "-o", tmp_path / "other", "--data", tmp_path / "data"
    )
    assert not (tmp_path / "other").exists()
    assert "memorise" in TOO_KIND
