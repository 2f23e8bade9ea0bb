"""The decoupled softmax in blocks, said again as one dense matrix that autograd follows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from gandalf.train.pairs.decoupled import DEXML, NEITHER, DecoupledOptions, decoupled

NOBODY = torch.empty(0, dtype=torch.int64)
shapes = st.integers(0, 9_999), st.integers(1, 6), st.integers(1, 9), st.integers(1, 60), st.booleans()


def made_up(seed, points, labels):
    """Unit vectors in float64, and targets of every kind: none, soft, hard, neither."""
    generator = np.random.default_rng(seed)
    x, rows = (
        normalize(torch.from_numpy(generator.normal(size=(n, 4))), dim=1).requires_grad_()
        for n in (points, labels)
    )
    soft = generator.random((points, labels))
    kinds = generator.choice(4, size=(points, labels), p=(0.4, 0.25, 0.2, 0.15))
    targets = torch.from_numpy(np.choose(kinds, (0.0 * soft, soft, 1.0 + 0.0 * soft, NEITHER + 0.0 * soft)))
    return x, rows, targets


def triples(targets):
    """Places, columns and targets, sorted by column as a batch has them."""
    column, point = targets.T.nonzero(as_tuple=True)
    return point, column, targets[point, column]


def dense(x, rows, targets, weights, temperature):
    """Sum over positives of v (log(v exp(s) + sum of (1 - |v|) exp(s) over all labels) - s)."""
    scores = (x @ rows.T) / temperature
    negatives = ((1 - targets.abs()) * scores.exp()).sum(dim=1, keepdim=True)
    positive = targets.clamp(min=0)
    terms = positive * (torch.log(positive * scores.exp() + negatives) - scores)
    return (weights[:, None] * torch.where(positive > 0, terms, torch.zeros_like(terms))).sum()


@given(*shapes)
def test_value_and_gradients_equal_the_dense_matrix(seed, points, labels, held, weighted):
    x, rows, targets = made_up(seed, points, labels)
    weights = torch.linspace(0.5, 2, points, dtype=torch.float64) if weighted else None
    options = DecoupledOptions(temperature=0.2, scores=held)
    found = decoupled(x, rows, NOBODY, triples(targets), weights, options)
    every = torch.ones(points, dtype=torch.float64) if weights is None else weights
    expected = dense(x, rows, targets, every, 0.2)
    assert found.shape == () and found.item() == pytest.approx(expected.item(), abs=1e-9)
    both = torch.autograd.grad(3 * found, (x, rows))
    # A point without positives has no gradient, and log 0 of a label that is neither must not spoil others.
    kept = (targets > 0).any(dim=1).nonzero()[:, 0]
    reference = sum(
        (
            3 * dense(x[i : i + 1], rows[columns], targets[i : i + 1, columns], every[i : i + 1], 0.2)
            for i in kept.tolist()
            for columns in [(targets[i] != NEITHER).nonzero()[:, 0]]
        ),
        start=0 * (x.sum() + rows.sum()),
    )
    for one, other in zip(both, torch.autograd.grad(reference, (x, rows)), strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


def by_hand(targets, cosines=(0.5, 0.1, -0.2), **options):
    """One point, whose cosines with the labels are given."""
    cosines = torch.tensor(cosines, dtype=torch.float64)
    rows = torch.stack([cosines, (1 - cosines**2).sqrt()], dim=1)
    x, targets = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.tensor([targets], dtype=torch.float64)
    return decoupled(x, rows, NOBODY, triples(targets), None, DecoupledOptions(**options)).item()


def test_hard_targets_by_hand():
    """Scores 10, 2, -4 at a temperature of 0.05; each positive meets the negative alone."""
    assert by_hand([1, 0, 0]) == pytest.approx(math.log(1 + math.exp(-8) + math.exp(-14)))
    assert by_hand([1, 1, 0]) == pytest.approx(math.log(1 + math.exp(-14)) + math.log(1 + math.exp(-6)))
    assert by_hand([1, 1, 1]) == 0  # nobody is left to be compared with
    assert DEXML.temperature == 0.05


def test_a_soft_target_is_a_share_of_both():
    """At a temperature of 1, 0.4 of the second label: it counts 0.4, and 0.6 of it is a negative of all."""
    one, two, three = (math.exp(each) for each in (0.5, 0.1, -0.2))
    others = 0.6 * two + three
    expected = math.log((one + others) / one) + 0.4 * math.log((0.4 * two + others) / two)
    assert by_hand([1, 0.4, 0], temperature=1.0) == pytest.approx(expected)


def test_neither_is_as_if_the_label_were_not_there():
    assert by_hand([1, 0, NEITHER]) == pytest.approx(by_hand([1, 0], cosines=(0.5, 0.1)))
    assert by_hand([NEITHER, 1, 0]) == pytest.approx(by_hand([1, 0], cosines=(0.1, -0.2)))
    assert by_hand([NEITHER, NEITHER, 0]) == 0


def test_scores_as_large_as_float32_can_bear_stay_finite():
    x = normalize(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)), dim=1).requires_grad_()
    targets = torch.eye(5)
    loss = decoupled(x, x, NOBODY, triples(targets), None, DecoupledOptions(temperature=1e-4, scores=7))
    (slopes,) = torch.autograd.grad(loss, x)
    assert loss.isfinite() and slopes.isfinite().all()


def test_following_the_gradient_brings_pairs_together():
    generator = torch.Generator().manual_seed(1)
    x, rows = (torch.randn(n, 8, generator=generator, requires_grad=True) for n in (24, 12))
    targets = torch.zeros(24, 12)
    targets[torch.arange(24), torch.arange(24) % 12] = 1
    optimiser = torch.optim.Adam([x, rows], lr=0.05)
    first = None
    for _ in range(60):
        optimiser.zero_grad()
        loss = decoupled(normalize(x, dim=1), normalize(rows, dim=1), NOBODY, triples(targets))
        first = first or loss.item()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1 * first
    assert ((x @ normalize(rows, dim=1).T).argmax(dim=1) == torch.arange(24) % 12).all()
