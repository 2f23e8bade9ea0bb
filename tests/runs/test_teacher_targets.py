"""Targets of a teacher, wherever other estimates can be used: graph, augment, train."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from command_line import done, fails
from scipy.sparse import eye_array, load_npz
from small_runs import small, small_splits
from small_systems import small_system

import gandalf
from gandalf.errors import DataError
from gandalf.graph.estimates.teacher import teacher_targets
from gandalf.model import load_model, save_model
from gandalf.runs.graph import check_teacher
from gandalf.runs.session import run_training


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Folder of a model trained on pairs alone."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    chosen = small("siamese.kind=contrastive", "siamese.alone=true", "siamese.pair_epochs=5")
    save_model(run_training(small_splits(), chosen).model, folder)
    return folder


def expected(teacher, texts):
    vectors = load_model(teacher).vectors(texts).numpy()
    return teacher_targets(vectors, eye_array(len(texts), format="csr")).toarray()


def test_the_graph_is_that_of_the_teachers_vectors(teacher, made_up, tmp_path):
    out = tmp_path / "graph.npz"
    done("graph", made_up, "--targets", "teacher", "--teacher", teacher, "--save", out)
    texts = gandalf.load(made_up).train.label_texts
    found = load_npz(out).toarray()
    np.testing.assert_allclose(found, expected(teacher, texts), rtol=1e-5, atol=1e-6)
    assert (found.diagonal() == 1).all() and (found > 0).sum() > len(texts)


def test_augment_writes_the_teachers_label_points(teacher, made_up, tmp_path):
    out = tmp_path / "out"
    told = json.loads(done("augment", made_up, out, "--targets", "teacher", "--teacher", teacher, "--json"))
    given = gandalf.load(made_up).train
    added = gandalf.load(out).train.targets.toarray()[len(given) :]
    np.testing.assert_allclose(added, expected(teacher, given.label_texts), rtol=1e-4, atol=1e-5)
    assert told["targets_used"] == told["graph"]["targets"] == "teacher"


def test_a_run_with_a_teacher_learns_from_its_targets(teacher):
    def rows(*settings):
        return run_training(small_splits(), small(*settings, "training.steps=10"))

    taught = rows("targets.targets=teacher", f"targets.teacher={teacher}")
    assert taught.details["targets_used"] == "teacher" and taught.label_points == 120
    alone = rows("targets.targets=self")
    assert not torch.equal(taught.model.head.rows, alone.model.head.rows)


def test_no_teacher_and_one_that_is_not_asked():
    with pytest.raises(
        DataError, match="targets of a teacher need a model whose encoder was trained on pairs"
    ):
        run_training(small_splits(), small("targets.targets=teacher"))
    with pytest.raises(DataError, match=r"a teacher .* ratio targets; .* teacher targets"):
        run_training(small_splits(), small("targets.teacher=somewhere"))


UNTAUGHT = "was trained without pairs (its siamese.kind is none), so its encoder cannot be a teacher"


def test_a_model_that_saw_no_pairs_is_no_teacher(trained, made_up, tmp_path, monkeypatch):
    said = (
        f"{trained}: {UNTAUGHT}; name another model as the teacher; one is made by gandalf train DATA MODEL "
    )
    said += "--system siamesexml --set siamese.alone=true"
    asked = ("--targets", "teacher", "--set", f"targets.teacher={trained}")
    monkeypatch.setattr("gandalf.runs.prepare.fit_tokens", None)  # it is said before any text is read
    assert fails("train", made_up, tmp_path / "out", *asked) == said
    for command in (("graph", made_up), ("augment", made_up, tmp_path / "out")):
        assert fails(*command, "--targets", "teacher", "--teacher", trained) == said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "sound"),
    [
        (("encoder.frozen=true",), True),  # as it comes
        ((), False),  # moved by a classifier alone
        (("siamese.kind=triplet", "siamese.pair_epochs=1", "siamese.pair_batch=32"), True),
    ],
)
def test_a_transformer_teaches_as_it_comes_or_after_pairs(settings, sound, small_pretrained, tmp_path):
    chosen = small_system("renee", small_pretrained, "siamese.kind=none", "training.steps=2", *settings)
    save_model(run_training(small_splits(), chosen).model, tmp_path / "model")
    with nullcontext() if sound else pytest.raises(DataError, match="was trained without pairs"):
        assert check_teacher(str(tmp_path / "model")) == str(tmp_path / "model")


@pytest.mark.parametrize("kind", ["triplet", "decoupled"])
def test_a_transformer_taught_by_pairs_teaches_another_system(kind, small_pretrained, made_up, tmp_path):
    """NGAME's first stage alone makes the teacher; a bag of words learns from its targets."""
    pairs = (f"siamese.kind={kind}", "siamese.alone=true", "siamese.pair_epochs=4", "validation.share=0")
    untaught = small_system("ngame", small_pretrained, *pairs, "siamese.pair_rate=0")
    taught = small_system("ngame", small_pretrained, *pairs, "siamese.pair_rate=1e-2")
    for name, chosen in (("untaught", untaught), ("taught", taught)):
        save_model(run_training(small_splits(), chosen).model, tmp_path / name)
    texts = gandalf.load(made_up).train.label_texts
    assert not np.allclose(expected(tmp_path / "taught", texts), expected(tmp_path / "untaught", texts))
    done(
        *("train", made_up, tmp_path / "student", "--system", "astec", "--targets", "teacher"),
        *("--set", f"targets.teacher={tmp_path / 'taught'}", "--set", "encoder.dim=16", "--steps", "20"),
    )
    told = json.loads((tmp_path / "student" / "metrics.json").read_text("utf-8"))["training"]
    assert told["targets"]["targets_used"] == "teacher" and told["label_points"] == len(texts)
    done(
        "graph",
        made_up,
        "--targets",
        "teacher",
        "--teacher",
        tmp_path / "taught",
        "--save",
        tmp_path / "g.npz",
    )
    found = load_npz(tmp_path / "g.npz").toarray()
    np.testing.assert_allclose(found, expected(tmp_path / "taught", texts), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", ["true", "false"])
def test_of_a_model_that_began_with_another_the_other_is_to_be_named(frozen, teacher, tmp_path):
    """Whether that one saw pairs is not known here, and it may be gone."""
    chosen = small(f"encoder.from_model={teacher}", f"encoder.frozen={frozen}", "training.steps=2")
    save_model(run_training(small_splits(), chosen).model, tmp_path / "model")
    with pytest.raises(DataError) as refused:
        check_teacher(str(tmp_path / "model"))
    assert f"{UNTAUGHT}; name {teacher}, with whose encoder it began, or another" in str(refused.value)


@pytest.mark.parametrize(
    "recipe", [None, 3, {}, {"siamese": {"kind": "none"}}, {"siamese": [], "encoder": {}}]
)
def test_a_model_that_does_not_tell_how_it_was_made_may_teach(recipe, small_folder, tmp_path):
    shutil.copytree(small_folder, tmp_path / "model")
    about = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    if recipe is not None:
        about["config"]["recipe"] = recipe
    (tmp_path / "model" / "config.json").write_text(json.dumps(about), "utf-8")
    assert check_teacher(str(tmp_path / "model")) == str(tmp_path / "model")


def test_the_command_names_what_is_missing(made_up, tmp_path):
    said = fails("graph", made_up, "--targets", "teacher")
    assert "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true" in said
    said = fails("graph", made_up, "--targets", "teacher", "--teacher", tmp_path / "nowhere")
    assert "there is no such model folder" in said


def test_vectors_of_other_labels_are_refused():
    points = small_splits().train
    with pytest.raises(DataError, match="need its vectors of 120 label texts, not of 3"):
        gandalf.label_graph(points, gandalf.GraphOptions(targets="teacher"), np.ones((3, 2)))
