"""Every distinctive part of every system counts: a run without it predicts something else.

That a run without any change predicts the same, to the last bit, stands in test_systems.py.
"""

from __future__ import annotations

import pytest
import torch
from scipy.sparse import eye_array
from small_runs import small_splits
from small_systems import small_system

from gandalf.runs import prepare as label_texts
from gandalf.runs.session import run_training
from gandalf.systems import NETWORKS
from gandalf.train.pairs import triplet as stage

pytestmark = pytest.mark.slow

SHORT = ("training.steps=3", "validation.share=0", "siamese.pair_epochs=1", "siamese.pair_batch=64")
# Near points are put together from the third epoch of pairs on: the second begins with the last batch of the
# first, before anything can be known of all points.
LONG = "siamese.pair_epochs=4"
SWITCHED = {
    "astec": (
        *("encoder.residual=decaf", "encoder.dropout=0", "head.start=random", "head.start=text"),
        *("head.kind=gated", "targets.targets=none"),
    ),
    "decaf": (
        *("head.kind=table", "head.kind=attention", "head.rows=frozen", "head.start=random"),
        *("head.start=points", "encoder.residual=astec", "targets.targets=none"),
    ),
    "eclare": (
        *("head.kind=table", "head.kind=gated", "head.rows=frozen", "head.start=random", "head.start=text"),
        *("encoder.residual=decaf", "targets.targets=none"),
    ),
    "inceptionxml": (
        *("encoder.kind=bag-of-words", "encoder.dropout=0", "encoder.last_dropout=0", "head.start=points"),
        *("head.kind=attention", "targets.targets=none"),
    ),
    "inceptionxml-lf": (
        *("head.kind=table", "head.kind=gated", "head.rows=frozen", "head.start=graph-text"),
        *("encoder.kind=bag-of-words", "encoder.residual=decaf", "targets.targets=none"),
    ),
    "siamesexml": (
        *("siamese.kind=none", "siamese.kind=triplet", "siamese.alone=true", "siamese.power=1"),
        *("head.start=text", "head.start=points", "encoder.frozen=true", "targets.targets=none"),
    ),
    "ngame": (
        *("siamese.kind=none", "siamese.kind=contrastive", "siamese.alone=true", "siamese.margin=0.05"),
        *("siamese.negatives=1", "siamese.temperature=10", "encoder.frozen=false", "head.start=random"),
        "targets.targets=none",
    ),
    "renee": (
        *("siamese.kind=none", "siamese.negatives=1", "encoder.frozen=true", "encoder.dropout=0"),
        *("head.optimiser=adamw", "head.momentum=0", "head.start=random"),
        *("training.schedule=one-cycle", "targets.targets=none", "targets.targets=ratio"),
        *("targets.label_epochs=0.5", "labels.kind=shortlist"),
    ),
}


@pytest.fixture(scope="module")
def scores_of(small_pretrained):
    """Scores of all labels for the test texts; those of a system as it is are made once."""
    kept = {}

    def run(system, *settings):
        # Few random labels, lest a shortlist be all of them.
        few = ("labels.random=8", "labels.hard=1")
        model = run_training(
            small_splits(), small_system(system, small_pretrained, *SHORT, *few, *settings)
        ).model
        return (model.vectors(small_splits().test.texts) @ model.head.rows.T + model.head.bias).detach()

    def of(system, *settings):
        if settings:
            return run(system, *settings)
        if system not in kept:
            kept[system] = run(system)
        return kept[system]

    return of


def differ(one, other):
    return bool(torch.isfinite(other).all()) and float((one - other).abs().max()) > 1e-5


def test_every_system_is_switched():
    assert SWITCHED.keys() == set(NETWORKS)


@pytest.mark.parametrize(
    ("system", "setting"), [(system, setting) for system, all_of in SWITCHED.items() for setting in all_of]
)
def test_without_a_part_predictions_are_others(system, setting, scores_of):
    assert differ(scores_of(system), scores_of(system, setting))


@pytest.mark.parametrize(
    ("system", "higher", "setting"),
    [
        ("renee", "training.batch=256", "head.weight_decay=0"),
        ("inceptionxml", "encoder.rate=0.2", "encoder.attention=self"),  # its gates begin closed
    ],
)
def test_at_higher_rates_small_parts_count_too(system, higher, setting, scores_of):
    assert differ(scores_of(system, higher), scores_of(system, higher, setting))


@pytest.mark.parametrize("system", ["eclare", "inceptionxml-lf", "siamesexml"])
def test_without_the_walk_predictions_are_others(system, scores_of, monkeypatch):
    before = scores_of(system)

    def of_itself(targets, *, seed=0):
        return eye_array(targets.shape[1], format="csr")

    monkeypatch.setattr(label_texts, "smoothing_graph", of_itself)
    assert differ(before, scores_of(system, "seed=0"))


@pytest.mark.parametrize("system", ["ngame", "renee"])
def test_without_clusters_predictions_are_others(system, scores_of, monkeypatch):
    before = scores_of(system, LONG)
    assert differ(before, scores_of(system, LONG, "siamese.cluster_share=1"))
    monkeypatch.setattr(stage, "refresh_epochs", lambda epochs: ())
    assert differ(before, scores_of(system, LONG))
