"""The scores that training starts from, and the collapse that they prevent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from small_runs import small, small_splits

from gandalf.nets.bag_of_words import BagOfWords, BagOfWordsOptions
from gandalf.nets.encoder import evenly
from gandalf.nets.head_kind import SPREAD
from gandalf.nets.heads import Table
from gandalf.runs.build import start_scores
from gandalf.runs.plan import resolved
from gandalf.runs.session import run_training
from gandalf.train.batches import Points
from gandalf.train.parallel.ranks import Ranks

POINTS, LABELS, DIM = 400, 12, 8


def made(seed=0):
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.01, 0.4, LABELS)
    targets = (generator.random((POINTS, LABELS)) < share).astype(np.float32)
    vectors = torch.from_numpy(generator.normal(0.5, 0.2, (POINTS, DIM)).astype(np.float32))
    torch.manual_seed(seed)
    return Table(LABELS, DIM), Points(np.ones((POINTS, 1), np.int32), csr_array(targets)), vectors


def test_scores_spread_as_said_and_probabilities_are_the_frequencies():
    table, points, vectors = made()
    directions = torch.nn.functional.normalize(table.rows.detach().clone())
    start_scores(table, points, vectors, slice(0, LABELS))
    torch.testing.assert_close(torch.nn.functional.normalize(table.rows.detach()), directions)
    scores = vectors @ table.rows.detach().T + table.bias.detach()  # shape: (N, L)
    assert float(scores.var(dim=0, correction=0).mean()) == pytest.approx(SPREAD**2, rel=1e-3)
    frequency = (points.targets.toarray().sum(axis=0) + 0.5) / (POINTS + 1)
    odds = torch.exp(scores).mean(dim=0).numpy()  # the normal curve's formula, on data that are normal
    np.testing.assert_allclose(odds, frequency / (1 - frequency), rtol=0.15)


class ThisAndAnother(Ranks):
    """One rank that has heard what the other's labels say."""

    def __init__(self, other: float) -> None:
        super().__init__()
        self.other = other

    def values_of_all(self, value):
        return [value, self.other]


def test_a_part_of_the_labels_starts_as_in_the_whole():
    whole, points, vectors = made()
    part, own = Table(4, DIM), slice(3, 7)
    part.rows.data.copy_(whole.rows.data[own])
    of_label = (vectors @ whole.rows.detach().T).double().var(dim=0, correction=0)
    other = float(of_label.sum() - of_label[own].sum())
    start_scores(whole, points, vectors, slice(0, LABELS))
    start_scores(part, points, vectors, own, ranks=ThisAndAnother(other))
    torch.testing.assert_close(part.rows.detach(), whole.rows.detach()[own])
    torch.testing.assert_close(part.bias.detach(), whole.bias.detach()[own])
    frequency = (points.targets.toarray().sum(axis=0)[own] + 0.5) / (POINTS + 1)
    scores = vectors @ part.rows.detach().T + part.bias.detach()
    np.testing.assert_allclose(torch.exp(scores).mean(dim=0).numpy(), frequency / (1 - frequency), rtol=0.2)


@pytest.mark.parametrize(("number", "at_most"), [(1, 5), (5, 5), (6, 5), (1000, 7)])
def test_points_are_drawn_evenly(number, at_most):
    found = evenly(number, at_most)
    assert len(set(found.tolist())) == min(number, at_most) and found[0] == 0 and found[-1] == number - 1


def test_vectors_have_the_mean_zero_and_old_options_no_centre():
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (200, 6))
    old = BagOfWords(50, BagOfWordsOptions(dim=16))
    assert "centre" not in old.state_dict()
    encoder = BagOfWords(50, BagOfWordsOptions(dim=16, centred=True)).train()
    encoder.fit_to_texts(ids)
    assert encoder.training
    with torch.no_grad():
        found = encoder.eval()(ids)
    torch.testing.assert_close(found.mean(dim=0), torch.zeros(16), atol=1e-6, rtol=0)
    mean_cosine = torch.nn.functional.cosine_similarity(found[:100], found[100:]).mean()
    assert abs(float(mean_cosine)) < 0.1


@pytest.mark.parametrize("system", ["astec", "decaf"])
def test_nothing_collapses_on_the_way(system):
    """Before rows started at the labels' frequencies, 20 updates left all points with the same labels."""

    def figures(steps):
        length = ("validation.share=0.3", "encoder.dim=64", f"training.steps={steps}")
        return [each["value"] for each in run_training(small_splits(), small(*length, system=system)).history]

    start = figures(1)[0]
    assert min(figures(steps)[-1] for steps in (1, 5, 20, 60)) >= start - 5


@pytest.mark.parametrize(
    ("points", "labels", "batch"),
    [(300, 50, 32), (2_500, 500, 128), (12_000, 700, 256), (60_000, 9_000, 256)],
)
def test_small_sets_have_small_batches(points, labels, batch):
    recipe = small("training.batch=0", "training.epochs=15")
    assert resolved(recipe, points, labels).training.batch == batch
    assert resolved(small("training.batch=7"), points, labels).training.batch == 7
