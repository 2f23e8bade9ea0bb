"""A siamese stage over all labels, label points in it, and the label graph as a guide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_runs import KilledError, at_step, killed, same, small, small_splits, weights
from small_systems import begun, small_system, write_pretrained
from torch.nn.functional import normalize

from gandalf.errors import DataError
from gandalf.graph.label_graph import GraphOptions, label_graph
from gandalf.runs.checks import check_recipe
from gandalf.runs.folder import RunPlace
from gandalf.runs.session import run_training
from gandalf.train.batches import make_batch
from gandalf.train.guidance import Guidance
from gandalf.train.pairs.decoupled import NEITHER
from gandalf.train.pairs.kind import pair_stage

pytestmark = pytest.mark.slow

PAIRS = ("siamese.kind=decoupled", "siamese.pair_batch=32", "siamese.pair_epochs=3", "training.steps=4")
WITH_POINTS = (*PAIRS, "siamese.label_points=true")
GUIDED = (*PAIRS, "siamese.guidance=0.5")


@pytest.fixture
def splits():
    return small_splits()


@pytest.fixture
def crossed(splits):
    """The same with label 3's text as a training point that also carries label 5."""
    points = splits.train
    texts = (points.label_texts[3], *points.texts[1:])
    targets = points.targets.tolil()
    targets[0, 3] = targets[0, 5] = 1
    return replace(splits, train=replace(points, texts=texts, targets=csr_array(targets.tocsr())))


def met_targets(splits, *settings):
    """What the stage is told of each point, and which points are label points."""
    running, material = begun(splits, small(*settings), "siamese")
    return running, running.training.points.targets.toarray(), material.augmented


def test_label_points_take_part_by_their_targets_of_other_labels(crossed):
    running, targets, made = met_targets(crossed, *WITH_POINTS)
    graph = label_graph(crossed.train, GraphOptions("ratio")).matrix.toarray()
    of_labels = targets[made.is_label]
    other = ~np.eye(len(graph), dtype=bool)
    np.testing.assert_allclose(of_labels[other], graph[other], rtol=1e-6)
    assert (of_labels.diagonal() == NEITHER).all()
    met = running.training.stage.order.phases[0].points
    has_others = (graph * other > 0).any(axis=1)
    assert 0 < has_others.sum() < len(graph)
    assert set(met[made.is_label[met]]) == set(np.flatnonzero(made.is_label)[has_others])


def test_a_training_point_and_a_label_with_its_text_are_no_pair(crossed):
    _, targets, made = met_targets(crossed, *PAIRS)
    assert targets[0, 3] == NEITHER and targets[0, 5] == 1
    own = crossed.train.targets.toarray()
    same_text = np.array(
        [[text == name for name in crossed.train.label_texts] for text in crossed.train.texts]
    )
    np.testing.assert_array_equal(targets[~made.is_label], np.where(same_text, NEITHER, own))


def test_runs_with_and_without_label_points_take_equal_steps(splits):
    with_points, without = (met_targets(splits, *each)[0] for each in (WITH_POINTS, PAIRS))
    assert with_points.training.steps == without.training.steps > 1
    sizes = [len(each.training.stage.order.phases[0].points) for each in (with_points, without)]
    assert sizes[0] > sizes[1]


def test_every_label_is_met_at_every_update(splits):
    training = met_targets(splits, *PAIRS)[0].training
    rows = training.stage.order.rows(1)
    batch = make_batch(training.points, rows, training.stage.labels, 1, torch.device("cpu"))
    (chunk,) = batch.chunks
    assert chunk.size == splits.train.num_labels and len(batch.tokens) == 32 + chunk.size
    dense = training.points.targets[rows].toarray()
    found = np.zeros_like(dense)
    found[chunk.point, chunk.column] = chunk.value
    np.testing.assert_array_equal(found, dense)


def test_label_points_teach(crossed):
    """Labels that occur together come nearer to each other by their label points than without."""
    graph = label_graph(crossed.train, GraphOptions("ratio")).matrix
    one, other = (graph - graph.multiply(np.eye(graph.shape[0]))).nonzero()

    def nearness(*settings):
        model = run_training(crossed, small(*settings, "siamese.alone=true", "siamese.pair_epochs=20")).model
        vectors = normalize(model.vectors(model.label_texts), dim=1)
        return float((vectors[one] * vectors[other]).sum(dim=1).mean() - (vectors @ vectors.T).mean())

    assert nearness(*WITH_POINTS) > nearness(*PAIRS) + 0.02


@pytest.mark.parametrize("settings", [WITH_POINTS, GUIDED])
def test_a_run_that_was_killed_in_the_stage_ends_as_an_unbroken_one(settings, splits, tmp_path, monkeypatch):
    whole = run_training(splits, small(*settings))
    place = RunPlace(tmp_path / "run", minutes=0)
    with monkeypatch.context() as broken:
        at_step(broken, 14, killed)
        with pytest.raises(KilledError):
            run_training(splits, small(*settings), place)
    same(run_training(splits, small(*settings), replace(place, resume=True)), whole)


def test_a_transformer_reads_all_label_texts_in_parts(splits, tmp_path):
    """The gradient is the one of all texts read at once."""
    folder = write_pretrained(tmp_path / "pretrained", splits)

    def moved(*settings):
        asked = small_system("ngame", folder, "siamese.kind=decoupled", "siamese.pair_dropout=0", *settings)
        training = begun(splits, asked, "siamese")[0].training
        for module in training.encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        training.run()
        return training.encoder.state_dict()

    at_once, parts = moved("training.micro_batch=100000"), moved("training.micro_batch=7")
    assert all(torch.allclose(each, parts[name], atol=1e-4) for name, each in at_once.items())


# ---- guidance


def test_the_pull_by_hand():
    """Label 0 has the neighbours 1 and 2 at weights 3 and 1; label 1 has label 0; label 2 has none."""
    graph = csr_array(np.array([[1, 0.6, 0.2], [0.3, 1, 0], [0, 0, 1]], dtype=np.float32))
    guide = Guidance(graph, 0.5)
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]], requires_grad=True)
    guide.refresh(2 * rows.detach())  # only directions count
    mean = normalize(torch.tensor([3 * 1 + 1 * 0.6, 3 * 0 + 1 * 0.8]), dim=0)
    torch.testing.assert_close(guide.means, torch.stack([mean, torch.tensor([0.0, 1.0]), torch.zeros(2)]))
    loss = guide(rows, slice(0, 3))
    assert loss.item() == pytest.approx(0.5 * ((1 - mean[1].item()) + 1 + 0) / 3)
    (slopes,) = torch.autograd.grad(loss, rows)
    torch.testing.assert_close(slopes, -0.5 * guide.means / 3)
    some = torch.tensor([1])
    assert guide(rows[some], some).item() == pytest.approx(0.5)


@pytest.mark.parametrize("kind", ["contrastive", "triplet", "decoupled"])
def test_guided_label_texts_lie_nearer_to_their_neighbours(kind, splits):
    graph = label_graph(splits.train, GraphOptions("shrunk")).matrix

    def far(weight):
        settings = (f"siamese.kind={kind}", f"siamese.guidance={weight}", "siamese.alone=true")
        model = run_training(splits, small(*PAIRS, *settings, "siamese.pair_epochs=20")).model
        guide = Guidance(graph, 1.0)
        vectors = normalize(model.vectors(model.label_texts), dim=1)
        guide.refresh(vectors)
        return float(guide(vectors, slice(None)))

    assert far(5.0) < far(0.0) - 0.01


def test_nothing_of_the_guide_is_left_in_the_model(splits):
    plain, guided = (run_training(splits, small(*each)) for each in (PAIRS, GUIDED))
    sizes = [{name: each.shape for name, each in weights(run).items()} for run in (plain, guided)]
    assert sizes[0] == sizes[1]
    assert plain.model.config.keys() == guided.model.config.keys()


# ---- what is refused


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("siamese.kind=triplet", "siamese.label_points=true"), "of the kind decoupled alone"),
        (("siamese.guidance=1",), "guides a siamese stage, and there is none"),
        (("siamese.kind=decoupled", "siamese.softmax_temperature=0"), "must be greater than 0"),
        (("siamese.kind=decoupled", "siamese.guidance=-1"), "must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, sentence):
    with pytest.raises(DataError, match=sentence):
        check_recipe(small(*settings))


def test_points_that_have_no_pair_but_with_themselves_are_refused():
    targets = csr_array(np.eye(3, dtype=np.float32))
    options = small(*PAIRS).siamese
    with pytest.raises(DataError, match="no training point has a label with another text"):
        pair_stage(options, targets, np.ones(3, dtype=bool), 0, targets)
