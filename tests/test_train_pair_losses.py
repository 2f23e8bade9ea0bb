"""Losses of pairs, said again by loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from gandalf.train.pair_losses import (
    NGAME,
    SIAMESEXML,
    ContrastiveOptions,
    TripletOptions,
    contrastive,
    triplet,
)


def unit(generator, number, dim=4):
    return normalize(torch.from_numpy(generator.normal(size=(number, dim))), dim=1)


def batch(seed, points, columns, share=0.3):
    """Points, labels, the drawn pair of each point and all true pairs, in float64."""
    generator = np.random.default_rng(seed)
    x, rows = unit(generator, points), unit(generator, columns)
    own = torch.from_numpy(generator.integers(columns, size=points))
    true = generator.random((points, columns)) < share
    true[np.arange(points), own] = True
    return x, rows, own, tuple(torch.from_numpy(each) for each in np.nonzero(true))


def negatives(scores, own, true, row, number):
    """Scores of the hardest columns that are no true pair of this row."""
    out = [float(scores[row, column]) for column in range(scores.shape[1]) if (row, column) not in true]
    return sorted(out, reverse=True)[:number]


def loop_triplet(x, rows, own, positives, weights, options):
    scores, true = (x @ rows.T).numpy(), set(zip(*(each.tolist() for each in positives), strict=True))
    total = 0.0
    for point in range(len(x)):
        hard = negatives(scores, own, true, point, options.hardest)
        exps = [math.exp(score / options.temperature) for score in hard]
        for score, exp in zip(hard, exps, strict=True):
            hinge = max(0.0, options.margin - scores[point, own[point]] + score)
            total += hinge * exp / sum(exps) * (1.0 if weights is None else float(weights[point]))
    return total


def loop_log_loss(anchors, rows, own, true, weights, options):
    scores = (anchors @ rows.T).numpy()
    total = 0.0
    for point in range(len(anchors)):
        loss = -math.log(options.c * math.exp(options.d * scores[point, own[point]]) / math.exp(options.d))
        for score in negatives(scores, own, true, point, options.hardest):
            loss -= math.log(1 - options.c * math.exp(options.d * score) / math.exp(options.d))
        total += loss * (1.0 if weights is None else float(weights[point]))
    return total


def loop_contrastive(x, rows, own, positives, weights, options):
    number = len(own)
    pairs = list(zip(*(each.tolist() for each in positives), strict=True))
    of_first = {(point, column) for point, column in pairs if point < number}
    of_second = {(point - number, column) for point, column in pairs if point >= number}
    one, other = (None, None) if weights is None else (weights[:number], weights[number:])
    mixed = torch.stack([(x[number + i] + rows[own[i]]) for i in range(number)])
    mixed = mixed / mixed.norm(dim=1, keepdim=True)
    return (1 - options.second) * loop_log_loss(
        x[:number], rows, own, of_first, one, options
    ) + options.second * loop_log_loss(mixed, rows, own, of_second, other, options)


def two_points_each(seed, labels, columns):
    x, rows, own, positives = batch(seed, 2 * labels, columns)
    own = own[:labels]
    drawn = torch.arange(2 * labels), torch.cat([own, own])  # both points of a label carry it
    return x, rows, own, tuple(torch.cat(parts) for parts in zip(positives, drawn, strict=True))


shapes = st.integers(0, 999), st.integers(1, 7), st.integers(1, 9), st.booleans()
TRIPLETS = [NGAME, TripletOptions(margin=1.2, hardest=2, temperature=0.7), TripletOptions(hardest=1)]
CONTRASTIVES = [SIAMESEXML, ContrastiveOptions(c=0.75, d=3.0, hardest=3, second=0.6)]


@pytest.mark.parametrize("options", TRIPLETS)
@given(*shapes)
def test_triplet_equals_loops(options, seed, points, columns, weighted):
    x, rows, own, positives = batch(seed, points, columns)
    weights = torch.rand(points, generator=torch.Generator().manual_seed(seed)).double() if weighted else None
    expected = loop_triplet(x, rows, own, positives, weights, options)
    found = triplet(x, rows, own, positives, weights, options)
    assert found.shape == () and found.item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("options", CONTRASTIVES)
@given(*shapes)
def test_contrastive_equals_loops(options, seed, labels, columns, weighted):
    x, rows, own, positives = two_points_each(seed, labels, columns)
    weights = torch.rand(len(x), generator=torch.Generator().manual_seed(seed)).double() if weighted else None
    expected = loop_contrastive(x, rows, own, positives, weights, options)
    found = contrastive(x, rows, own, positives, weights, options)
    assert found.shape == () and found.item() == pytest.approx(expected, abs=1e-10)


def test_the_constants_are_the_papers():
    assert (NGAME.margin, NGAME.hardest, NGAME.temperature) == (0.3, 10, 0.1)
    assert (SIAMESEXML.c, SIAMESEXML.d, SIAMESEXML.hardest, SIAMESEXML.second) == (0.9, 1.5, 1, 0.3)
    # One pair at cosine 1 has the probability c, and there is nothing else: -log c in both terms.
    one, place = torch.eye(3)[:1], torch.zeros(1, dtype=torch.int64)
    both = torch.tensor([0, 1]), torch.tensor([0, 0])
    assert contrastive(one.repeat(2, 1), one, place, both).item() == pytest.approx(-math.log(0.9))
    # A negative at the same place as the positive violates the margin by the whole of it.
    same = one.repeat(2, 1)
    assert triplet(one, same, place, (place, place)).item() == pytest.approx(0.3)


def frozen_shares(x, rows, own, positives, options):
    """The triplet loss with its weights given as constants, the way autograd should see it."""
    masked = (x @ rows.T).detach().clone()
    masked[positives] = -torch.inf
    hard, columns = masked.topk(min(options.hardest, rows.shape[0]), dim=1)
    share = torch.softmax(hard / options.temperature, dim=1)

    def loss(x, rows):
        scores = x @ rows.T
        hinge = torch.relu(options.margin - scores.gather(1, own[:, None]) + scores.gather(1, columns))
        return (share * hinge).sum()

    return loss


@pytest.mark.parametrize("options", TRIPLETS)
@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_triplet_is_that_of_fixed_weights(options, seed):
    x, rows, own, positives = batch(seed, 5, 14, share=0.1)
    x.requires_grad_(), rows.requires_grad_()
    fixed = frozen_shares(x, rows, own, positives, options)
    assert torch.autograd.gradcheck(fixed, (x, rows))
    expected = torch.autograd.grad(fixed(x, rows), (x, rows))
    found = torch.autograd.grad(triplet(x, rows, own, positives, None, options), (x, rows))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_gradient_of_triplet_with_one_negative_is_exact():
    """A single negative has the weight 1 always, so nothing is held fixed."""
    x, rows, own, positives = batch(3, 5, 8)
    x.requires_grad_(), rows.requires_grad_()
    alone = TripletOptions(margin=2.0, hardest=1)
    assert torch.autograd.gradcheck(lambda x, rows: triplet(x, rows, own, positives, None, alone), (x, rows))


@pytest.mark.parametrize("options", CONTRASTIVES)
@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_contrastive(options, seed):
    x, rows, own, positives = two_points_each(seed, 4, 7)
    x.requires_grad_(), rows.requires_grad_()
    weights = torch.linspace(0.5, 2, 8, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x, rows: contrastive(x, rows, own, positives, weights, options), (x, rows)
    )


def test_a_true_pair_is_never_a_negative():
    """However near a true label is, it pushes nothing: neither value nor gradient changes when it moves."""
    x = normalize(torch.tensor([[1.0, 0.2, 0.0], [0.0, 1.0, 0.1]]), dim=1)
    rows = normalize(torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.3, 0.0], [0.0, 0.0, 1.0]]), dim=1)
    own = torch.tensor([0, 2])
    every = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2])
    wide = TripletOptions(margin=2.0)
    rows.requires_grad_()
    masked = triplet(x, rows, own, every, None, wide)
    (gradient,) = torch.autograd.grad(masked, rows)
    assert torch.count_nonzero(gradient[1]) == 0  # true for both points, drawn for neither
    drawn = torch.tensor([0, 1]), torch.tensor([0, 2])
    assert triplet(x, rows, own, drawn, None, wide) > masked


def test_the_drawn_label_is_masked_even_if_no_pair_says_so():
    x, rows, own, _ = batch(0, 4, 6)
    none = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    drawn = torch.arange(4), own
    assert torch.equal(triplet(x, rows, own, none), triplet(x, rows, own, drawn))
    x, rows, own, _ = two_points_each(0, 3, 6)
    drawn = torch.arange(6), torch.cat([own, own])
    assert torch.equal(contrastive(x, rows, own, none), contrastive(x, rows, own, drawn))


def test_points_without_negatives_add_nothing_and_no_nan():
    x, rows, own, _ = batch(1, 3, 4)
    x.requires_grad_(), rows.requires_grad_()
    # All labels are true of point 0, all but one of point 1, the drawn one alone of point 2.
    pairs = [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        *((1, column) for column in range(4) if column != (own[1] + 1) % 4),
    ]
    positives = tuple(torch.tensor(each) for each in zip(*pairs, (2, int(own[2])), strict=True))
    loss = triplet(x, rows, own, positives, None, TripletOptions(margin=2.0))
    of_x, of_rows = torch.autograd.grad(loss, (x, rows))
    assert of_x[0].tolist() == [0, 0, 0, 0] and of_x[1].any() and of_x[2].any()
    assert of_x.isfinite().all() and of_rows.isfinite().all()
    alone = triplet(x[:1], rows, own[:1], (torch.zeros(4, dtype=torch.int64), torch.arange(4)))
    assert alone.item() == 0
    one = torch.zeros(1, dtype=torch.int64)
    both = torch.tensor([0, 1]), torch.tensor([0, 0])
    loss = contrastive(x[:2], rows[:1], one, both)  # a batch of one label
    assert loss.isfinite() and all(each.isfinite().all() for each in torch.autograd.grad(loss, (x, rows)))


def test_equal_negatives_count_alike_and_only_so_many():
    """Twelve labels in one place: ten of them count a tenth each, whichever they are."""
    x = torch.eye(3)[:1]
    rows = torch.cat([torch.eye(3)[:1], torch.eye(3)[1:2].repeat(12, 1)]).requires_grad_()
    place = torch.zeros(1, dtype=torch.int64)
    loss = triplet(x, rows, place, (place, place), None, TripletOptions(margin=1.5))
    assert loss.item() == pytest.approx(0.5)
    (gradient,) = torch.autograd.grad(loss, rows)
    slopes = sorted(gradient[1:, 0].tolist())
    np.testing.assert_allclose(slopes, [0.0] * 2 + [0.1] * 10, atol=1e-6)


def test_shares_of_both_contrastive_terms_and_what_a_second_point_does():
    x, rows, own, positives = two_points_each(5, 4, 6)
    first = contrastive(x, rows, own, positives, None, ContrastiveOptions(second=0.0))
    second = contrastive(x, rows, own, positives, None, ContrastiveOptions(second=1.0))
    both = contrastive(x, rows, own, positives)
    torch.testing.assert_close(both, 0.7 * first + 0.3 * second)
    moved = torch.cat([x[:4], x[4:].flip(0)])
    assert torch.equal(contrastive(moved, rows, own, positives, None, ContrastiveOptions(second=0.0)), first)
    assert not torch.equal(contrastive(moved, rows, own, positives), both)


@pytest.mark.parametrize("loss", [triplet, contrastive])
def test_following_the_gradient_brings_pairs_together(loss):
    generator = np.random.default_rng(0)
    labels = 12
    x, rows = (unit(generator, number, 8).float().requires_grad_() for number in (2 * labels, labels))
    own = torch.arange(labels)
    both = torch.arange(2 * labels), torch.cat([own, own])
    # The triplet loss has no second points: each point is drawn with its label.
    drawn = own if loss is contrastive else torch.cat([own, own])
    optimiser = torch.optim.Adam([x, rows], lr=0.05)

    def ranked_first():
        scores = normalize(x, dim=1) @ normalize(rows, dim=1).T
        return (scores[:labels].argmax(dim=1) == own).float().mean().item()

    before = ranked_first()
    for _ in range(60):
        optimiser.zero_grad()
        loss(normalize(x, dim=1), normalize(rows, dim=1), drawn, both).backward()
        optimiser.step()
    assert before < 0.5 and ranked_first() == 1.0
