"""Runs of two stages: what the first leaves to the second, and who takes part in it."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_runs import at_step, same, small, small_splits
from torch.nn import functional as F

from gandalf.errors import DataError
from gandalf.model import save_model
from gandalf.recipe import Siamese, Targets
from gandalf.runs.folder import RunPlace
from gandalf.runs.prepare import fit_tokens, points_for_loop, with_label_points
from gandalf.runs.session import run_training
from gandalf.runs.validation import test_scores as scores_of
from gandalf.runs.watch import Interrupted
from gandalf.train.loop import Training
from gandalf.train.orders import cluster_size, doubling_epochs
from gandalf.train.pairs import triplet as stage
from gandalf.train.pairs.kind import pair_stage

PAIRS = ("siamese.pair_batch=32", "siamese.pair_epochs=6")
contrastive = ("siamese.kind=contrastive", *PAIRS)
triplet = ("siamese.kind=triplet", *PAIRS)
decoupled = ("siamese.kind=decoupled", *PAIRS)
both = pytest.mark.parametrize("settings", [contrastive, triplet, decoupled])


@pytest.fixture
def splits():
    return small_splits()


def stages_seen(monkeypatch):
    """The stages' trainings, as they are begun."""
    seen = []
    begin = Training.__init__

    def kept(self, *given, **named):
        begin(self, *given, **named)
        seen.append(self)

    monkeypatch.setattr(Training, "__init__", kept)
    return seen


@both
def test_the_second_stage_goes_on_with_the_first_ones_encoder(settings, splits, monkeypatch):
    seen = stages_seen(monkeypatch)
    trained = run_training(splits, small(*settings, "head.start=text", "training.steps=5"))
    first, second = seen
    assert first.encoder is second.encoder is trained.model.encoder
    assert second.before == first.steps and trained.steps == first.steps + 5
    assert [each["stage"] for each in trained.history if "stage" in each]
    assert [each["step"] for each in trained.history] == sorted(each["step"] for each in trained.history)


def test_what_was_kept_is_of_the_last_stage(splits):
    trained = run_training(splits, small(*contrastive, "validation.patience=50", "training.steps=5"))
    better = [{**trained.history[0], "value": 1000.0}, *trained.history[1:]]
    assert "stage" in better[0]
    last = [each for each in trained.history if "stage" not in each]
    assert replace(trained, history=better).kept == max(last, key=lambda each: each["value"])


def test_rows_start_from_what_the_first_stage_made_of_the_label_texts(splits):
    chosen = small(*contrastive, "head.start=text", "training.steps=1", "head.rate=0", "encoder.rate=0")
    found = run_training(splits, chosen, RunPlace()).model
    moved = small(*contrastive, "head.start=text", "training.steps=1", "head.rate=0")
    vectors = F.normalize(found.vectors(found.label_texts), dim=1)
    far = F.normalize(run_training(splits, moved).model.vectors(found.label_texts), dim=1)
    # One update of the word vectors comes between; nothing else does.
    assert (found.head.rows * vectors).sum(dim=1).mean() > 0.98
    assert (found.head.rows * far).sum(dim=1).mean() > 0.9


@both
def test_labels_are_ranked_by_their_texts_where_there_is_no_second_stage(settings, splits):
    model = run_training(splits, small(*settings, "siamese.alone=true")).model
    expected = F.normalize(model.vectors(model.label_texts), dim=1)
    torch.testing.assert_close(model.head.rows, expected, rtol=1e-4, atol=1e-5)
    assert not model.head.bias.any()


@both
def test_pairs_teach(settings, splits):
    """Texts come nearer to the texts of their labels than in an encoder that has learnt nothing."""
    known = replace(splits, test=splits.train)

    def found(*more):
        model = run_training(
            splits, small(*settings, "siamese.alone=true", "validation.share=0", *more)
        ).model
        return scores_of(model, known)["P@5"]

    taught = found("siamese.pair_epochs=30")
    assert taught > found("siamese.pair_rate=0", "siamese.pair_words_rate=0") + 3


@pytest.mark.parametrize("kind", ["contrastive", "triplet", "decoupled"])
def test_label_points_take_no_part_in_pairs(kind, splits):
    chosen = small(f"siamese.kind={kind}", *PAIRS)
    made = with_label_points(splits.train, chosen.targets, 0)
    tokens = fit_tokens(splits.train, chosen.text, chosen.encoder)
    points = points_for_loop(made, tokens, Targets())
    assert made.is_label.sum() == splits.train.num_labels
    found = pair_stage(chosen.siamese, points.targets, ~made.is_label, 0)
    met = np.unique(np.concatenate([found.order.rows(step) for step in range(found.order.steps)]))
    assert len(met) and not made.is_label[met].any()
    assert (np.diff(points.targets.indptr)[met] > 0).all()


def test_every_pair_of_drawn_labels_is_a_true_one(splits):
    chosen = small(*contrastive)
    targets = splits.train.targets
    made = pair_stage(chosen.siamese, targets, np.ones(len(splits.train), dtype=bool), 0)
    for step in range(5):
        rows = made.order.rows(step)
        triples = _triples(targets, rows)
        (chunk,) = made.labels.chunks(rows, triples, step)
        own = chunk.labels.numpy()[chunk.drawn.numpy()]
        assert len(rows) == 2 * len(own) == 2 * 32 and len(set(own)) == 32
        for first, second, label in zip(rows[:32], rows[32:], own, strict=True):
            assert targets[first, label] > 0 and targets[second, label] > 0


def _triples(targets, rows):
    point, label = targets[rows].nonzero()
    order = np.argsort(label, kind="stable")
    return point[order], label[order].astype(np.int64), np.ones(len(point), dtype=np.float32)


@pytest.mark.parametrize(
    ("settings", "largest"),
    [((), 10), (("siamese.cluster_share=1",), 32), (("siamese.cluster_share=0.5",), 16)],
)
def test_clusters_grow_as_ngames_do_and_are_of_vectors_that_training_saw(
    settings, largest, splits, monkeypatch
):
    sizes = []
    made = stage.clusters

    def spy(vectors, size, seed):
        sizes.append(size)
        assert bool(vectors.norm(dim=1).gt(0).all())  # every point was met before
        return made(vectors, size, seed)

    monkeypatch.setattr(stage, "clusters", spy)
    run_training(splits, small(*triplet, "siamese.pair_epochs=12", "siamese.alone=true", *settings))
    starts = doubling_epochs(12)
    # The last batch of the first epoch begins the second, whose order stands by then.
    assert sizes == [min(cluster_size(epoch, starts), largest) for epoch in range(2, 12)]
    assert sizes[0] == min(16, largest) and sizes[-1] == largest


def test_a_batch_holds_several_clusters():
    """512 of 1,600 as published: of 512 points 163 at most, of 100 points in all 32, and never none."""
    sizes = {}
    for number, batch in ((2000, 1600), (2000, 512), (100, 512), (2, 512)):
        options = Siamese(kind="triplet", pair_batch=batch)
        targets = csr_array(np.ones((number, 1), dtype=np.float32))
        (mining,) = pair_stage(options, targets, np.ones(number, dtype=bool), 0).refreshing
        sizes[number, batch] = mining.largest
    assert sizes == {(2000, 1600): 512, (2000, 512): 163, (100, 512): 32, (2, 512): 1}


def test_ctrl_c_in_the_last_step_of_a_stage_loses_nothing(splits, tmp_path, monkeypatch):
    chosen = small(*contrastive, "training.steps=6")
    unbroken = run_training(splits, chosen, RunPlace(tmp_path / "unbroken"))
    last = unbroken.steps - 6 - 1
    with (
        monkeypatch.context() as patch,
        pytest.raises(Interrupted, match="stopped after step 0 of 6") as said,
    ):
        at_step(patch, last, lambda: signal.raise_signal(signal.SIGINT))
        run_training(splits, chosen, RunPlace(tmp_path / "broken"))
    assert said.value.saved
    same(unbroken, run_training(splits, chosen, RunPlace(tmp_path / "broken", resume=True)))


# ---- from a model that is there


def test_a_run_can_start_from_a_models_encoder(splits, tmp_path):
    before = run_training(splits, small(*contrastive, "siamese.alone=true")).model
    save_model(before, tmp_path / "model")
    settings = (f"encoder.from_model={tmp_path / 'model'}", "encoder.frozen=true", "training.steps=20")
    found = run_training(splits, small(*settings, "head.start=text")).model
    assert found.tokens.size == before.tokens.size
    for name, each in found.encoder.state_dict().items():
        assert torch.equal(each, before.encoder.state_dict()[name]), name
    moved = run_training(splits, small(*settings[::2])).model
    assert not torch.equal(moved.encoder.words.weight, before.encoder.words.weight)


def test_nowhere_to_start_from(splits, tmp_path):
    with pytest.raises(DataError, match="there is no such model folder"):
        run_training(splits, small(f"encoder.from_model={tmp_path / 'nowhere'}"))


def test_an_encoder_of_another_kind_is_no_start(splits, tmp_path):
    before = run_training(splits, small("training.steps=2")).model
    save_model(before, tmp_path / "model")
    with pytest.raises(
        DataError, match="holds an encoder of the kind bag-of-words, and inception is asked for"
    ):
        run_training(splits, small(f"encoder.from_model={tmp_path / 'model'}", system="inceptionxml"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("encoder.frozen=true",), "a frozen encoder would stay as it was drawn, at random"),
        (("head.rows=frozen",), "a head of the kind table has no rows of label text that could be frozen"),
        (("siamese.alone=true",), "without a siamese stage there would be no training at all"),
        (("siamese.pair_epochs=0",), "'siamese.pair_epochs' is 0.0, but it must be greater than 0"),
        (("siamese.pair_batch=1",), "'siamese.pair_batch' is 1, but it must be at least 2"),
        (("siamese.margin=3",), r"'siamese.margin' is 3.0, but it must be in \(0, 2\]"),
    ],
)
def test_what_no_siamese_stage_could_follow(settings, said, splits):
    with pytest.raises(DataError, match=said):
        run_training(splits, small(*settings))
