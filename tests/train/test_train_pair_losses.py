"""Losses of pairs, said again by loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from gandalf.train.pairs.contrastive import SIAMESEXML, ContrastiveOptions, contrastive
from gandalf.train.pairs.triplet import NGAME, TripletOptions, triplet


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
        hinges = [max(0.0, options.margin - scores[point, own[point]] + score) for score in hard]
        logits = [score if hinge else 0.0 for score, hinge in zip(hard, hinges, strict=True)]
        exps = [math.exp(logit / options.temperature) for logit in logits]
        for hinge, exp in zip(hinges, exps, strict=True):
            total += hinge * exp / sum(exps) * (1.0 if weights is None else float(weights[point]))
    return total


def loop_log_loss(label, columns, true, barred, options):
    """Of one label: all its true columns, and the hardest of those that may be negatives."""
    probability = [options.c * math.exp(options.d * (float(label @ column) - 1)) for column in columns]
    loss = -sum(math.log(probability[place]) for place in true)
    others = sorted((each for place, each in enumerate(probability) if place not in barred), reverse=True)
    return loss - sum(math.log(1 - each) for each in others[: options.hardest])


def loop_contrastive(x, rows, own, positives, weights, options):
    number, total = len(own), 0.0
    pairs = set(zip(*(each.tolist() for each in positives), strict=True))
    centroids = [x[i] + x[number + i] for i in range(number)]
    centroids = [each / each.norm() for each in centroids]
    for place, label in enumerate(own.tolist()):
        first = {i for i in range(number) if (i, label) in pairs}
        second = {i for i in range(number) if (number + i, label) in pairs}
        loss = (1 - options.centroid) * loop_log_loss(rows[label], x[:number], first, first, options)
        loss += options.centroid * loop_log_loss(
            rows[label], centroids, first & second, first | second, options
        )
        total += loss * (1.0 if weights is None else float(weights[place] + weights[number + place]) / 2)
    return total


def two_points_each(seed, labels, columns):
    x, rows, own, positives = batch(seed, 2 * labels, columns)
    own = own[:labels]
    drawn = torch.arange(2 * labels), torch.cat([own, own])  # both points of a label carry it
    return x, rows, own, tuple(torch.cat(parts) for parts in zip(positives, drawn, strict=True))


shapes = st.integers(0, 999), st.integers(1, 7), st.integers(1, 9), st.booleans()
TRIPLETS = [NGAME, TripletOptions(margin=1.2, hardest=2, temperature=0.7), TripletOptions(hardest=1)]
CONTRASTIVES = [SIAMESEXML, ContrastiveOptions(c=0.75, d=3.0, hardest=3, centroid=0.6)]


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
    assert (SIAMESEXML.c, SIAMESEXML.d, SIAMESEXML.hardest, SIAMESEXML.centroid) == (0.9, 1.5, 1, 0.3)
    # One pair at cosine 1 has the probability c, and there is nothing else: -log c in both terms.
    one, place = torch.eye(3)[:1], torch.zeros(1, dtype=torch.int64)
    both = torch.tensor([0, 1]), torch.tensor([0, 0])
    assert contrastive(one.repeat(2, 1), one, place, both).item() == pytest.approx(-math.log(0.9))
    # A negative at the same place as the positive violates the margin by the whole of it.
    same = one.repeat(2, 1)
    assert triplet(one, same, place, (place, place)).item() == pytest.approx(0.3)


def test_triplet_by_hand():
    """A positive at cosine 0.5, negatives at 0.6, 0.3 and -0.9: the last does not violate the margin.

    Hinges 0.4, 0.1 and 0; logits 6, 3 and, for the last, 0 in place of -9; so weights of e^6, e^3 and 1 in
    424.5143 and a loss of (161.3715 + 2.0086) / 424.5143 = 0.384864. The weights have a gradient, too: of
    the first, 0.950330 (1 + (0.4 - 0.384864) / 0.1) = 1.094177; of the second -0.087467; of the last none.
    """
    cosines = torch.tensor([0.5, 0.6, 0.3, -0.9], dtype=torch.float64)
    rows = torch.stack([cosines, (1 - cosines**2).sqrt()], dim=1).requires_grad_()
    x, place = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    loss = triplet(x, rows, place, (place, place))
    assert loss.item() == pytest.approx(0.384864, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss, rows)
    of_positive = -(0.950330 + 0.047314)
    np.testing.assert_allclose(gradient[:, 0], [of_positive, 1.094177, -0.087467, 0], atol=2e-6)


@pytest.mark.parametrize("options", TRIPLETS)
@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_triplet_flows_through_the_weights(options, seed):
    x, rows, own, positives = batch(seed, 5, 14, share=0.1)
    x.requires_grad_(), rows.requires_grad_()
    whole = lambda x, rows: triplet(x, rows, own, positives, None, options)  # noqa: E731
    assert torch.autograd.gradcheck(whole, (x, rows))


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


def by_hand():
    """Two labels, two points of each; the first point of the second label is true of the first label, too."""
    rows = torch.eye(2, dtype=torch.float64)
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]], dtype=torch.float64)
    pairs = torch.tensor([0, 1, 1, 2, 3]), torch.tensor([0, 0, 1, 0, 1])
    return x, rows, torch.tensor([0, 1]), pairs


def test_contrastive_by_hand():
    """Labels meet points. Cosines of first points: 1, 0.6 and 0, 0.8; -log 0.9 = 0.105361.

    The first label has two true points, 0.105361 + (1.5 x 0.4 + 0.105361), and no other; the second 1.5 x 0.2
    + 0.105361, and a negative at cosine 0: -log(1 - 0.9 exp(-1.5)) = 0.224165. In all 1.440247.
    Centroids (3, 1) and (1, 3), by their length, have cosines 0.948683 and 0.316228. Each label has its own,
    1.5 x 0.051317 + 0.105361 = 0.182336. The second is half true of the first label: neither true nor a
    negative; the first is a negative of the second label: -log(1 - 0.322704) = 0.389647. In all 0.754318.
    """
    points = contrastive(*by_hand(), None, ContrastiveOptions(centroid=0.0)).item()
    centroids = contrastive(*by_hand(), None, ContrastiveOptions(centroid=1.0)).item()
    assert (points, centroids) == pytest.approx((1.440247, 0.754318), abs=1e-6)
    assert contrastive(*by_hand()).item() == pytest.approx(0.7 * 1.440247 + 0.3 * 0.754318, abs=1e-6)


def test_the_hardest_negative_of_a_label_is_a_point():
    """Two labels in one place, each the other's nearest, push nothing; the nearest other point is pushed."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64).requires_grad_()
    x = normalize(torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0]], dtype=torch.float64).repeat(2, 1), dim=1)
    x.requires_grad_()
    own, places = torch.arange(3), torch.arange(6)
    both = torch.tensor([0, 0]), torch.tensor([0, 1])  # the first point is true of both labels there
    pairs = tuple(torch.cat(each) for each in zip((places, own.repeat(2)), both, strict=True))
    loss = contrastive(x, rows, own, pairs, None, ContrastiveOptions(centroid=0.0))
    cosines = (rows @ x[:3].T).tolist()
    likely = [[0.9 * math.exp(1.5 * (each - 1)) for each in row] for row in cosines]
    expected = -math.log(likely[0][0]) - math.log(1 - likely[0][1])  # not true: the second point
    expected += -math.log(likely[1][0]) - math.log(likely[1][1]) - math.log(1 - likely[1][2])
    expected += -math.log(likely[2][2]) - math.log(1 - likely[2][1])
    assert loss.item() == pytest.approx(expected)
    (of_x,) = torch.autograd.grad(loss, x)
    assert of_x[3:].count_nonzero() == 0  # second points stand in centroids alone


def test_shares_of_both_contrastive_terms_and_what_a_second_point_does():
    x, rows, own, positives = two_points_each(5, 4, 6)
    first = contrastive(x, rows, own, positives, None, ContrastiveOptions(centroid=0.0))
    second = contrastive(x, rows, own, positives, None, ContrastiveOptions(centroid=1.0))
    both = contrastive(x, rows, own, positives)
    torch.testing.assert_close(both, 0.7 * first + 0.3 * second)
    moved = torch.cat([x[:4], x[4:].flip(0)])
    alone = ContrastiveOptions(centroid=0.0)
    assert torch.equal(contrastive(moved, rows, own, positives, None, alone), first)
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
