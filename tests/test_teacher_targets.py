"""Targets of a teacher, wherever other estimates can be used: graph, augment, train."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from command_line import done, fails
from scipy.sparse import eye_array, load_npz
from small_runs import small, small_splits

import gandalf
from gandalf.errors import DataError
from gandalf.graph.teacher import teacher_targets
from gandalf.model import load_model, save_model
from gandalf.runs.run import train


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Folder of a model trained on pairs alone."""
    folder = tmp_path_factory.mktemp("teacher") / "model"
    chosen = small("siamese.kind=contrastive", "siamese.alone=true", "siamese.pair_epochs=5")
    save_model(train(small_splits(), chosen).model, folder)
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
        return train(small_splits(), small(*settings, "training.steps=10"))

    taught = rows("targets.targets=teacher", f"targets.teacher={teacher}")
    assert taught.details["targets_used"] == "teacher" and taught.label_points == 120
    alone = rows("targets.targets=self")
    assert not torch.equal(taught.model.head.rows, alone.model.head.rows)


def test_no_teacher_and_one_that_is_not_asked():
    with pytest.raises(
        DataError, match="targets of a teacher need a model whose encoder was trained on pairs"
    ):
        train(small_splits(), small("targets.targets=teacher"))
    with pytest.raises(DataError, match="a teacher says nothing about ratio targets"):
        train(small_splits(), small("targets.teacher=somewhere"))


def test_the_command_names_what_is_missing(made_up, tmp_path):
    said = fails("graph", made_up, "--targets", "teacher")
    assert "gandalf train DATA MODEL --system siamesexml --set siamese.alone=true" in said
    said = fails("graph", made_up, "--targets", "teacher", "--teacher", tmp_path / "nowhere")
    assert "there is no such model folder" in said


def test_vectors_of_other_labels_are_refused():
    points = small_splits().train
    with pytest.raises(DataError, match="need its vectors of 120 label texts, not of 3"):
        gandalf.label_graph(points, gandalf.GraphOptions(targets="teacher"), np.ones((3, 2)))
